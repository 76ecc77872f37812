"""Small true bundles, made by the text of docs/format.md and not by the bundler."""


from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from envbundle.host.probe import glibc
from envbundle.host.run import run
from envbundle.spec.descriptor import Blob, Content, Descriptor, LayerRef
from envbundle.spec.digest import Digest
from envbundle.spec.layer import BaseFile, Layer, LayerEntry, Segment, installed_path, sort_entries
from envbundle.spec.target import Target
from envbundle.store.codec import codec_line, encode
from envbundle.store.memory import MemoryStore
from envbundle.trust.policy import TrustPolicy
from envbundle.trust.trusted import accept

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from envbundle.host.run import Finished
    from envbundle.store.protocol import Store
    from envbundle.trust.trusted import TrustedDescriptor

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=timezone.utc)
LATER = datetime(2026, 12, 2, 12, 0, 0, tzinfo=timezone.utc)
PYTHON = ".".join(map(str, sys.version_info[:2]))
TARGET = Target(
    name="here",
    gpus=(),
    python=PYTHON,
    platform=f"{platform.machine()}-manylinux_2_17",
    glibc="2.17",
)
SITE = f"lib/python{PYTHON}/site-packages"
assert glibc() is not None


@dataclass(kw_only=True)
class Dist:
    """A distribution to pack. ``files`` are scheme paths, or site-packages paths without a scheme."""

    name: str
    version: str = "1.0"
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    scripts: Mapping[str, bytes | str] = field(default_factory=dict)
    entry_points: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    executable: tuple[str, ...] = ()
    origin: str = "published"
    record: bool = True
    roles: Mapping[str, str] = field(default_factory=dict)

    @property
    def info(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}.dist-info"


@dataclass(kw_only=True)
class Patch:
    """An overlay: ``files`` (site-packages paths) replace or add, ``remove`` drops."""

    name: str
    version: str = "1.0"
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


class Packer:
    """Puts plain bytes into a store and remembers where they stand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.blobs: dict[Digest, Blob] = {}

    def put(self, plain: bytes, *, long: bool = False) -> Digest:
        stored, encoding = encode(plain, level=1, long=long)
        digest = Digest.of(plain)
        self.blobs[digest] = Blob(
            blob=self.store.put(stored), size=len(stored), plain_size=len(plain), encoding=encoding
        )
        return digest

    def layer(
        self, files: Mapping[str, bytes], entries: Iterable[LayerEntry], *, piece: int, **more: Any
    ) -> Layer:
        """Pack ``files`` (scheme paths): small ones into one chunk, those above ``piece`` cut into pieces."""
        found = list(entries)
        executable, roles = more.pop("executable", ()), more.pop("roles", {})
        small = {path: data for path, data in sorted(files.items()) if 0 < len(data) < piece}
        together = b"".join(small.values())
        chunks: dict[Digest, int] = {}
        if together:
            chunk = self.put(together, long=True)
            chunks[chunk] = len(together)
        position = 0
        for path, data in sorted(files.items()):
            segments = []
            if path in small:
                segments.append(Segment(chunk=chunk, offset=position, length=len(data)))
                position += len(data)
            else:
                for start in range(0, len(data), piece):
                    part = data[start : start + piece]
                    chunks[self.put(part)] = len(part)
                    segments.append(Segment(chunk=Digest.of(part), offset=0, length=len(part)))
            mode = 0o755 if path in executable else 0o644
            found.append(
                LayerEntry(
                    path=path,
                    role=roles.get(path, "file"),
                    mode=mode,
                    size=len(data),
                    sha256=Digest.of(data),
                    segments=tuple(segments),
                )
            )
        return Layer(entries=sort_entries(found), chunks=tuple(chunks.items()), **more)


def data_of(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


def scheme_path(path: str) -> str:
    top = path.partition("/")[0]
    return path if top in ("purelib", "platlib", "scripts", "headers", "data") else f"purelib/{path}"


def inline(path: str, content: bytes | str, role: str, mode: int = 0o644) -> LayerEntry:
    data = data_of(content)
    return LayerEntry(path=path, role=role, mode=mode, size=len(data), sha256=Digest.of(data), inline=data)  # type: ignore[arg-type]


def pack_dist(packer: Packer, dist: Dist, piece: int) -> tuple[Layer, str]:
    files = {scheme_path(path): data_of(content) for path, content in dist.files.items()}
    entries = [inline(f"scripts/{name}", text, "script", 0o755) for name, text in dist.scripts.items()]
    entries += [
        LayerEntry(path=f"scripts/{name}", type="entry-point", mode=0o755, reference=reference)
        for name, reference in dist.entry_points.items()
    ]
    entries += [
        LayerEntry(path=scheme_path(path), type="symlink", link=link) for path, link in dist.links.items()
    ]
    if dist.record:
        metadata = f"Metadata-Version: 2.1\nName: {dist.name}\nVersion: {dist.version}\n"
        files[f"purelib/{dist.info}/METADATA"] = metadata.encode()
        entries.append(inline(f"purelib/{dist.info}/RECORD", "as packed,,\n", "record"))
    layer = packer.layer(
        files,
        entries,
        piece=piece,
        executable=tuple(map(scheme_path, dist.executable)),
        roles=dist.roles,
        kind="distribution",
        distribution=dist.name,
        version=dist.version,
    )
    return layer, dist.origin


def pack_patch(packer: Packer, patch: Patch, base: Layer, piece: int) -> Layer:
    files = {scheme_path(path): data_of(content) for path, content in patch.files.items()}
    there = {entry.path: entry.sha256 for entry in base.entries}
    return packer.layer(
        files,
        [],
        piece=piece,
        kind="overlay",
        distribution=patch.name,
        version=patch.version,
        replaces=tuple(BaseFile(path=p, sha256=d) for p in sorted(files) if (d := there.get(p))),
        removes=tuple(
            BaseFile(path=p, sha256=d) for p in map(scheme_path, patch.remove) if (d := there.get(p))
        ),
    )


def make_bundle(
    store: Store,
    *items: Dist | Patch,
    name: str = "tiny",
    version: str = "1",
    target: Target = TARGET,
    winners: Mapping[str, str] | None = None,
    piece: int = 4096,
    **content: Any,
) -> Descriptor:
    """Pack ``items`` into ``store``; ``winners`` maps contested paths (installed) to distributions."""
    packer = Packer(store)
    layers: list[Layer] = []
    refs: list[LayerRef] = []
    provides: dict[str, int | None] = {}
    owners: dict[str, list[int]] = {}
    for item in items:
        if isinstance(item, Dist):
            layer, origin = pack_dist(packer, item, piece)
        else:
            base = next(one for one in layers if one.distribution == item.name and one.kind == "distribution")
            layer, origin = pack_patch(packer, item, base, piece), "built"
        number = len(layers)
        layers.append(layer)
        data = layer.to_bytes()
        refs.append(
            LayerRef(
                list=packer.put(data),
                list_size=len(data),
                kind=layer.kind,
                distribution=layer.distribution,
                version=layer.version,
                origin=origin,  # type: ignore[arg-type]
                files=len(layer.entries),
                bytes=layer.file_bytes,
            )
        )
        for entry in layer.entries:
            owners.setdefault(_place(entry.path, layer, target), []).append(number)
        if layer.kind == "overlay":
            provides |= {_place(entry.path, layer, target): number for entry in layer.entries}
            provides |= {_place(item.path, layer, target): None for item in layer.removes}
    for path, winner in (winners or {}).items():
        provides[path] = next(n for n in owners[path] if layers[n].distribution == winner)
    descriptor = Descriptor(
        content=Content(
            name=name,
            version=version,
            target=target,
            layers=tuple(refs),
            lock=packer.put(b"lock-version = '1.0'\n"),
            provides=content.pop("provides", provides),
            **content,
        ),
        codec=codec_line(1),
        manifest=packer.put(b"[bundle]\n"),
        blobs=packer.blobs,
    )
    store.put(descriptor.to_bytes())
    return descriptor


def _place(path: str, layer: Layer, target: Target) -> str:
    return installed_path(path, python=target.python, distribution=layer.distribution)


def trust(descriptor: Descriptor, *, unsigned: bool = False) -> TrustedDescriptor[Descriptor]:
    data = descriptor.to_bytes()
    pinned = None if unsigned else Digest.of(data)
    policy = TrustPolicy(now=NOW, allow_unsigned=unsigned, pinned_id=pinned)
    return accept(data, (), policy=policy, parse=Descriptor.from_bytes)


def bundle(*items: Dist | Patch, **more: Any) -> tuple[TrustedDescriptor[Descriptor], MemoryStore]:
    store = MemoryStore()
    unsigned = more.pop("unsigned", False)
    return trust(make_bundle(store, *items, **more), unsigned=unsigned), store


def sample(value: str = "one", **more: Any) -> tuple[TrustedDescriptor[Descriptor], MemoryStore]:
    """A bundle of one application whose modules answer ``value``, and one library that never changes."""
    return bundle(*sample_items(value), version=more.pop("version", value), **more)


def sample_items(value: str) -> tuple[Dist, Dist]:
    app = Dist(
        name="app",
        files={
            "app/__init__.py": f"value = {value!r}\n",
            "app/late.py": f"value = {value!r}\n",
            "app/cli.py": "import sys, app\ndef main():\n    print(app.value, sys.executable, sys.prefix)\n",
            "app/data.bin": bytes(range(256)) * 64,
            "app/empty.txt": b"",
        },
        entry_points={"app": "app.cli:main"},
    )
    lib = Dist(
        name="lib",
        files={
            "lib/__init__.py": "answer = 42\n",
            "lib/big.bin": b"\x01\x02\x03\x04" * 5000,
            "lib/tool": b"#!\n",
        },
        executable=("lib/tool",),
    )
    return app, lib


def call(*argv: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Finished:
    """Run a program with a small environment; its failure is shown."""
    plain = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return run(list(argv), env={**plain, **(env or {})}, cwd=cwd, timeout=60)


def output(*argv: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    finished = call(*argv, env=env, cwd=cwd)
    assert finished.status == 0, finished.error_text
    return finished.text.strip()


def with_target(**changes: Any) -> Target:
    return replace(TARGET, **changes)


def listing(root: Path) -> dict[str, tuple[int, str]]:
    """Return mode and content digest (or link text) of everything below ``root``."""
    found = {}
    for folder, names, files in os.walk(root):
        for one in (*names, *files):
            path = os.path.join(folder, one)
            mode = os.lstat(path).st_mode
            if os.path.islink(path):
                found[os.path.relpath(path, root)] = (mode, os.readlink(path))
            elif os.path.isfile(path):
                with open(path, "rb") as stream:
                    found[os.path.relpath(path, root)] = (mode, Digest.of(stream.read()).hex)
            else:
                found[os.path.relpath(path, root)] = (mode, "")
    return found
