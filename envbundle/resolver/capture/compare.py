"""One distribution against its published wheel, and all of them together: what differs, and whose bytes won.

* A file that differs from its own wheel but equals what another distribution's wheel holds there is no patch:
  the path is contested and the other one won.
* Scripts are compared without their first line, which every installation writes anew.
* What installers write beside a wheel's files (``INSTALLER``, ``RECORD`` ...) and bytecode never differ.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbundle.host.files import read_bounded

from .distributions import is_installers
from .scripts import MAX_SCRIPT, as_packed, body_of, leaves_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .distributions import Installed
    from .inventory import File, Inventory
    from .published import PublishedWheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script of ``bin``: the sha256 (hex) of what a wheel would hold and of its body, and its interpreter.

    ``outside`` is the Python outside the environment that its first line names, or ''.
    """

    packed: str
    body: str
    size: int
    outside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What is on the disk: digests (hex) by path, and scripts read more closely.

    ``restored`` holds the original bytes of files that envbundle changed when it installed them, and that
    nobody changed since; ``written`` are the scripts of entry points that it wrote.
    """

    inventory: Inventory
    digests: Mapping[str, str]
    scripts: Mapping[str, Script]
    restored: Mapping[str, bytes] = field(default_factory=dict)
    written: frozenset[str] = frozenset()

    def packed(self, path: str) -> str | None:
        """Return the digest of a path as a bundle holds it; None where there is no such file."""
        restored = self.restored.get(path)
        if restored is not None:
            return hashlib.sha256(restored).hexdigest()
        script = self.scripts.get(path)
        return script.packed if script is not None else self.digests.get(path)


@dataclass(slots=True, kw_only=True)
class Difference:
    """How the disk differs from one published wheel; all are paths below the prefix, sorted.

    ``elsewhere`` maps a path whose bytes are another distribution's to that one's name.
    """

    wheel: PublishedWheel
    same: int = 0
    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of files compared."""
        return self.same + len(self.changed) + len(self.missing) + len(self.elsewhere)

    @property
    def differing(self) -> int:
        """The number of files that are not as published."""
        return len(self.changed) + len(self.missing)


def read_scripts(inventory: Inventory, digests: Mapping[str, str]) -> dict[str, Script]:
    """Read the scripts of ``bin``: files that begin with ``#!``."""
    found = {}
    for path, file in inventory.files.items():
        if not path.startswith("bin/") or file.size > MAX_SCRIPT or file.size < 2:
            continue
        data = script_bytes(file)
        if not data.startswith(b"#!") or b"\0" in data[:256]:
            continue
        packed = as_packed(data, inventory.prefixes)
        found[path] = Script(
            packed=digests[path] if packed is data else hashlib.sha256(packed).hexdigest(),
            body=hashlib.sha256(body_of(data)).hexdigest(),
            size=len(packed),
            outside=leaves_environment(data, inventory.prefixes),
        )
    return found


def script_bytes(file: File) -> bytes:
    """Return the bytes of a small file; raises ``HostError``."""
    from pathlib import Path  # noqa: PLC0415 - for the few scripts alone

    return read_bounded(Path(file.place), MAX_SCRIPT)


def is_made_anew(path: str) -> bool:
    """Say whether a file of a wheel is written anew by every installation, so that it cannot differ."""
    return is_installers(path) or (path.endswith(".pyc") and "/__pycache__/" in path)


def compare(
    wheel: PublishedWheel, disk: Disk, member_body: Callable[[PublishedWheel, str], str | None]
) -> Difference:
    """Compare every file of a wheel with the disk.

    ``member_body`` returns the sha256 of a script's body in the wheel, for scripts whose first line an
    installer replaced by other rules than ours.
    """
    difference = Difference(wheel=wheel)
    digests = disk.digests
    headers = f"include/site/python{disk.inventory.python}/"
    for path, (wanted, _, _) in wheel.files.items():
        found = digests.get(path)
        if found == wanted:
            difference.same += 1
        elif (path.endswith(".pyc") and "/__pycache__/" in path) or (
            ".dist-info/" in path and is_installers(path)
        ):
            continue
        elif path.startswith("bin/") and path[4:] in wheel.scripts:
            continue  # the entry point's script took its place
        elif found is None:
            # Installers do not agree on where headers go.
            if not path.startswith(headers):
                difference.missing.append(path)
        elif disk.packed(path) == wanted or (
            path in disk.scripts and member_body(wheel, path) == disk.scripts[path].body
        ):
            difference.same += 1
        else:
            difference.changed.append(path)
    difference.changed.sort()
    difference.missing.sort()
    return difference


def settle_contests(differences: Mapping[str, Difference], disk: Disk) -> None:
    """Move what another distribution's wheel explains from ``changed`` to ``elsewhere``."""
    claims: dict[str, list[tuple[str, str]]] = {}
    wanted: set[str] = {path for one in differences.values() for path in one.changed}
    for name, difference in differences.items():
        for path in wanted & difference.wheel.files.keys():
            claims.setdefault(path, []).append((name, difference.wheel.files[path][0]))
    for name, difference in differences.items():
        kept = []
        for path in difference.changed:
            found = disk.digests.get(path)
            other = next((who for who, digest in claims[path] if who != name and digest == found), None)
            if other is None:
                kept.append(path)
            else:
                difference.elsewhere[path] = other
        difference.changed = kept


def fits_record(one: Installed, paths: Sequence[str], disk: Disk) -> bool:
    """Say whether every one of ``paths`` is as the distribution's own RECORD promises."""
    from .distributions import record_hash  # noqa: PLC0415

    record = one.record or {}
    return all(
        path in record and path in disk.digests and record[path] == record_hash(disk.digests[path])
        for path in paths
    )
