"""Overlays: files laid over a locked distribution, with the digest of whatever they replace or remove.

* Where a wheel has exactly one top-level import package P, and the overlay folder has no entry named P and no
  ``*.dist-info``, the overlay's paths are relative to P; else they are relative to site-packages.
* *merge*: files that are not named stay. *replace*: the distribution's files become exactly the folder's;
  its ``*.dist-info`` stays unless the folder has its own.
* Pure Python is told by bytes: ELF (cubins too), fatbins, static libraries and bytecode of another Python
  refuse. ``__pycache__`` is left out; bytecode without its source is kept and named.
* A base file whose digest is not the one in the previous lock has moved under the patch: E-OVERLAY-BASE.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from envbundle.errors import HostError, UserInputError, VerdictError
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.lock import LockedOverlay, OverlayFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envbundle.host.folder import FileSource
    from envbundle.spec.manifest import Overlay

    from .contents import Member, WheelScan

_ELF, _EM_CUDA = b"\x7fELF", 190
_FATBIN, _ARCHIVE = b"\x50\xed\x55\xba", b"!<arch>\n"
# The first two bytes of a .pyc, little-endian, per Python: Include/internal/pycore_magic_number.h and the
# comment table of importlib/_bootstrap_external.py.
_PYC_MAGIC = {"3.10": 3439, "3.11": 3495, "3.12": 3531, "3.13": 3571, "3.14": 3627}


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The locked distribution that an overlay lies over."""

    scan: WheelScan
    wheel: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One file of an overlay folder, by its path there."""

    sha256: Digest
    size: int
    mode: int


def read_overlay(
    source: FileSource, overlay: Overlay, base: Base, *, python: str, previous: LockedOverlay | None = None
) -> tuple[LockedOverlay, tuple[Finding, ...]]:
    """Read an overlay and return its locked form with notes.

    ``source`` reads the overlay's folder; ``python`` is the target's ``3.N``.
    ``previous`` is the same overlay in the previous lock, None to accept a base that moved. Raises
    ``UserInputError``: E-OVERLAY-FOLDER, E-OVERLAY-LINK, E-OVERLAY-FILE, E-OVERLAY-REMOVE;
    ``VerdictError``: E-OVERLAY-BASE, E-OVERLAY-NOT-PURE; each with all of its kind.
    """
    _check_pin(overlay, base.scan)
    files = _read_folder(source, overlay, python)
    site = base.scan.site_files
    prefix = _prefix(base.scan, files)
    placed = {prefix + path: found for path, found in files.items()}
    removes = _removed(overlay, site, prefix)
    if overlay.mode == "replace":
        own_info = any(_is_metadata(path) for path in placed)
        kept = {path for path in site if _is_record(path) or (_is_metadata(path) and not own_info)}
        removes |= set(site) - set(placed) - kept
    both = sorted(removes & set(placed))
    if both:
        raise UserInputError(
            "E-OVERLAY-REMOVE",
            f"{overlay.path}: {both[0]}",
            expected="a file that is replaced or removed",
            found="both",
        )
    locked = LockedOverlay(
        distribution=overlay.distribution,
        path=overlay.path,
        mode=overlay.mode,
        base_version=base.scan.version,
        base_wheel=base.wheel,
        below=prefix,
        files=tuple(
            OverlayFile(
                path=path,
                sha256=found.sha256,
                size=found.size,
                mode=found.mode,
                replaces=site[path].sha256 if path in site else None,
            )
            for path, found in sorted(placed.items())
        ),
        removes=tuple((path, site[path].sha256) for path in sorted(removes)),
    )
    if previous is not None:
        _check_base(overlay, previous, site, base.scan)
    return locked, tuple(_sourceless(overlay, placed, site, removes))


def overlay_site_prefix(scan: WheelScan, entries: Iterable[str]) -> str:
    """Return ``"P/"`` where overlay paths are relative to the package P, else ``""``; see the module.

    ``entries`` are the first components of the overlay folder's paths.
    """
    tops = {path.split("/")[0]: "/" in path for path in scan.site_files if not _is_metadata(path)}
    tops = {top: folder for top, folder in tops.items() if not top.endswith(".libs") and top != "__pycache__"}
    if len(tops) != 1:
        return ""
    (package, is_folder), *_ = tops.items()
    names = set(entries)
    if not is_folder or package in names or any(name.endswith(".dist-info") for name in names):
        return ""
    return package + "/"


def _prefix(scan: WheelScan, files: Mapping[str, _Found]) -> str:
    return overlay_site_prefix(scan, {path.split("/")[0] for path in files})


def _is_metadata(path: str) -> bool:
    return path.split("/", maxsplit=1)[0].endswith(".dist-info")


def _is_record(path: str) -> bool:
    """Whether a path is RECORD, which installing writes anew and without which nobody owns the files."""
    return _is_metadata(path) and path.endswith(".dist-info/RECORD")


def _check_pin(overlay: Overlay, scan: WheelScan) -> None:
    if overlay.base is not None and not SpecifierSet(f"=={overlay.base}").contains(
        scan.version, prereleases=True
    ):
        raise VerdictError(
            "E-OVERLAY-BASE",
            f"overlay {overlay.path}",
            expected=f"{overlay.distribution} {overlay.base}, for which it was made",
            found=f"{scan.version} locked",
            hint="pin that version in [resolve], or look the patch through and change `base`",
        )


_FOLDER_FAULTS = {
    "E-SYMLINK": ("E-OVERLAY-LINK", "put a copy of the file in its place"),
    "E-NOT-A-FILE": ("E-OVERLAY-FILE", "take it out of the overlay"),
    "E-NOT-FOUND": ("E-OVERLAY-FOLDER", "the path is relative to the manifest"),
}


def _read_folder(source: FileSource, overlay: Overlay, python: str) -> dict[str, _Found]:
    """Return the folder's files by path; refuse what may not be there."""
    try:
        listed = [file for file in source.files() if "__pycache__" not in file.path.split("/")]
        read = [(file, *_hash(source.blocks(file.path))) for file in listed]
    except HostError as fault:
        if fault.code not in _FOLDER_FAULTS:
            raise
        code, hint = _FOLDER_FAULTS[fault.code]
        if fault.code == "E-NOT-FOUND" and not fault.subject.endswith(overlay.path):
            code, hint = _FOLDER_FAULTS["E-SYMLINK"]
        raise UserInputError(
            code,
            f"overlay {overlay.path}: {fault.subject}",
            expected=fault.expected,
            found=fault.found,
            hint=hint,
        ) from fault
    impure: list[Finding] = []
    files: dict[str, _Found] = {}
    for file, digest, head in read:
        subject = f"{overlay.path}/{file.path}"
        why = _impure(file.path, head, python)
        if why:
            impure.append(
                _finding("E-OVERLAY-NOT-PURE", subject, f"pure Python for {python}", why, _impure_hint(why))
            )
        if _is_record(file.path):
            raise UserInputError(
                "E-OVERLAY-FILE",
                subject,
                expected="no RECORD",
                found="one",
                hint="installing writes a truthful one",
            )
        files[file.path] = _Found(sha256=digest, size=file.size, mode=0o755 if file.mode & 0o111 else 0o644)
    if impure:
        raise VerdictError.of(impure)
    return files


def _hash(blocks: Iterable[bytes]) -> tuple[Digest, bytes]:
    """Return the digest of a file's blocks and its first bytes."""
    state, head = hashlib.sha256(), b""
    for block in blocks:
        head = head or bytes(block[:64])
        state.update(block)
    return Digest(state.hexdigest()), head


def _impure(path: str, head: bytes, python: str) -> str:
    """Say what a file's first bytes are if they are not those of pure Python, else ''."""
    if head[:4] == _ELF:
        machine = int.from_bytes(head[18:20], "little")
        return "a cubin" if machine == _EM_CUDA else "ELF"
    if head[:4] == _FATBIN:
        return "a fatbin"
    if head[:8] == _ARCHIVE:
        return "a static library"
    if path.endswith(".pyc"):
        wanted = _PYC_MAGIC.get(python)
        magic = int.from_bytes(head[:2], "little")
        if head[2:4] != b"\r\n" or (wanted is not None and magic != wanted):
            made = next((name for name, number in _PYC_MAGIC.items() if number == magic), None)
            return f"bytecode of Python {made}" if made else f"bytecode of another Python (magic {magic})"
    return ""


def _impure_hint(why: str) -> str:
    if why.startswith("bytecode"):
        return "put the source there, or compile it with the target's Python"
    return "compiled code belongs into a wheel, where it is judged for the GPU: use [package.NAME.build]"


def _removed(overlay: Overlay, site: Mapping[str, Member], prefix: str) -> set[str]:
    """Return the site-packages paths that ``remove`` names, folders as all files below them."""
    removes: set[str] = set()
    wrong = []
    for path in overlay.remove:
        for candidate in dict.fromkeys((prefix + path, path)):
            named = {
                name for name in site if name == candidate or name.startswith(candidate.rstrip("/") + "/")
            }
            if named and any(map(_is_record, named)):
                subject = f"{overlay.path}: {path}"
                hint = "installing writes a truthful one: name the files themselves"
                wrong.append(_finding("E-OVERLAY-REMOVE", subject, "RECORD to stay", "its removal", hint))
                break
            if named:
                removes |= named
                break
        else:
            near = get_close_matches(prefix + path, site, n=1)
            hint = f"did you mean {near[0].removeprefix(prefix)}?" if near else ""
            wrong.append(
                _finding(
                    "E-OVERLAY-REMOVE",
                    f"{overlay.path}: {path}",
                    f"a file of {overlay.distribution}",
                    "none",
                    hint,
                )
            )
    if wrong:
        raise UserInputError.of(wrong)
    return removes


def _check_base(
    overlay: Overlay, previous: LockedOverlay, site: Mapping[str, Member], scan: WheelScan
) -> None:
    """Refuse where a file that the patch was made against is no longer what it was."""
    wanted: dict[str, Digest | None] = {item.path: item.replaces for item in previous.files}
    wanted.update(previous.removes)
    moved = []
    for path, digest in sorted(wanted.items()):
        found = site[path].sha256 if path in site else None
        if found != digest:
            moved.append(
                _finding(
                    "E-OVERLAY-BASE",
                    f"overlay {overlay.path}: {path}",
                    f"{digest or 'no such file'} ({overlay.distribution} {previous.base_version})",
                    f"{found or 'no such file'} ({scan.version})",
                    "look whether the patch still fits, then run "
                    f"`envbundle lock --upgrade-package {overlay.distribution}`",
                )
            )
    if moved:
        raise VerdictError.of(moved)


def _sourceless(
    overlay: Overlay, placed: Mapping[str, _Found], site: Mapping[str, Member], removes: set[str]
) -> Iterable[Finding]:
    for path in sorted(placed):
        source = path[:-1]
        if path.endswith(".pyc") and source not in placed and (source not in site or source in removes):
            yield Finding(
                code="N-SOURCELESS-PYC",
                severity="note",
                subject=f"{overlay.path}: {path}",
                found="bytecode without its source",
                hint="kept as it is; it runs on this Python only",
            )


def _finding(code: str, subject: str, expected: str, found: str, hint: str = "") -> Finding:
    return Finding(code=code, severity="error", subject=subject, expected=expected, found=found, hint=hint)
