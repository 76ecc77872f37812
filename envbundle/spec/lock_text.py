"""The lock's text form: a PEP 751 file with our own table (docs/format.md, "Lock").

* ``render_lock`` is a function of the value alone: same lock, same bytes. UTF-8, LF, packages by name.
* The standard part is checked by ``packaging.pylock`` both ways; ours, ``[tool.envbundle]``, strictly: a
  field nobody knows or a count that contradicts its verdict refuses the file.
* A wheel's ``path`` is contained in the lock's folder, its ``url`` holds no credentials; one of them is set.
* An unknown ``lock-format`` is refused with what to upgrade, before anything else of ours is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from envbundle.errors import FormatError, UserInputError

from .coverage import Counts, Entry, EntryKind
from .descriptor import Exemption, Origin
from .digest import Digest
from .fields import Fields, read_digest, read_text
from .lock import (
    LOCK_FORMAT,
    Contested,
    DistributionEvidence,
    FileEvidence,
    Lock,
    LockedOverlay,
    LockedPackage,
    LockedWheel,
    OverlayFile,
)
from .names import RelPath, check_version, normalise_name
from .target import Target, check_target_name
from .toml_text import read_toml
from .toml_writer import inline, key_of, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_LOCK = 64 * 1024 * 1024
_ORIGINS = ("published", "built", "installed-tree")
_ENTRY = re.compile(r"([0-9]{1,9}) (sass|ptx|nvvm) (\S+)(?: isa (\S+))? in (.*)", re.DOTALL)
_COUNTS = re.compile(
    r"([a-z-]+): ([0-9]{1,9}) native, ([0-9]{1,9}) jit, ([0-9]{1,9}) missing"
    r"(?:; spare: ([0-9]{1,9}) jit, ([0-9]{1,9}) missing)?"
)

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


def parse_lock(text: str, *, filename: str = "lock") -> Lock:
    """Read a lock's text; ``filename`` stands in messages only.

    Raises ``FormatError``: E-FORMAT for text that is no TOML, no PEP 751 file, or breaks a rule of this
    module; E-FORMAT-VERSION for an unknown ``lock-format``. ``IntegrityError`` (E-PATH) names a path that
    leaves the lock's folder.
    """
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError  # noqa: PLC0415

    document = read_lock_toml(text, filename)
    tool = Fields(document.get("tool", {}), "tool").raw("envbundle", None)
    if tool is None:
        raise FormatError(
            "E-FORMAT",
            "tool.envbundle",
            expected="a lock written by `envbundle lock`",
            found="a pylock of another tool",
        )
    ours = Fields(tool, "tool.envbundle")
    _known_lock_format(ours)
    try:
        Pylock.from_dict(document)
    except PylockUnsupportedVersionError as fault:
        raise FormatError("E-FORMAT-VERSION", "lock-version", expected="1.0", found=str(fault)) from fault
    except PylockValidationError as fault:
        raise FormatError(
            "E-FORMAT", fault.context or "lock", expected="PEP 751", found=str(fault)
        ) from fault
    top = Fields(document, "")
    for name in ("lock-version", "created-by", "environments", "requires-python", "tool"):
        top.raw(name, None)
    packages = top.items("packages", _read_package)
    top.done()
    _once("packages", (package.name for package in packages))
    lock = Lock(
        target=Target.from_dict(ours.raw("target"), ours.path("target")),
        manifest=ours.digest("manifest"),
        tool=ours.text("tool"),
        rules=ours.text("rules"),
        solver=ours.text("solver"),
        packages=packages,
        overlays=ours.items("overlays", _read_overlay, []),
        coverage=ours.items("coverage", _read_coverage, []),
        contested=ours.items("contested", _read_contested, []),
        exemptions=ours.items("exemptions", Exemption.from_dict, []),
        requires=ours.mapping("requires", read_text, {}),
    )
    ours.done()
    for overlay in lock.overlays:
        if lock.package(overlay.distribution) is None:
            raise FormatError(
                "E-FORMAT", ours.path("overlays"), expected="locked distributions", found=overlay.distribution
            )
    return lock


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


def read_lock_toml(text: str, filename: str) -> dict[str, Any]:
    """Return the document of a lock's text; raises ``FormatError`` (E-FORMAT) for what is no TOML."""
    if len(text) > MAX_LOCK:
        raise FormatError(
            "E-FORMAT", filename, expected=f"at most {MAX_LOCK} characters", found=str(len(text))
        )
    try:
        return read_toml(text, filename=filename)
    except UserInputError as fault:
        raise FormatError("E-FORMAT", fault.subject, expected=fault.expected, found=fault.found) from fault


def _known_lock_format(ours: Fields) -> None:
    found = ours.integer("lock-format")
    if found != LOCK_FORMAT:
        newer = found > LOCK_FORMAT
        raise FormatError(
            "E-FORMAT-VERSION",
            ours.path("lock-format"),
            expected=str(LOCK_FORMAT),
            found=str(found),
            hint="upgrade envbundle on this machine: a newer one wrote this lock"
            if newer
            else "run `envbundle lock` again: this envbundle no longer reads that form",
        )


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


def _read_package(value: Any, where: str) -> LockedPackage:
    fields = Fields(value, where)
    name = fields.parsed("name", normalise_name)
    version = fields.parsed("version", check_version)
    index = fields.opt_text("index")
    wheels = fields.items("wheels", _read_wheel)
    if len(wheels) != 1:
        raise FormatError(
            "E-FORMAT", fields.path("wheels"), expected="exactly one wheel", found=str(len(wheels))
        )
    origin = "published"
    tool = fields.raw("tool", None)
    if tool is not None:
        outer = Fields(tool, fields.path("tool"))
        inner = Fields(outer.raw("envbundle"), outer.path("envbundle"))
        origin = inner.choice("origin", _ORIGINS)
        inner.done()
        outer.done()
    fields.done()
    if index is not None:
        _no_credentials(index, fields.path("index"))
    wheel = wheels[0]
    return LockedPackage(
        name=name,
        version=version,
        origin=cast("Origin", origin),
        wheel=LockedWheel(
            filename=wheel.filename,
            sha256=wheel.sha256,
            size=wheel.size,
            url=wheel.url,
            path=wheel.path,
            index=index,
        ),
    )


def _read_wheel(value: Any, where: str) -> LockedWheel:
    fields = Fields(value, where)
    filename = RelPath(fields.text("name"))
    url, path = fields.opt_text("url"), fields.opt_text("path")
    size = fields.integer("size")
    hashes = Fields(fields.raw("hashes"), fields.path("hashes"))
    sha256 = hashes.parsed("sha256", Digest)
    hashes.done()
    fields.done()
    if "/" in filename or not filename.endswith(".whl"):
        raise FormatError(
            "E-FORMAT", fields.path("name"), expected="a wheel's file name", found=ascii(filename)[:80]
        )
    if (url is None) == (path is None):
        raise FormatError("E-FORMAT", where, expected="a url or a path, and not both")
    if url is not None:
        _no_credentials(url, fields.path("url"))
    return LockedWheel(
        filename=str(filename),
        sha256=sha256,
        size=size,
        url=url,
        path=None if path is None else str(RelPath(path)),
    )


def _no_credentials(url: str, where: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError as fault:
        raise FormatError("E-FORMAT", where, expected="a URL", found=str(fault)) from fault
    if parts.scheme not in ("https", "http", "file"):
        raise FormatError(
            "E-FORMAT", where, expected="an https, http or file URL", found=ascii(parts.scheme)[:40]
        )
    if parts.username is not None or parts.password is not None:
        raise FormatError("E-FORMAT", where, expected="a URL without credentials", found="a user name in it")


def _read_overlay(value: Any, where: str) -> LockedOverlay:
    fields = Fields(value, where)
    overlay = LockedOverlay(
        distribution=fields.parsed("distribution", normalise_name),
        path=str(RelPath(fields.text("path"))),
        mode=fields.choice("mode", ("merge", "replace")),
        base_version=fields.parsed("base-version", check_version),
        base_wheel=fields.digest("base-wheel"),
        below=_read_below(fields),
        files=fields.items("files", _read_overlay_file, []),
        removes=fields.items("removes", _read_removed, []),
    )
    fields.done()
    named = [item.path for item in overlay.files] + [path for path, _ in overlay.removes]
    _once(fields.path("files"), named)
    return overlay


def _read_below(fields: Fields) -> str:
    below = fields.text("below", "")
    if below and (not below.endswith("/") or "/" in RelPath(below[:-1])):
        raise FormatError(
            "E-FORMAT", fields.path("below"), expected="a package and a slash", found=ascii(below)[:80]
        )
    return below


def _read_overlay_file(value: Any, where: str) -> OverlayFile:
    fields = Fields(value, where)
    item = OverlayFile(
        path=str(RelPath(fields.text("path"))),
        sha256=fields.digest("sha256"),
        size=fields.integer("size"),
        mode=int(fields.choice("mode", ("644", "755"), "644"), 8),
        replaces=fields.opt_digest("replaces"),
    )
    fields.done()
    return item


def _read_removed(value: Any, where: str) -> tuple[str, Digest]:
    fields = Fields(value, where)
    pair = str(RelPath(fields.text("path"))), fields.digest("sha256")
    fields.done()
    return pair


def _read_contested(value: Any, where: str) -> Contested:
    fields = Fields(value, where)
    contested = Contested(
        path=str(RelPath(fields.text("path"))),
        claims=fields.items("claims", _read_claim),
        winner=fields.parsed("winner", normalise_name),
    )
    fields.done()
    if contested.winner not in [name for name, _ in contested.claims]:
        raise FormatError(
            "E-FORMAT", fields.path("winner"), expected="one of the claimants", found=contested.winner
        )
    return contested


def _read_claim(value: Any, where: str) -> tuple[str, Digest]:
    if not isinstance(value, list) or len(value) != 2:
        raise FormatError("E-FORMAT", where, expected="[distribution, digest]")
    return normalise_name(read_text(value[0], f"{where}[0]")), read_digest(value[1], f"{where}[1]")


def _read_coverage(value: Any, where: str) -> DistributionEvidence:
    fields = Fields(value, where)
    evidence = DistributionEvidence(
        distribution=fields.parsed("distribution", normalise_name),
        counts=_read_all_counts(fields),
        files=fields.items("files", _read_file, []),
    )
    fields.done()
    return evidence


def _read_file(value: Any, where: str) -> FileEvidence:
    fields = Fields(value, where)
    evidence = FileEvidence(
        path=str(RelPath(fields.text("path"))),
        entries=fields.items("entries", _read_entry),
        counts=_read_all_counts(fields),
    )
    fields.done()
    return evidence


def _read_all_counts(fields: Fields) -> tuple[tuple[str, Counts], ...]:
    return tuple(fields.mapping("counts", _read_counts).items())


def _read_counts(value: Any, where: str) -> Counts:
    match = _COUNTS.fullmatch(read_text(value, where))
    if match is None:
        raise FormatError(
            "E-FORMAT", where, expected="VERDICT: N native, N jit, N missing", found=ascii(value)[:80]
        )
    counts = Counts(
        native=int(match[2]),
        jit=int(match[3]),
        missing=int(match[4]),
        unknown=match[1] == "unknown",
        spare_jit=int(match[5] or 0),
        spare_missing=int(match[6] or 0),
    )
    if counts.verdict != match[1]:
        raise FormatError("E-FORMAT", where, expected=f"the verdict {counts.verdict}", found=match[1])
    return counts


def _read_entry(value: Any, where: str) -> Entry:
    match = _ENTRY.fullmatch(read_text(value, where))
    if match is None:
        raise FormatError(
            "E-FORMAT", where, expected="N KIND ARCH [isa N.N] in SECTION", found=ascii(value)[:80]
        )
    return Entry(
        kind=cast("EntryKind", match[2]), arch=match[3], isa=match[4], section=match[5], modules=int(match[1])
    )


def _once(where: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FormatError("E-FORMAT", where, expected="each one once", found=ascii(name)[:200])
        seen.add(name)
