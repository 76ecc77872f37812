"""Files of equal layers in other generations of the same prefix, taken instead of written.

* A layer is found again by the digest of its list. Of it a file is taken only if no fixer changed it, its
  mode is the one wanted, and it still is what its receipt recorded: device, inode, size and mtime in ns.
* Best first: a reflink; a hard link, for files that are installed read-only; a copy, which is hashed as it
  is written. Nothing outside the prefix's own generations is ever shared.
* Whatever is not as it should be comes from the store instead, without a word: reuse is never needed.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from envbundle.errors import EnvbundleError, HostError
from envbundle.host.tree import Tree, Written
from envbundle.spec.descriptor import Descriptor
from envbundle.spec.digest import Digest

from .layout import DESCRIPTOR, LAYERS, RECEIPT
from .materialise import check_written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from .materialise import Wanted

Reuse = Literal["auto", "copy"]
_LIMIT = 1 << 30


@dataclass(slots=True)
class OldGeneration:
    """A generation whose files may be taken. ``files[layer digest][path]`` are rows of its receipt."""

    tree: Tree
    device: int
    python: str
    files: dict[Digest, dict[str, dict[str, Any]]]
    can_clone: bool = field(default=True)

    def layer_list(self, digest: Digest) -> bytes | None:
        """Return the bytes of a layer list kept in the generation, if they still have that digest."""
        try:
            data = self.tree.read(f"{LAYERS}/{digest.hex}.json", _LIMIT)
        except EnvbundleError:
            return None
        return data if Digest.of(data) == digest else None

    def close(self) -> None:
        """Give the tree's descriptors back."""
        self.tree.close()


def open_generation(path: Path, wanted: Iterable[Digest]) -> OldGeneration | None:
    """Return what the generation at ``path`` holds of the layers ``wanted``, or None if that is nothing."""
    try:
        tree = Tree(path)
    except HostError:
        return None
    try:
        descriptor = Descriptor.from_bytes(tree.read(DESCRIPTOR, _LIMIT))
        layers = {
            index: ref.list for index, ref in enumerate(descriptor.content.layers) if ref.list in set(wanted)
        }
        receipt = json.loads(tree.read(RECEIPT, _LIMIT)) if layers else {}
        files: dict[Digest, dict[str, dict[str, Any]]] = {}
        for row in receipt.get("files", ()):
            if row.get("source") in layers and row.get("type", "file") == "file" and _untouched(row):
                Digest.parse(row["sha256"])
                files.setdefault(layers[row["source"]], {})[row["path"]] = row
        if files:
            return OldGeneration(
                tree=tree,
                device=receipt["device"],
                python=descriptor.content.target.python,
                files=files,
            )
    except (EnvbundleError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # a damaged generation is not reused
    tree.close()
    return None


def _untouched(row: dict[str, Any]) -> bool:
    return "packed" not in row and row.get("fixer", "") in ("", "bytecode")


class Reuser:
    """Takes files of ``old`` generations (the live one first) into ``tree``."""

    def __init__(
        self, tree: Tree, old: Sequence[OldGeneration], how: Reuse, *, hash_all: bool = False
    ) -> None:
        self._tree, self._old, self._how, self._hash_all = tree, old, how, hash_all
        self.bytes = 0

    def knows(self, layer: Digest) -> bool:
        """Say whether an old generation has files of the layer: its chunks need not be in the store then."""
        return any(layer in old.files for old in self._old)

    def take(self, layer: Digest, wanted: Wanted, *, link: bool) -> Written | None:
        """Make ``wanted`` from an old file and return what it is, or None where none fits.

        ``link`` allows a hard link. The answer's hash is the entry's: recorded when the file was written.
        """
        for old in self._old:
            row = old.files.get(layer, {}).get(wanted.path)
            if row is None or wanted.entry.sha256 is None or row.get("sha256") != str(wanted.entry.sha256):
                continue
            written = self._take(old, row, wanted.path, wanted.mode, link=link)
            if written is None:
                continue
            written = written._replace(sha256=written.sha256 or wanted.entry.sha256.hex)
            if self._hash_all:
                written = written._replace(sha256=self._tree.digest(wanted.path))
            try:
                check_written(wanted.path, wanted.entry, written)
            except EnvbundleError:
                self._tree.remove(wanted.path)
                continue
            self.bytes += written.size
            return written
        return None

    def take_bytecode(self, layer: Digest, path: str, mode: int, *, link: bool) -> tuple[Written, str] | None:
        """Make the bytecode file ``path`` from an old one; return it and its recorded digest."""
        for old in self._old:
            row = old.files.get(layer, {}).get(path)
            if row is None or row.get("fixer") != "bytecode":
                continue
            written = self._take(old, row, path, mode, link=link)
            if written is None:
                continue
            digest = Digest.parse(row["sha256"]).hex
            found = self._tree.digest(path) if self._hash_all else written.sha256 or digest
            if found != digest:
                self._tree.remove(path)
                continue
            self.bytes += written.size
            return written, digest
        return None

    def _take(
        self, old: OldGeneration, row: dict[str, Any], path: str, mode: int, *, link: bool
    ) -> Written | None:
        found = old.tree.stat(path)
        if found is None or not stat.S_ISREG(found.st_mode):
            return None
        known = (old.device, row.get("inode"), row.get("size"), row.get("mtime_ns"))
        if (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) != known:
            return None
        if self._how == "auto":
            if old.can_clone:
                written = self._tree.clone(old.tree, path, path, mode)
                if written is not None:
                    return written
                old.can_clone = False
            if link and stat.S_IMODE(found.st_mode) == mode and not mode & 0o222:
                try:
                    self._tree.link(old.tree, path, path)
                except HostError:  # another device, or as many links as the file system allows
                    pass
                else:
                    return Written(found.st_size, "", found.st_mtime_ns, found.st_ino)
        return self._tree.copy(old.tree, path, path, mode)
