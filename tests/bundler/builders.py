"""Locks and wheels for the bundler's tests: real wheels in memory, and who opened them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import random
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from envbundle.bundler.pack import PackResult, pack
from envbundle.host.folder import FileSource, Folder
from envbundle.spec.digest import Digest
from envbundle.spec.lock import Contested, Lock, LockedOverlay, LockedPackage, LockedWheel, OverlayFile
from envbundle.spec.manifest import Check, Invariant, Layout, Manifest
from envbundle.spec.target import Arch, Target
from tests.builders import EPOCH, wheel_bytes, wheel_filename

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envbundle.spec.layer import Layer
    from envbundle.store import Store

MANIFEST = Manifest(
    name="demo",
    version="1.0",
    python="3.12",
    serial=7,
    layout=Layout(prefix="/opt/demo", mode="fixed"),
    invariants=(Invariant(kind="path", fields=(("path", "/models"),)),),
    environment=(("CUDA_HOME", "/usr/local/cuda"),),
    checks=(Check(imports=("demo",)),),
)


def target(name: str = "sm_90") -> Target:
    return Target(
        name=name,
        gpus=(Arch(name),),
        python="3.12",
        platform="x86_64-manylinux_2_39",
        glibc="2.39",
        driver="580",
    )


@dataclass
class Shelf:
    """Wheels by digest; ``opened`` lists the file names that somebody read."""

    wheels: dict[Digest, bytes] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)

    def put(self, name: str, version: str, data: bytes, tag: str = "py3-none-any") -> LockedPackage:
        digest = Digest.of(data)
        self.wheels[digest] = data
        filename = wheel_filename(name, version, tag)
        wheel = LockedWheel(filename=filename, sha256=digest, size=len(data), path=f"wheels/{filename}")
        return LockedPackage(name=name, version=version, wheel=wheel)

    def wheel(self, name: str, version: str = "1.0", **parts: object) -> LockedPackage:
        return self.put(name, version, wheel_bytes(name, version, **parts))  # type: ignore[arg-type]

    @contextmanager
    def find(self, wheel: LockedWheel) -> Iterator[BinaryIO]:
        self.opened.append(wheel.filename)
        with io.BytesIO(self.wheels[wheel.sha256]) as stream:
            yield stream


def lock_of(
    *packages: LockedPackage,
    overlays: tuple[LockedOverlay, ...] = (),
    contested: tuple[Contested, ...] = (),
    name: str = "sm_90",
) -> Lock:
    return Lock(
        target=target(name),
        manifest=Digest.of(b"manifest"),
        tool="envbundle 0",
        rules="1",
        solver="uv 0",
        packages=packages,
        overlays=overlays,
        contested=contested,
        requires={"glibc": "2.17"},
    )


def no_overlay(overlay: LockedOverlay) -> FileSource:
    raise AssertionError(f"nobody asked for {overlay.path}")


def run_pack(
    lock: Lock,
    shelf: Shelf,
    store: Store,
    *,
    overlays: Path | None = None,
    cache: Path | None = None,
    **more: object,
) -> PackResult:
    """Pack with the overlays' folders below ``overlays``."""

    def folder(overlay: LockedOverlay) -> FileSource:
        assert overlays is not None
        return Folder(overlays / overlay.path)

    return pack(
        lock,
        MANIFEST,
        lock_bytes=b"the lock",
        manifest_bytes=b"the manifest",
        store=store,
        find_wheel=shelf.find,
        overlay_folder=no_overlay if overlays is None else folder,
        cache=cache,
        **more,  # type: ignore[arg-type]
    )


def overlay_file(path: str, data: bytes, *, replaces: bytes | None = None, mode: int = 0o644) -> OverlayFile:
    return OverlayFile(
        path=path,
        sha256=Digest.of(data),
        size=len(data),
        mode=mode,
        replaces=None if replaces is None else Digest.of(replaces),
    )


def overlay_of(
    base: LockedPackage, *files: OverlayFile, removes: dict[str, bytes] | None = None
) -> LockedOverlay:
    return LockedOverlay(
        distribution=base.name,
        path=f"overlays/{base.name}",
        mode="merge",
        base_version=base.version,
        base_wheel=base.wheel.sha256,
        files=files,
        removes=tuple((path, Digest.of(data)) for path, data in (removes or {}).items()),
    )


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def entry_bytes(layer: Layer, path: str, chunks: dict[Digest, bytes]) -> bytes:
    """Return a file's bytes as a reader of the format puts them together."""
    entry = next(entry for entry in layer.entries if entry.path == path)
    if entry.inline is not None:
        return entry.inline
    return b"".join(chunks[s.chunk][s.offset : s.offset + s.length] for s in entry.segments)


def big_wheel(path: Path, name: str, sizes: dict[str, int]) -> None:
    """Write a wheel of incompressible stored members in the order given, never holding more than a MiB."""
    info = f"{name}-1.0.dist-info"
    rows: list[list[str]] = []
    noise = random.Random(name)

    def blocks(size: int) -> Iterator[bytes]:
        while size:
            block = noise.randbytes(min(size, 1 << 20))
            size -= len(block)
            yield block

    texts = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member in (*sizes, *texts, f"{info}/RECORD"):
            entry = zipfile.ZipInfo(member, EPOCH)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            state, size = hashlib.sha256(), 0
            with archive.open(entry, "w") as out:
                if member.endswith("/RECORD"):
                    text = io.StringIO()
                    csv.writer(text, lineterminator="\n").writerows([*rows, [member, "", ""]])
                    out.write(text.getvalue().encode())
                    continue
                for block in [texts[member]] if member in texts else blocks(sizes[member]):
                    out.write(block)
                    state.update(block)
                    size += len(block)
            hashed = base64.urlsafe_b64encode(state.digest()).rstrip(b"=").decode()
            rows.append([member, f"sha256={hashed}", str(size)])
