"""What a manifest asks for, read: PEP 508 lines and requirement files, for one target.

* A requirement file may hold requirements, comments, line continuations, ``--hash=sha256:...``, and ``-r``
  and ``-c`` of other files. Any other option is refused with its line: the manifest has its own key for it.
* Markers are evaluated with the target's values. A marker that asks what only a running machine knows
  (``platform_release``, ``platform_version``) is refused, never answered with this machine's value.
* ``./x.whl`` and other bare paths become ``name @ file:...``.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from envbundle.errors import UserInputError
from envbundle.host.files import read_bounded
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.names import normalise_name
from envbundle.spec.text_checks import is_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envbundle.spec.manifest import Resolve
    from envbundle.spec.target import Target

MAX_REQUIREMENT_FILE = 16 * 1024 * 1024
_HASH = re.compile(r"\s--hash=(\S+)")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_COMMENT = re.compile(r"(^|\s)#.*$")
_UNKNOWABLE = re.compile(r"\b(platform_release|platform_version)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One requirement that applies to the target. ``name`` is normalised; ``text``: PEP 508 without marker.

    ``pin`` is the exact version that is asked for (``==`` without wildcard, ``===``), else None; ``url`` is
    set for a direct reference. ``hashes`` are the digests that a requirement file allows, empty for any.
    ``origin`` says where it was written, for messages.
    """

    name: str
    text: str
    origin: str
    pin: str | None = None
    url: str | None = None
    specifier: SpecifierSet = field(default_factory=SpecifierSet)
    extras: tuple[str, ...] = ()
    hashes: tuple[Digest, ...] = ()


def marker_environment(target: Target) -> dict[str, str]:
    """Return the PEP 508 environment of a target; complete, so that nothing of this machine is in it."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{target.python}.0",
        "os_name": "posix",
        "platform_machine": target.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{target.python}.0",
        "python_version": target.python,
        "sys_platform": "linux",
        "extra": "",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFor:
    """All that a target asks for. ``files`` holds the digest of every file read, by its path as written."""

    requirements: tuple[Asked, ...]
    constraints: tuple[Asked, ...]
    files: dict[str, Digest]


def read_asked(resolve: Resolve, folder: Path, target: Target) -> AskedFor:
    """Return what applies to ``target``; paths are relative to ``folder``.

    Raises ``UserInputError``: E-REQUIREMENT for what cannot be read, E-MARKER for a marker that the target
    does not answer; all faults of the manifest's own lines at once.
    """
    reader = _Reader(folder=folder, target=target)
    for position, line in enumerate(resolve.requirements):
        reader.line(line, f"resolve.requirements[{position}]", folder)
    for name in resolve.requirement_files:
        reader.file(folder / name, name)
    for position, line in enumerate(resolve.constraints):
        where = f"resolve.constraints[{position}]"
        if is_file(line):
            reader.file(folder / line, line, constraints=True)
        else:
            reader.line(line, where, folder, constraint=True)
    reader.refuse()
    return AskedFor(
        requirements=tuple(reader.requirements),
        constraints=tuple(reader.constraints),
        files=dict(reader.files),
    )


class _Reader:
    """Collects requirements, constraints and faults."""

    def __init__(self, *, folder: Path, target: Target) -> None:
        self._folder, self._target = folder, target
        self._environment = marker_environment(target)
        self.files: dict[str, Digest] = {}
        self._faults: list[Finding] = []
        self.requirements: list[Asked] = []
        self.constraints: list[Asked] = []

    def refuse(self) -> None:
        """Raise the faults, if any, as one error."""
        if self._faults:
            raise UserInputError.of(self._faults)

    def file(self, path: Path, name: str, *, constraints: bool = False) -> None:
        """Read a requirement file, once; ``name`` is its path as written."""
        if name in self.files:
            return
        data = read_bounded(path, MAX_REQUIREMENT_FILE)
        self.files[name] = Digest.of(data)
        text = data.decode("utf-8-sig", "replace")
        for number, line in _logical_lines(text):
            where = f"{path.name}:{number}"
            option, _, value = (
                line.replace("=", " ", 1).partition(" ") if line[:2] == "--" else line.partition(" ")
            )
            value = value.strip()
            if option in ("-r", "--requirement", "-c", "--constraint"):
                below = posixpath.join(posixpath.dirname(name), value)
                self.file(
                    path.parent / value, below, constraints=constraints or option in ("-c", "--constraint")
                )
            elif line.startswith("-"):
                self._fault(
                    where,
                    expected="requirements, -r or -c",
                    found=ascii(line)[:120],
                    hint="indexes, find-links and the like belong into [resolve] of the manifest",
                )
            else:
                self.line(line, where, path.parent, constraint=constraints)

    def line(self, line: str, where: str, base: Path, *, constraint: bool = False) -> None:
        """Read one requirement."""
        # pip allows several algorithms on one line; only sha256 is of use here.
        stated = [text.lower() for text in _HASH.findall(line)]
        hashes = [Digest(text[7:]) for text in stated if _SHA256.fullmatch(text)]
        if _HASH.search(line) and not hashes:
            self._fault(where, expected="--hash=sha256:<hex>", found=ascii(line)[:120])
            return
        bare = _HASH.sub("", line).strip()
        try:
            requirement = Requirement(_as_reference(bare, base))
        except (InvalidRequirement, InvalidWheelFilename, ValueError) as fault:
            self._fault(
                where,
                expected="a PEP 508 requirement or the path of a wheel",
                found=f"{bare!r}: {fault}"[:300],
            )
            return
        if not self._applies(requirement, where):
            return
        asked = _asked(requirement, where, tuple(hashes))
        (self.constraints if constraint else self.requirements).append(asked)

    def _applies(self, requirement: Requirement, where: str) -> bool:
        if requirement.marker is None:
            return True
        unknowable = _UNKNOWABLE.search(str(requirement.marker))
        if unknowable:
            self._fault(
                where,
                code="E-MARKER",
                expected="a marker that the target answers",
                found=f"{unknowable[1]} in {str(requirement.marker)!r}",
                hint="only a running machine knows it: ask for machine, platform or Python instead",
            )
            return False
        return requirement.marker.evaluate(dict(self._environment))

    def _fault(
        self, where: str, *, expected: str, found: str, hint: str = "", code: str = "E-REQUIREMENT"
    ) -> None:
        self._faults.append(
            Finding(code=code, severity="error", subject=where, expected=expected, found=found, hint=hint)
        )


def _asked(requirement: Requirement, where: str, hashes: tuple[Digest, ...]) -> Asked:
    pin = None
    for one in requirement.specifier:
        if one.operator == "===" or (one.operator == "==" and not one.version.endswith(".*")):
            pin = one.version
    extras = tuple(sorted(requirement.extras))
    bracket = f"[{','.join(extras)}]" if extras else ""
    tail = f" @ {requirement.url}" if requirement.url else str(requirement.specifier)
    return Asked(
        name=normalise_name(requirement.name),
        text=f"{requirement.name}{bracket}{tail}",
        origin=where,
        pin=pin,
        url=requirement.url,
        specifier=requirement.specifier,
        extras=extras,
        hashes=hashes,
    )


def _as_reference(text: str, base: Path) -> str:
    """Return PEP 508 for a line that is a bare path or URL of a wheel; other lines as they are."""
    line, _, marker = text.partition(" ;")
    name, at, place = line.partition(" @ ")
    if not at and (line.startswith((".", "/", "file:")) or line.endswith(".whl")):
        name, place = "", line
    elif not at:
        return text
    place = place.strip()
    if not urlsplit(place).scheme:
        place = (base / place).resolve().as_uri()
    if not name:
        if not place.endswith(".whl"):
            raise ValueError("only wheels can be named by a bare path")
        name = str(parse_wheel_filename(Path(urlsplit(place).path).name.replace("%2B", "+"))[0])
    return f"{name} @ {place}" + (f" ; {marker}" if marker else "")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) without comments, continuations joined, empty ones left out."""
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start or number
        line = joined + (_COMMENT.sub("", raw) if not raw.rstrip().endswith("\\") else raw)
        if line.rstrip().endswith("\\"):
            joined = line.rstrip()[:-1] + " "
            continue
        if line.strip():
            yield start, line.strip()
        joined, start = "", 0
    if joined.strip():
        yield start, joined.strip()


def exact_pins(asked: Iterable[Asked]) -> dict[str, Asked]:
    """Return, by name, those requirements that name one version or one file."""
    return {one.name: one for one in asked if one.pin is not None or one.url is not None}
