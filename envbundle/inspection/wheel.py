"""Wheels: opened from a seekable stream, checked whole before anything is taken out.

* Name and version of file name, dist-info directory and METADATA must agree (E-WHEEL-NAME).
* RECORD and the members must name the same files, each with a hash and the right size (E-RECORD); the
  hashes are compared while the bytes go by (E-RECORD-HASH).
* Every member gets the place of its install scheme: ``purelib/...`` or ``platlib/...`` for the root by
  Root-Is-Purelib, and ``scripts``, ``headers``, ``data`` from ``.data``. Two members may not get one place.
* Nothing is extracted and no temporary file is made.

Binary distribution format (PEP 427), recording installed projects (PEP 376, 627).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envbundle.errors import IntegrityError
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.names import RelPath, normalise_name

from .metadata import (
    CoreMetadata,
    EntryPoint,
    RecordRow,
    contained,
    read_entry_points,
    read_metadata,
    read_record,
    read_wheel_file,
)
from .scan import scan_file, worth_scanning
from .zipdir import Limits, MemberStream, ZipEntry, read_directory, read_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envbundle.spec.coverage import FileScan

SCHEMES = ("purelib", "platlib", "scripts", "headers", "data")
DEFAULT_LIMITS = Limits()
_UNRECORDED = ("RECORD.jws", "RECORD.p7s")
_HEAD = 4096
_IN_MEMORY = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelMember:
    """One file of a wheel.

    ``path`` is ``<scheme>/<relative>``; ``name`` the member's name in the zip; ``mode`` 0o755 or 0o644, as
    an installer sets it; ``promise`` what RECORD says of it, None for RECORD itself and its signatures.
    """

    path: RelPath
    name: str
    size: int
    crc: int
    mode: int
    promise: RecordRow | None
    entry: ZipEntry

    @property
    def scheme(self) -> str:
        """The install scheme's key: the first component of ``path``."""
        return self.path.partition("/")[0]

    @property
    def digest(self) -> Digest | None:
        """The sha256 that RECORD promises, where it is one."""
        promise = self.promise
        return Digest(promise.hex) if promise is not None and promise.algorithm == "sha256" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelContents:
    """All that a wheel says of itself, checked. ``tags`` are those of the file name, single ones.

    ``members`` stand in the order of their bytes; directories are left out. ``name`` is normalised,
    ``version`` as METADATA writes it. ``build`` is the build tag, '' where there is none.
    """

    filename: str
    name: str
    version: str
    build: str
    tags: frozenset[str]
    wheel_tags: tuple[str, ...]
    root_is_purelib: bool
    dist_info: str
    metadata: CoreMetadata
    entry_points: tuple[EntryPoint, ...]
    members: tuple[WheelMember, ...]
    findings: tuple[Finding, ...] = ()
    by_name: dict[str, WheelMember] = field(default_factory=dict, repr=False, compare=False)

    @property
    def root_scheme(self) -> str:
        """``purelib`` or ``platlib``."""
        return "purelib" if self.root_is_purelib else "platlib"

    @property
    def plain_size(self) -> int:
        """Bytes of all members together."""
        return sum(member.size for member in self.members)


def read_wheel(stream: BinaryIO, filename: str, *, limits: Limits = DEFAULT_LIMITS) -> WheelContents:
    """Read and check a wheel's directory and metadata; file contents are not read.

    ``stream`` is seekable; ``filename`` is the wheel's own name, which carries name, version and tags.
    Raises ``IntegrityError`` with the codes of the module's rules, of ``zipdir`` and of ``metadata``.
    """
    name, version, build, tags = _filename(filename)
    entries = read_directory(stream, filename, limits)
    info = _dist_info(entries, filename, name, version)
    named = {entry.name: entry for entry in entries}

    def text(file: str, *, needed: bool = True) -> bytes | None:
        entry = named.get(f"{info}/{file}")
        if entry is None:
            if needed:
                raise _fault("E-WHEEL-METADATA", filename, f"{info}/{file}", "no such member")
            return None
        if entry.size > limits.metadata_size:
            subject = f"{filename}: {entry.name}"
            raise _fault("E-SIZE", subject, f"at most {limits.metadata_size} bytes", str(entry.size))
        return b"".join(read_pieces(MemberStream(stream, entry, filename, rewinds=False)))

    metadata = read_metadata(text("METADATA") or b"", filename)
    if not _same(metadata.name, metadata.version, name, version):
        found = f"{metadata.name} {metadata.version} in METADATA"
        raise _fault("E-WHEEL-NAME", filename, f"{name} {version}", found)
    purelib, wheel_tags = read_wheel_file(text("WHEEL") or b"", filename)
    points = text("entry_points.txt", needed=False)
    record = read_record(text("RECORD") or b"", filename)
    _compare(entries, record, info, filename)
    members = _members(entries, record, filename, "purelib" if purelib else "platlib")
    return WheelContents(
        filename=filename,
        name=name,
        version=metadata.version,
        build=build,
        tags=tags,
        wheel_tags=wheel_tags,
        root_is_purelib=purelib,
        dist_info=info,
        metadata=metadata,
        entry_points=() if points is None else read_entry_points(points, f"{filename}: entry_points.txt"),
        members=members,
        findings=_notices(filename, tags, wheel_tags, entries),
        by_name={member.name: member for member in members},
    )


def open_member(stream: BinaryIO, contents: WheelContents, member: WheelMember) -> MemberStream:
    """Return one member as a seekable stream in bounded memory."""
    return MemberStream(stream, member.entry, contents.filename)


def read_member(stream: BinaryIO, contents: WheelContents, name: str, *, limit: int = 1 << 26) -> bytes:
    """Return the bytes of the member ``name``, compared with RECORD; raises ``IntegrityError``."""
    member = contents.by_name.get(name)
    if member is None:
        raise _fault("E-WHEEL-METADATA", contents.filename, name, "no such member")
    if member.size > limit:
        subject = f"{contents.filename}: {name}"
        raise _fault("E-SIZE", subject, f"at most {limit} bytes", str(member.size))
    return b"".join(_checked(stream, contents, member))


def iter_members(
    stream: BinaryIO, contents: WheelContents, members: Iterable[WheelMember] | None = None
) -> Iterator[tuple[WheelMember, Iterator[bytes]]]:
    """Yield each member with its bytes in pieces of at most 1 MiB, in the order of the archive.

    ``members`` picks some, in another order. The hash is compared when the pieces are at their end: use
    nothing of a member before its iterator is exhausted. What a caller leaves unread is read here. Raises
    ``IntegrityError`` (E-RECORD-HASH, E-SIZE, E-WHEEL-ZIP).
    """
    for member in contents.members if members is None else members:
        pieces = _checked(stream, contents, member)
        yield member, pieces
        for _ in pieces:
            pass


def scan_wheel(
    stream: BinaryIO, contents: WheelContents, *, names: bool = False, sections: bool = True
) -> tuple[FileScan, ...]:
    """Scan every member that is an ELF file or shows GPU code; each is inflated once, in bounded memory.

    ``names`` collects names of kernels. The scans are named by the members' names. Damage to GPU code is a
    finding of the scan; a damaged archive raises ``IntegrityError``.
    """
    scans = []
    for member in contents.members:
        if not member.size:
            continue
        opened = MemberStream(stream, member.entry, contents.filename)
        if not worth_scanning(member.name, opened.read(_HEAD)):
            continue
        scan = scan_member(opened, member, names=names, sections=sections)
        if scan.kind != "other" or scan.has_gpu_code:
            scans.append(scan)
    return tuple(scans)


def scan_member(
    opened: MemberStream, member: WheelMember, *, names: bool = False, sections: bool = True
) -> FileScan:
    """Scan one member to its end: a small one from memory, as going back in a stream costs inflating."""
    opened.seek(0)
    source: Any = b"".join(read_pieces(opened)) if member.size <= _IN_MEMORY else opened
    scan = scan_file(member.name, source, size=member.size, names=names, every_section=sections)
    opened.drain()
    return scan


def _checked(stream: BinaryIO, contents: WheelContents, member: WheelMember) -> Iterator[bytes]:
    promise = member.promise
    hasher = hashlib.new(promise.algorithm) if promise is not None else None
    for piece in read_pieces(MemberStream(stream, member.entry, contents.filename, rewinds=False)):
        if hasher is not None:
            hasher.update(piece)
        yield piece
    if hasher is not None and promise is not None:
        compare_hash(contents, member, promise, hasher.hexdigest())


def compare_hash(contents: WheelContents, member: WheelMember, promise: RecordRow, found: str) -> None:
    """Raise ``IntegrityError`` (E-RECORD-HASH) if a member's hash is not the promised one."""
    if found != promise.hex:
        raise IntegrityError(
            "E-RECORD-HASH",
            f"{contents.filename}: {ascii(member.name)[1:-1]}",
            expected=f"{promise.algorithm}:{promise.hex}",
            found=f"{promise.algorithm}:{found}",
            hint="the wheel contradicts its own RECORD: fetch it again, from whom you trust",
        )


def _fault(code: str, subject: str, expected: str, found: str) -> IntegrityError:
    return IntegrityError(code, subject, expected=expected, found=found)


def _filename(filename: str) -> tuple[str, str, str, frozenset[str]]:
    try:
        name, version, build, tags = parse_wheel_filename(filename)
    except InvalidWheelFilename as fault:
        subject = ascii(filename)[1:-1][:300]
        raise _fault("E-WHEEL-NAME", subject, "name-version-tags.whl", str(fault)[:200]) from fault
    return (
        normalise_name(name),
        str(version),
        "".join(str(part) for part in build),
        frozenset(str(tag) for tag in tags),
    )


def _same(name: str, version: str, wanted_name: str, wanted_version: str) -> bool:
    try:
        return canonicalize_name(name) == wanted_name and Version(version) == Version(wanted_version)
    except InvalidVersion:
        return False


def _dist_info(entries: tuple[ZipEntry, ...], filename: str, name: str, version: str) -> str:
    """Return the one dist-info directory, which must be of this distribution."""
    tops = {entry.name.partition("/")[0] for entry in entries if "/" in entry.name}
    infos = sorted(top for top in tops if top.endswith(".dist-info"))
    if len(infos) != 1:
        found = ", ".join(ascii(info) for info in infos)[:200] or "none"
        raise _fault("E-WHEEL-METADATA", filename, "one dist-info directory", found)
    for top in infos + sorted(top for top in tops if top.endswith(".data")):
        own_name, _, own_version = top.rpartition(".")[0].partition("-")
        spellings = (own_version, own_version.replace("_", "+", 1))  # some writers escape the local part
        if not any(_same(own_name, spelling, name, version) for spelling in spellings):
            raise _fault("E-WHEEL-NAME", filename, f"{name} {version}", ascii(top)[:200])
    return infos[0]


def _compare(entries: tuple[ZipEntry, ...], record: dict[str, RecordRow], info: str, filename: str) -> None:
    """RECORD and the archive must name the same files, with hashes and sizes; all faults at once."""
    findings: list[Finding] = []

    def fault(path: str, expected: str, found: str) -> None:
        if len(findings) < 50:
            subject = f"{filename}: {ascii(path)[1:-1]}"
            findings.append(
                Finding(code="E-RECORD", severity="error", subject=subject, expected=expected, found=found)
            )

    files = {entry.name: entry for entry in entries if not entry.is_dir}
    unhashed = {f"{info}/RECORD", *(f"{info}/{name}" for name in _UNRECORDED)}
    for name, entry in files.items():
        row = record.get(name)
        if row is None:
            if name not in unhashed:
                fault(name, "a line in RECORD", "none")
        elif name not in unhashed and not row.algorithm:
            fault(name, "a hash in RECORD", "none")
        elif row.size is not None and row.size != entry.size:
            fault(name, f"{row.size} bytes by RECORD", f"{entry.size}")
    for path in record:
        if path not in files:
            fault(path, "a member of the archive, as RECORD lists it", "none")
    if findings:
        raise IntegrityError.of(findings)


def _members(
    entries: tuple[ZipEntry, ...], record: dict[str, RecordRow], filename: str, root: str
) -> tuple[WheelMember, ...]:
    members: list[WheelMember] = []
    places: dict[str, str] = {}
    folders: dict[str, str] = {}
    for entry in entries:
        contained(entry.name.rstrip("/") if entry.is_dir else entry.name, filename)
        if entry.is_dir:
            continue
        path = _place(entry.name, root, filename)
        site = path if not path.startswith(("purelib/", "platlib/")) else "site/" + path.partition("/")[2]
        clash = places.get(site) or folders.get(site)
        parent = site.rpartition("/")[0]
        while parent and not clash:
            clash = places.get(parent)
            folders.setdefault(parent, entry.name)
            parent = parent.rpartition("/")[0]
        if clash:
            found = f"{ascii(clash)[:150]} and {ascii(entry.name)[:150]}"
            raise _fault("E-WHEEL-DUPLICATE", filename, "one member a place", found)
        places[site] = entry.name
        script = path.startswith("scripts/")
        promise = record.get(entry.name)
        members.append(
            WheelMember(
                path=path,
                name=entry.name,
                size=entry.size,
                crc=entry.crc,
                mode=0o755 if script or entry.mode & 0o111 else 0o644,
                promise=promise if promise is not None and promise.algorithm else None,
                entry=entry,
            )
        )
    return tuple(members)


def _place(name: str, root: str, filename: str) -> RelPath:
    """Return where an installer puts the member: ``<scheme>/<relative>``."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data") or not rest:
        return contained(f"{root}/{name}", filename)
    scheme, _, path = rest.partition("/")
    if scheme not in SCHEMES or not path:
        subject = f"{filename}: {ascii(name)[1:-1]}"
        raise _fault("E-WHEEL-SCHEME", subject, ", ".join(SCHEMES), ascii(scheme)[:80])
    return contained(f"{scheme}/{path}", filename)


def _notices(
    filename: str, tags: frozenset[str], wheel_tags: tuple[str, ...], entries: tuple[ZipEntry, ...]
) -> tuple[Finding, ...]:
    findings = []
    if wheel_tags and frozenset(wheel_tags) != tags:
        findings.append(
            Finding(
                code="N-WHEEL-TAGS",
                severity="note",
                subject=filename,
                expected=", ".join(sorted(tags)),
                found=", ".join(sorted(wheel_tags)) + " in WHEEL",
                hint="the file was renamed after it was built; its file name is what installers go by",
            )
        )
    privileged = [entry.name for entry in entries if entry.mode & 0o6000]
    if privileged:
        findings.append(
            Finding(
                code="W-PRIV-BITS",
                severity="warning",
                subject=f"{filename}: {ascii(privileged[0])[1:-1]}",
                expected="no setuid or setgid bits",
                found=f"{len(privileged)} files with them",
                hint="the bits are dropped",
            )
        )
    return tuple(findings)
