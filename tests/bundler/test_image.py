"""What a wheel's layer list holds."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from envbundle.errors import IntegrityError
from envbundle.spec.layer import INLINE_LIMIT, Layer, LayerEntry
from envbundle.store.memory import MemoryStore
from envbundle.store.read import read_layer, read_plain
from tests.builders import record_hash, wheel_bytes

from .builders import Shelf, entry_bytes, lock_of, run_pack

if TYPE_CHECKING:
    from envbundle.bundler.pack import PackResult
    from envbundle.spec.digest import Digest
    from envbundle.spec.lock import LockedPackage

ELF = b"\x7fELF" + bytes(60)


def packed(shelf: Shelf, *packages: LockedPackage) -> tuple[PackResult, list[Layer], dict[Digest, bytes]]:
    store = MemoryStore()
    result = run_pack(lock_of(*packages), shelf, store)
    content = result.descriptor.content
    layers = [read_layer(store, result.descriptor, ref) for ref in content.layers]
    chunks = {d: read_plain(store, result.descriptor, d) for layer in layers for d, _ in layer.chunks}
    return result, layers, chunks


def layer_of(**parts: Any) -> tuple[Layer, dict[Digest, bytes]]:
    shelf = Shelf()
    _, layers, chunks = packed(shelf, shelf.wheel("demo", "1.0", **parts))
    return layers[0], chunks


def entries(layer: Layer) -> dict[str, LayerEntry]:
    return {entry.path: entry for entry in layer.entries}


def test_every_member_comes_back() -> None:
    files = {
        "demo/b.py": b"b" * 70_000,
        "demo/a.py": b"a",
        "demo/empty": b"",
        "z.so": bytes(range(256)) * 10_000,
    }
    layer, chunks = layer_of(files=files, scripts={"tool": b"#!python\n"}, data={"data/share/x": b"x"})
    for path, data in files.items():
        assert entry_bytes(layer, f"purelib/{path}", chunks) == data
    assert entry_bytes(layer, "scripts/tool", chunks) == b"#!python\n"
    assert entry_bytes(layer, "data/share/x", chunks) == b"x"
    assert layer.wheel is not None
    assert layer.wheel.filename == "demo-1.0-py3-none-any.whl"
    assert [e.path for e in layer.entries] == sorted(e.path for e in layer.entries)


@pytest.mark.parametrize(("purelib", "scheme"), [(True, "purelib"), (False, "platlib")])
def test_the_root_goes_where_the_wheel_says(purelib: bool, scheme: str) -> None:
    layer, _ = layer_of(purelib=purelib)
    assert f"{scheme}/demo/__init__.py" in entries(layer)


@pytest.mark.parametrize(
    ("path", "role"),
    [
        pytest.param("scripts/tool", "script", id="script"),
        pytest.param("purelib/demo-1.0.dist-info/RECORD", "record", id="RECORD"),
        pytest.param("purelib/demo-1.0.dist-info/direct_url.json", "direct-url", id="direct_url"),
        pytest.param("data/share/jupyter/kernels/demo/kernel.json", "kernelspec", id="kernelspec"),
        pytest.param("data/share/jupyter/kernels/demo/logo.png", "file", id="beside a kernelspec"),
        pytest.param("purelib/demo/RECORD", "file", id="a file that is only named so"),
        pytest.param("purelib/demo-1.0.dist-info/METADATA", "file", id="METADATA"),
    ],
)
def test_roles_and_inline_bytes(path: str, role: str) -> None:
    layer, _ = layer_of(
        files={"demo/RECORD": b"not one"},
        scripts={"tool": b"#!python\nprint(1)\n"},
        data={
            "data/share/jupyter/kernels/demo/kernel.json": b"{}",
            "data/share/jupyter/kernels/demo/logo.png": b"png",
        },
        dist_info={"direct_url.json": b'{"url": "file:///x"}'},
    )
    entry = entries(layer)[path]
    assert entry.role == role
    assert (entry.inline is not None) == (role != "file")
    assert bool(entry.segments) == (role == "file")


@pytest.mark.parametrize(("size", "inline"), [(INLINE_LIMIT, True), (INLINE_LIMIT + 1, False)])
def test_large_scripts_are_in_chunks(size: int, inline: bool) -> None:
    layer, chunks = layer_of(scripts={"tool": b"x" * size})
    entry = entries(layer)["scripts/tool"]
    assert (entry.role, entry.mode, entry.inline is not None) == ("script", 0o755, inline)
    assert entry_bytes(layer, "scripts/tool", chunks) == b"x" * size


def test_what_each_installation_makes_anew_is_left_out() -> None:
    layer, _ = layer_of(
        files={
            "demo/__init__.py": b"",
            "demo/__pycache__/__init__.cpython-312.pyc": b"pyc",
            "demo/__pycache__/data.bin": b"kept",
            "demo/alone.pyc": b"kept",
            "demo/INSTALLER": b"kept",
        },
        dist_info={"INSTALLER": b"pip\n", "REQUESTED": b"", "RECORD.jws": b"{}", "LICENSE": b"kept"},
    )
    held = {path.removeprefix("purelib/") for path in entries(layer)}
    assert held == {
        "demo/__init__.py",
        "demo/__pycache__/data.bin",
        "demo/alone.pyc",
        "demo/INSTALLER",
        *(f"demo-1.0.dist-info/{name}" for name in ("LICENSE", "METADATA", "RECORD", "WHEEL")),
    }


def test_entry_points() -> None:
    layer, _ = layer_of(
        entry_points={
            "console_scripts": {"demo": "demo.cli:main", "demo-x": "demo:run [extra]"},
            "gui_scripts": {"demo-gui": "demo.gui:App.run"},
            "demo.plugins": {"one": "demo.one"},
        },
        scripts={"demo": b"#!python\nold wrapper\n"},
    )
    points = {e.path: (e.reference, e.gui) for e in layer.entries if e.type == "entry-point"}
    assert points == {
        "scripts/demo": ("demo.cli:main", False),
        "scripts/demo-x": ("demo:run", False),
        "scripts/demo-gui": ("demo.gui:App.run", True),
    }


@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        (0o644, 0o644),
        (0o755, 0o755),
        (0o600, 0o644),
        (0o711, 0o755),
        (0o100, 0o755),
        (0o104755, 0o755),
        (0, 0o644),
    ],
)
def test_modes(mode: int, kept: int) -> None:
    layer, _ = layer_of(files={"demo/f": b"x"}, modes={"demo/f": mode})
    assert entries(layer)["purelib/demo/f"].mode == kept


@pytest.mark.parametrize(
    ("path", "data", "mode", "said"),
    [
        pytest.param("demo/bin/ptxas", ELF, 0o644, True, id="ptxas"),
        pytest.param("demo/bin/nvcc", ELF, 0o644, True, id="nvcc"),
        pytest.param("demo/bin/cuobjdump", ELF, 0o644, True, id="cuobjdump"),
        pytest.param("demo/bin/ptxas", ELF, 0o755, False, id="it may be executed"),
        pytest.param("demo/bin/ptxas", b"text", 0o644, False, id="no ELF file"),
        pytest.param("demo/libx.so", ELF, 0o644, False, id="a library"),
    ],
)
def test_b44_a_program_without_its_x_bit_is_noted(path: str, data: bytes, mode: int, said: bool) -> None:
    shelf = Shelf()
    result, layers, _ = packed(shelf, shelf.wheel("demo", files={path: data}, modes={path: mode}))
    assert [f.code for f in result.findings] == (["W-MODE"] if said else [])
    assert entries(layers[0])[f"purelib/{path}"].mode == mode, "the wheel is kept as it is"


def test_equal_files_share_their_bytes() -> None:
    big = bytes(range(256)) * 8192
    layer, chunks = layer_of(files={"lib.so": big, "lib.so.1": big, "lib.so.1.0": big})
    assert len({e.segments for path, e in entries(layer).items() if "lib.so" in path}) == 1
    assert sum(len(data) for data in chunks.values()) < len(big) + 10_000


def long_hash(algorithm: str, data: bytes) -> str:
    digest = hashlib.new(algorithm, data).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    ("row", "code"),
    [
        pytest.param((record_hash(b"fine"), "4"), None, id="sha256"),
        pytest.param((long_hash("sha512", b"fine"), "4"), None, id="sha512"),
        pytest.param((record_hash(b"evil"), "4"), "E-RECORD-HASH", id="other bytes"),
        pytest.param((long_hash("sha512", b"evil"), "4"), "E-RECORD-HASH", id="other bytes by sha512"),
        pytest.param((record_hash(b"fine"), "5"), "E-RECORD", id="other size"),
        pytest.param(None, "E-RECORD", id="not listed"),
    ],
)
def test_bytes_are_compared_with_record(row: tuple[str, str] | None, code: str | None) -> None:
    shelf = Shelf()
    package = shelf.wheel("demo", files={"demo/x": b"fine"}, record_overrides={"demo/x": row})
    if code is None:
        packed(shelf, package)
        return
    with pytest.raises(IntegrityError) as caught:
        packed(shelf, package)
    assert caught.value.code == code
    assert "demo/x" in caught.value.subject


def test_a_large_file_that_contradicts_record_is_refused() -> None:
    shelf = Shelf()
    data = bytes(3 << 20)
    overrides = {"demo/b": (record_hash(b"\1" * len(data)), str(len(data)))}
    package = shelf.wheel("demo", files={"demo/a": data, "demo/b": data}, record_overrides=overrides)
    with pytest.raises(IntegrityError) as caught:
        packed(shelf, package)
    assert caught.value.code == "E-RECORD-HASH"


def test_a_file_that_claims_to_equal_another_is_refused() -> None:
    shelf = Shelf()
    overrides = {"demo/b": (record_hash(b"aaaa"), "4")}
    package = shelf.wheel("demo", files={"demo/a": b"aaaa", "demo/b": b"bbbb"}, record_overrides=overrides)
    with pytest.raises(IntegrityError) as caught:
        packed(shelf, package)
    assert caught.value.code == "E-RECORD-HASH"
    assert "demo/b" in caught.value.subject


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(lambda data: data[:-1], "E-SIZE", id="cut off"),
        pytest.param(lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:], "E-HASH", id="one bit"),
    ],
)
def test_a_wheel_that_is_not_the_locked_one_is_refused(change: object, code: str) -> None:
    shelf = Shelf()
    package = shelf.wheel("demo")
    shelf.wheels[package.wheel.sha256] = change(shelf.wheels[package.wheel.sha256])  # type: ignore[operator]
    with pytest.raises(IntegrityError) as caught:
        packed(shelf, package)
    assert (caught.value.code, caught.value.subject) == (code, "demo-1.0-py3-none-any.whl")


def test_a_wheel_of_another_version_than_locked_is_refused() -> None:
    shelf = Shelf()
    data = wheel_bytes("demo", "1.0")
    package = shelf.put("demo", "1.0", data)
    wrong = type(package)(name="demo", version="1.1", wheel=package.wheel)
    with pytest.raises(IntegrityError) as caught:
        packed(shelf, wrong)
    assert caught.value.code == "E-WHEEL-NAME"
    same = type(package)(name="demo", version="1.0.0", wheel=package.wheel)
    packed(shelf, same)
