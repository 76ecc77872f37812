"""``diff``: two environments, locks, bundles or receipts, in any pairing, by what both of them know.

* Distributions are compared by version and, where both sides know it, by the wheel's sha256.
* Files are compared by installed path, digest and x bit where both sides know files; scripts as a wheel holds
  them. What every installation writes for its own place (RECORD, activate scripts, bytecode) is left out, and
  so is the script of an entry point that one side writes only when it is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from envbundle.errors import UserInputError
from envbundle.host.files import read_bounded
from envbundle.resolver.capture.compare import Disk, is_made_anew, read_scripts
from envbundle.resolver.capture.distributions import read_distributions
from envbundle.resolver.capture.hashing import hash_files
from envbundle.resolver.capture.inventory import is_environment, python_of, take_inventory
from envbundle.resolver.capture.receipts import read_own
from envbundle.spec.layer import installed_path
from envbundle.spec.lock_text import MAX_LOCK, parse_lock
from envbundle.spec.receipt import RECEIPT_FOLDER, Receipt
from envbundle.store.bundle import parse_descriptor, read_bundle
from envbundle.store.layout import DirectoryStore
from envbundle.store.read import read_layer

from .stores import choose_bundle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from envbundle.spec.descriptor import Content
    from envbundle.spec.layer import Layer
    from envbundle.spec.lock import Lock

Kind = Literal["environment", "lock", "bundle", "receipt"]
_MAX_RECEIPT = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two. ``files`` maps installed paths to (sha256 as hex, executable); None where unknown.

    ``distributions`` maps a name to (version, the wheel's sha256 or ''); ``generated`` are scripts of entry
    points.
    """

    kind: Kind
    distributions: Mapping[str, tuple[str, str]] | None
    files: Mapping[str, tuple[str, bool]] | None = None
    generated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Names that only one side has, and those that both have otherwise, as (name, there, here)."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[tuple[str, str, str], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.removed or self.changed)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": [{"name": name, "from": old, "to": new} for name, old, new in self.changed],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffAnswer:
    """How two things differ; ``files`` is None where one side knows no files."""

    kinds: tuple[Kind, Kind]
    distributions: Changes | None
    files: Changes | None = None
    compared: int = 0

    @property
    def equal(self) -> bool:
        """Whether nothing that both sides know differs."""
        return all(changes is None or changes.empty for changes in (self.distributions, self.files))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer."""
        return {
            "kinds": list(self.kinds),
            "equal": self.equal,
            "distributions": self.distributions.to_dict() if self.distributions is not None else None,
            "files": self.files.to_dict() if self.files is not None else None,
            "compared": self.compared,
        }


def diff(first: Path, second: Path, *, targets: tuple[str | None, str | None] = (None, None)) -> DiffAnswer:
    """Compare two things; ``targets`` name a bundle where a store holds several.

    Raises ``UserInputError`` (E-DIFF-KIND, E-NOT-FOUND), and what reading either of them raises.
    """
    old, new = (read_side(path, target) for path, target in zip((first, second), targets, strict=True))
    files, compared = None, 0
    if old.files is not None and new.files is not None:
        skipped = (old.generated | new.generated) & (old.files.keys() ^ new.files.keys())
        files = _changes(
            {path: _file_text(*said) for path, said in old.files.items() if path not in skipped},
            {path: _file_text(*said) for path, said in new.files.items() if path not in skipped},
        )
        compared = len((old.files.keys() | new.files.keys()) - skipped)
    distributions = None
    if old.distributions is not None and new.distributions is not None:
        distributions = _distributions(old.distributions, new.distributions)
    return DiffAnswer(kinds=(old.kind, new.kind), distributions=distributions, files=files, compared=compared)


def _distributions(old: Mapping[str, tuple[str, str]], new: Mapping[str, tuple[str, str]]) -> Changes:
    # A wheel's sha256 counts only where both sides know it.
    both = {name for name in old.keys() & new.keys() if old[name][1] and new[name][1]}

    def told(side: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        return {
            name: f"{version} (sha256:{wheel[:12]})" if name in both else version
            for name, (version, wheel) in side.items()
        }

    return _changes(told(old), told(new))


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> Changes:
    return Changes(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple((n, old[n], new[n]) for n in sorted(old.keys() & new.keys()) if old[n] != new[n]),
    )


def _file_text(digest: str, executable: bool) -> str:
    return digest + (" executable" if executable else "")


# --- the four kinds


def read_side(path: Path, target: str | None = None) -> Side:
    """Read one side by what lies at ``path``."""
    if not path.exists():
        raise UserInputError("E-NOT-FOUND", str(path), expected="a file or folder", found="nothing")
    if path.is_dir():
        if (path / "oci-layout").is_file():
            return _bundle(path, target)
        return _environment(path)
    data = read_bounded(path, _MAX_RECEIPT)
    if path.suffix == ".toml":
        return _lock(parse_lock(data[:MAX_LOCK].decode("utf-8", "replace"), filename=str(path)))
    if path.suffix == ".json":
        return _receipt(Receipt.from_bytes(data), path)
    raise UserInputError(
        "E-DIFF-KIND",
        str(path),
        expected="an environment, a lock, a store or a receipt",
        found="another file",
    )


def _lock(lock: Lock) -> Side:
    rows = {one.name: (one.version, one.wheel.sha256.hex) for one in lock.packages}
    return Side(kind="lock", distributions=rows)


def _environment(path: Path) -> Side:
    try:
        inventory = take_inventory(path, python_of(path))
    except UserInputError as fault:
        raise UserInputError(
            "E-DIFF-KIND",
            str(path),
            expected="an environment, a lock, a store or a receipt",
            found="a folder that is neither environment nor store",
        ) from fault
    own = read_own(inventory.root)
    if own is not None:
        inventory.known_as = (own.prefix,)
    digests = hash_files(inventory.files.values())
    disk = Disk(
        inventory=inventory,
        digests=digests,
        scripts=read_scripts(inventory, digests),
        restored=own.restored(digests) if own is not None else {},
    )
    wheels = {one.name: one.wheel.sha256.hex for one in own.lock.packages} if own is not None else {}
    files = {
        name: (disk.packed(name) or "", file.executable)
        for name, file in inventory.files.items()
        if not is_made_anew(name)
    }
    distributions = read_distributions(inventory)
    found = {one.name: (one.version, wheels.get(one.name, "")) for one in distributions}
    generated = frozenset(f"bin/{script}" for one in distributions for script in one.scripts)
    return Side(kind="environment", distributions=found, files=files, generated=generated)


def _receipt(receipt: Receipt, path: Path) -> Side:
    files = {}
    for file in receipt.files:
        digest = file.packed or file.sha256
        written = file.fixer in ("entry-point", "venv", "installer", "bytecode")
        if digest is None or written or is_made_anew(file.path) or is_environment(file.path):
            continue
        files[file.path] = (digest.hex, bool(file.mode & 0o111))
    generated = frozenset(file.path for file in receipt.files if file.fixer == "entry-point")
    own = read_own(str(path.parent.parent)) if path.parent.name == RECEIPT_FOLDER else None
    known = _lock(own.lock).distributions if own is not None else None
    return Side(kind="receipt", distributions=known, files=files, generated=generated)


def _bundle(path: Path, target: str | None) -> Side:
    store = DirectoryStore(path)
    ref = read_bundle(store, choose_bundle(store, target).tag)
    descriptor = parse_descriptor(ref.descriptor)
    layers = [read_layer(store, descriptor, layer) for layer in descriptor.content.layers]
    rows = {
        layer.distribution: (layer.version, layer.wheel.sha256.hex if layer.wheel is not None else "")
        for layer in layers
        if layer.kind == "distribution"
    }
    generated = frozenset(
        f"bin/{entry.relative}" for layer in layers for entry in layer.entries if entry.type == "entry-point"
    )
    files = _provided(descriptor.content, layers)
    return Side(kind="bundle", distributions=rows, files=files, generated=generated)


def _provided(content: Content, layers: Iterable[Layer]) -> dict[str, tuple[str, bool]]:
    """Return the files that a bundle installs, by its own word on who provides what."""
    files: dict[str, tuple[str, bool]] = {}
    for number, layer in enumerate(layers):
        for entry in layer.entries:
            if entry.type != "file" or entry.sha256 is None:
                continue
            path = installed_path(entry.path, python=content.target.python, distribution=layer.distribution)
            if content.provides.get(path, number) != number or is_made_anew(path):
                continue
            files[path] = (entry.sha256.hex, bool(entry.mode & 0o111) or entry.scheme == "scripts")
    return files
