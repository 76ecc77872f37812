"""A small bundle, built by the text of docs/format.md and not by the bundler."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from envbundle.spec.descriptor import Blob, Content, Descriptor, LayerRef
from envbundle.spec.digest import Digest
from envbundle.spec.layer import Layer, LayerEntry, Segment, sort_entries
from envbundle.spec.target import Arch, Target
from envbundle.store.bundle import commit_bundle
from envbundle.store.codec import codec_line, encode

if TYPE_CHECKING:
    from envbundle.store.layout import Store

TARGET = Target(
    name="sm_90", gpus=(Arch("sm_90"),), python="3.12", platform="x86_64-manylinux_2_39", glibc="2.39"
)
SIGNATURES = (b"-----BEGIN SSH SIGNATURE-----\none\n", b"-----BEGIN SSH SIGNATURE-----\ntwo\n")


def target(name: str) -> Target:
    return replace(TARGET, name=name)


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


@dataclass
class Packer:
    """Puts plain bytes into a store and remembers where they stand."""

    store: Store
    blobs: dict[Digest, Blob]

    def put(self, plain: bytes, *, long: bool = False) -> Digest:
        stored, encoding = encode(plain, level=1, long=long)
        digest = Digest.of(plain)
        self.blobs[digest] = Blob(
            blob=self.store.put(stored), size=len(stored), plain_size=len(plain), encoding=encoding
        )
        return digest


def make_layer(packer: Packer, name: str, files: dict[str, bytes], *, piece: int = 4096) -> LayerRef:
    """Pack ``files``: under ``piece`` bytes together in one chunk, larger ones cut into pieces."""
    small = {path: data for path, data in files.items() if 0 < len(data) < piece}
    together = b"".join(small[path] for path in sorted(small))
    chunks: dict[Digest, int] = {}
    entries = [LayerEntry(path="scripts/tool", type="entry-point", mode=0o755, reference="pkg:main")]
    if together:
        chunk = packer.put(together, long=True)
        chunks[chunk] = len(together)
    position = 0
    for path in sorted(files):
        data = files[path]
        segments: list[Segment] = []
        if path in small:
            segments.append(Segment(chunk=chunk, offset=position, length=len(data)))
            position += len(data)
        else:
            for start in range(0, len(data), piece):
                part = data[start : start + piece]
                digest = packer.put(part)
                chunks[digest] = len(part)
                segments.append(Segment(chunk=digest, offset=0, length=len(part)))
        entries.append(
            LayerEntry(path=path, size=len(data), sha256=Digest.of(data), segments=tuple(segments))
        )
    layer = Layer(
        kind="distribution",
        distribution=name,
        version="1.0",
        entries=sort_entries(entries),
        chunks=tuple(chunks.items()),
    )
    data = layer.to_bytes()
    return LayerRef(
        list=packer.put(data),
        list_size=len(data),
        kind="distribution",
        distribution=name,
        version="1.0",
        origin="published",
        files=len(entries),
        bytes=layer.file_bytes,
    )


FILES = {
    "purelib/pkg/__init__.py": b"VALUE = 1\n" * 20,
    "purelib/pkg/empty.py": b"",
    "purelib/pkg/twin.py": b"VALUE = 1\n" * 20,
    "purelib/pkg/big.so": noise(6000, 1) + bytes(9000) + noise(100, 2),
    "data/share/text": b"text " * 300,
}


def put_bundle(
    store: Store,
    *,
    name: str = "demo",
    version: str = "1.0",
    target: Target = TARGET,
    files: dict[str, bytes] | None = None,
    signatures: tuple[bytes, ...] = SIGNATURES,
    piece: int = 4096,
) -> Descriptor:
    """Put a whole bundle into ``store`` and return its descriptor."""
    packer = Packer(store, {})
    layers = (
        make_layer(packer, "pkg", FILES if files is None else files, piece=piece),
        make_layer(packer, "other", {"purelib/other.py": b"print()\n"}),
    )
    descriptor = Descriptor(
        content=Content(
            name=name,
            version=version,
            target=target,
            layers=layers,
            lock=packer.put(b"lock-version = '1.0'\n" * 9),
        ),
        codec=codec_line(1),
        manifest=packer.put(b"[bundle]\nname = 'demo'\n"),
        blobs=packer.blobs,
    )
    commit_bundle(store, descriptor, signatures)
    return descriptor
