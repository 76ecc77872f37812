"""The lock's text form: a PEP 751 file with our own table (docs/format.md, "Lock").

* ``render_lock`` is a function of the value alone: same lock, same bytes. UTF-8, LF, packages by name.
* The standard part is checked by ``packaging.pylock`` both ways; ours, ``[tool.envbundle]``, strictly: a
  field nobody knows or a count that contradicts its verdict refuses the file.
* A wheel's ``path`` is contained in the lock's folder, its ``url`` holds no credentials; one of them is set.
* An unknown ``lock-format`` is refused with what to upgrade, before anything else of ours is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envbundle.errors import FormatError

from .lock import LOCK_FORMAT
from .lock_reader import MAX_LOCK, parse_lock
from .target import check_target_name
from .toml_writer import inline, key_of, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .coverage import Counts, Entry
    from .lock import FileEvidence, Lock, LockedOverlay, LockedPackage
    from .target import Target

__all__ = [
    "MAX_LOCK",
    "counts_text",
    "entry_text",
    "environment_marker",
    "lock_filename",
    "parse_lock",
    "render_lock",
]

_HEADER = """\
# Lock of the target {name}, written by `envbundle lock`: do not edit it; change envbundle.toml, lock again.
# It is a PEP 751 file (pylock); what is envbundle's own stands in [tool.envbundle], see docs/format.md.
# **`uv pip sync` and `pip install -r` install the BASE ONLY: no overlay, no winner of a contested path.**
"""


def lock_filename(target: str) -> str:
    """Return ``pylock.<target>.toml``; a target's name holds no dot, as PEP 751 demands."""
    return f"pylock.{check_target_name(target)}.toml"


def render_lock(lock: Lock) -> str:
    """Return the text of ``pylock.<target>.toml``; the same value gives the same text, byte for byte.

    Raises ``FormatError`` where the value itself breaks PEP 751 or a rule of this module, so that no lock
    is written that ``parse_lock`` would refuse.
    """
    target = lock.target
    lines = [_HEADER.format(name=target.name)]
    lines += [
        'lock-version = "1.0"',
        f"environments = [{value_of(environment_marker(target))}]",
        f"requires-python = {value_of(f'=={target.python}.*')}",
        'created-by = "envbundle"',
    ]
    for package in sorted(lock.packages, key=lambda one: one.name):
        lines += ["", "[[packages]]", *_package_lines(package)]
    lines += [
        "",
        "[tool.envbundle]",
        f"lock-format = {LOCK_FORMAT}",
        f"tool = {value_of(lock.tool)}",
        f"rules = {value_of(lock.rules)}",
        f"solver = {value_of(lock.solver)}",
        f"manifest = {value_of(str(lock.manifest))}",
        *_listed("exemptions", [inline(item.to_dict()) for item in lock.exemptions]),
        *_listed("builds", [inline(item.to_dict()) for item in lock.builds]),
        "",
        "[tool.envbundle.target]",
        *(f"{key_of(key)} = {value_of(value)}" for key, value in target.to_dict().items()),
    ]
    if lock.requires:
        lines += ["", "[tool.envbundle.requires]"]
        lines += [f"{key_of(key)} = {value_of(value)}" for key, value in sorted(lock.requires.items())]
    for overlay in lock.overlays:
        lines += ["", "[[tool.envbundle.overlays]]", *_overlay_lines(overlay)]
    for contested in lock.contested:
        lines += [
            "",
            "[[tool.envbundle.contested]]",
            f"path = {value_of(contested.path)}",
            f"winner = {value_of(contested.winner)}",
            *_listed("claims", [value_of([name, str(digest)]) for name, digest in contested.claims]),
        ]
    for evidence in lock.coverage:
        lines += [
            "",
            "[[tool.envbundle.coverage]]",
            f"distribution = {value_of(evidence.distribution)}",
            f"counts = {inline(_counts_out(evidence.counts))}",
            *_listed("files", [_file_out(item) for item in evidence.files]),
        ]
    text = "\n".join(lines) + "\n"
    if parse_lock(text) != lock:
        raise FormatError(
            "E-FORMAT", lock_filename(target.name), expected="a lock whose text reads back as itself"
        )
    return text


def environment_marker(target: Target) -> str:
    """Return the PEP 508 marker of the machines that a target's lock is for."""
    return f"sys_platform == 'linux' and platform_machine == '{target.machine}'"


def entry_text(entry: Entry) -> str:
    """Return an entry as the lock writes it, as in ``2 ptx compute_90 isa 9.0 in .nv_fatbin``."""
    isa = "" if entry.isa is None else f" isa {entry.isa}"
    return f"{entry.modules} {entry.kind} {entry.arch}{isa} in {entry.section}"


def counts_text(counts: Counts) -> str:
    """Return counts as the lock writes them: ``partial: 3 native, 0 jit, 1 missing``."""
    text = f"{counts.verdict}: {counts.native} native, {counts.jit} jit, {counts.missing} missing"
    if counts.spare_jit or counts.spare_missing:
        text += f"; spare: {counts.spare_jit} jit, {counts.spare_missing} missing"
    return text


def _package_lines(package: LockedPackage) -> list[str]:
    wheel = package.wheel
    lines = [f"name = {value_of(package.name)}", f"version = {value_of(package.version)}"]
    if wheel.index is not None:
        lines.append(f"index = {value_of(wheel.index)}")
    where = {"url": wheel.url} if wheel.path is None else {"path": wheel.path}
    table = {"name": wheel.filename, **where, "size": wheel.size, "hashes": {"sha256": wheel.sha256.hex}}
    lines.append(f"wheels = [{inline(table)}]")
    if package.origin != "published":
        lines.append(f"tool = {inline({'envbundle': {'origin': package.origin}})}")
    return lines


def _overlay_lines(overlay: LockedOverlay) -> list[str]:
    files = []
    for item in overlay.files:
        table: dict[str, Any] = {"path": item.path, "sha256": str(item.sha256), "size": item.size}
        if item.mode != 0o644:
            table["mode"] = f"{item.mode:o}"
        if item.replaces is not None:
            table["replaces"] = str(item.replaces)
        files.append(inline(table))
    removes = [inline({"path": path, "sha256": str(digest)}) for path, digest in overlay.removes]
    return [
        f"distribution = {value_of(overlay.distribution)}",
        f"path = {value_of(overlay.path)}",
        f"mode = {value_of(overlay.mode)}",
        f"base-version = {value_of(overlay.base_version)}",
        f"base-wheel = {value_of(str(overlay.base_wheel))}",
        *([f"below = {value_of(overlay.below)}"] if overlay.below else []),
        *_listed("files", files),
        *_listed("removes", removes),
    ]


def _listed(key: str, items: list[str]) -> list[str]:
    return [f"{key} = [", *(f"  {item}," for item in items), "]"] if items else []


def _counts_out(counts: tuple[tuple[str, Counts], ...]) -> Mapping[str, str]:
    return {gpu: counts_text(each) for gpu, each in counts}


def _file_out(item: FileEvidence) -> str:
    entries = [entry_text(entry) for entry in item.entries]
    return inline({"path": item.path, "counts": _counts_out(item.counts), "entries": entries})
