"""What preflight says of machines, and each kind of invariant. Programs are scripts that print what real ones did."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from envbundle.errors import HostError, VerdictError
from envbundle.host import probe
from envbundle.host.run import run
from envbundle.installer.install import check_install, install
from envbundle.installer.invariants import INVARIANTS
from envbundle.installer.kept import read_layers
from envbundle.installer.layout import Prefix
from envbundle.installer.options import InstallOptions
from envbundle.installer.plan import plan
from envbundle.installer.preflight import needs
from envbundle.installer.verify import verify_environment
from envbundle.spec.digest import Digest
from envbundle.spec.invariants import KINDS
from envbundle.spec.target import Arch

from .builders import NOW, SITE, Dist, bundle, listing, sample_items, with_target

if TYPE_CHECKING:
    from envbundle.spec.finding import Finding

DATA = Path(__file__).parent.parent / "data" / "host"
H200 = (DATA / "h200-nvidia-smi-query.csv").read_text()
HEADER = (DATA / "h200-nvidia-smi.txt").read_text()


def program(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("CUDA_HOME", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    return folder


def smi(tools: Path, rows: str, header: str = HEADER) -> None:
    answer = f"case \"$1\" in --query*) printf '%s' {shlex.quote(rows)};; *) printf '%s' {shlex.quote(header)};; esac"
    program(tools, "nvidia-smi", answer)


def findings(tmp_path: Path, options: dict[str, Any] | None = None, **content: Any) -> dict[str, Finding]:
    target = content.pop("target", {})
    given = bundle(*sample_items("one"), target=with_target(**target), **content)
    found = check_install(*given, InstallOptions(prefix=tmp_path / "env", **(options or {})))
    return {finding.code: finding for finding in found}


SM90 = {"gpus": (Arch("sm_90"),)}
SM103 = {"gpus": (Arch("sm_103"),)}


def test_the_right_gpu(tmp_path: Path, tools: Path) -> None:
    smi(tools, H200)
    assert findings(tmp_path, target=SM90) == {}


@pytest.mark.parametrize("wanted", ["sm_103", "sm_90a", "sm_89"])
def test_b11_another_gpu_is_refused_before_anything_is_written(
    tmp_path: Path, tools: Path, wanted: str
) -> None:
    smi(tools, H200)
    before = listing(tmp_path)
    given = bundle(*sample_items("one"), target=with_target(gpus=(Arch(wanted),)))
    with pytest.raises(VerdictError) as caught:
        install(*given, InstallOptions(prefix=tmp_path / "env"), now=NOW)
    assert caught.value.code == "E-GPU-ARCH"
    assert "H200" in caught.value.subject
    assert wanted in caught.value.expected
    assert "sm_90 " in caught.value.found
    assert listing(tmp_path) == before
    forced = InstallOptions(prefix=tmp_path / "env", force_arch=True)
    assert "W-GPU-ARCH" in {f.code for f in install(*given, forced, now=NOW).findings}


def test_several_gpus_of_which_one_fits(tmp_path: Path, tools: Path) -> None:
    smi(tools, H200 + "1, NVIDIA T400, GPU-1, 7.5, 580.159.04, 2048 MiB, [N/A]\n")
    found = findings(tmp_path, target=SM90)
    assert list(found) == ["W-GPU-ARCH"]
    assert "T400" in found["W-GPU-ARCH"].subject


NO_GPU = {
    "no-program": None,
    "fails": 'echo "NVIDIA-SMI has failed because it couldn\'t communicate with the NVIDIA driver."; exit 9',
    "none": "printf 'No devices were found\\n'; exit 0",
    "garbage": "head -c 3000 /dev/urandom",
}


@pytest.mark.parametrize("body", NO_GPU.values(), ids=NO_GPU.keys())
def test_no_gpu_in_sight_is_a_warning(tmp_path: Path, tools: Path, body: str | None) -> None:
    if body is not None:
        program(tools, "nvidia-smi", body)
    found = findings(tmp_path, target={**SM103, "driver": "580"})
    assert {code: f.severity for code, f in found.items()} == {"W-NO-DEVICE": "warning"}
    assert findings(tmp_path, {"no_device": True}, target=SM103) == {}
    assert findings(tmp_path) == {}  # a bundle without GPU code asks for none


@pytest.mark.parametrize(
    ("floor", "ok"),
    [("570", True), ("580", True), ("580.159.04", True), ("580.159.05", False), ("590", False)],
)
def test_b14_the_driver_s_floor(tmp_path: Path, tools: Path, floor: str, ok: bool) -> None:
    smi(tools, H200)
    for found in (
        findings(tmp_path, target={**SM90, "driver": floor}),
        findings(tmp_path, target={**SM90, "driver": "500"}, requires={"driver": floor}),
        findings(tmp_path, target=SM90, invariants=({"kind": "driver", "min": floor},)),
    ):
        assert list(found) == ([] if ok else ["E-DRIVER"])
        if not ok:
            assert "580.159.04" in found["E-DRIVER"].found


@pytest.mark.parametrize(("isa", "ok"), [("8.7", True), ("9.0", True), ("9.1", False)])
def test_b13_ptx_newer_than_the_driver(tmp_path: Path, tools: Path, isa: str, ok: bool) -> None:
    smi(tools, H200)
    found = findings(tmp_path, target=SM90, requires={"ptx-isa": isa})
    assert list(found) == ([] if ok else ["E-PTX-DRIVER"])
    smi(tools, H200, header="")  # the driver's branch says the same
    assert list(findings(tmp_path, target=SM90, requires={"ptx-isa": isa})) == list(found)
    assert findings(tmp_path, requires={"ptx-isa": "9.1"}) == {}


def test_glibc_that_bytes_need(tmp_path: Path) -> None:
    assert "E-GLIBC" in findings(tmp_path, requires={"glibc": "2.99"})


def test_space_counts_bytes_and_inodes() -> None:
    trusted, store = bundle(Dist(name="d", files={f"d/{n}.py": "x" * 1000 for n in range(50)}, record=False))
    layers = read_layers(trusted.descriptor, store, Prefix.of("/nowhere/env"))
    made = plan(trusted.descriptor.content, layers)
    bytes_with, inodes_with = needs(made, compile_sources=True)
    bytes_without, inodes_without = needs(made, compile_sources=False)
    assert bytes_without > 50_000
    assert bytes_with - bytes_without == 60_000
    assert inodes_with - inodes_without == 51


@pytest.mark.e2e
@pytest.mark.parametrize(("option", "code"), [("size=8m", "E-SPACE"), ("nr_inodes=40", "E-INODES")])
def test_b66_a_small_volume(tmp_path: Path, option: str, code: str) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    mounted = run(["mount", "-t", "tmpfs", "-o", option, "none", volume])
    assert mounted.status == 0, mounted.error_text
    try:
        given = bundle(
            *sample_items("one"), Dist(name="big", files={"big.bin": os.urandom(9 << 20)}), piece=1 << 22
        )
        with pytest.raises(HostError) as caught:
            install(*given, InstallOptions(prefix=volume / "env"), now=NOW)
        assert caught.value.code == code
        assert list(volume.iterdir()) == []
    finally:
        run(["umount", volume])


@pytest.mark.e2e
@pytest.mark.parametrize(("option", "code"), [("ro", "E-READ-ONLY"), ("noexec", "E-NOEXEC")])
def test_a_volume_that_cannot_hold_programs(tmp_path: Path, option: str, code: str) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    assert run(["mount", "-t", "tmpfs", "-o", option, "none", volume]).status == 0
    try:
        with pytest.raises(HostError) as caught:
            install(*bundle(*sample_items("one")), InstallOptions(prefix=volume / "env"), now=NOW)
        assert caught.value.code == code
        assert list(volume.iterdir()) == []
    finally:
        run(["umount", volume])


class Filling:
    """A reporter that fills a folder's volume when files are being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, task: str, *, total: int | None = None, unit: str = "bytes") -> None:  # noqa: ARG002
        if task != "write files":
            return
        with (self.folder / "filler").open("wb") as stream, contextlib.suppress(OSError):
            while True:
                stream.write(bytes(1 << 16))
                stream.flush()

    def advance(self, task: str, amount: int = 1) -> None: ...
    def finish(self, task: str) -> None: ...
    def note(self, text: str) -> None: ...


@pytest.mark.e2e
def test_b66_the_disk_is_full_half_way(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    assert run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", volume]).status == 0
    try:
        prefix = volume / "env"
        install(*bundle(*sample_items("one")), InstallOptions(prefix=prefix), now=NOW)
        before = listing(volume)
        big = Dist(name="big", files={f"big{n}.bin": os.urandom(1 << 18) for n in range(20)})
        given = bundle(*sample_items("two"), big)
        with pytest.raises(HostError) as caught:
            install(*given, InstallOptions(prefix=prefix), reporter=Filling(volume), now=NOW)
        assert caught.value.code == "E-SPACE"
        (volume / "filler").unlink()
        after = listing(volume)
        assert {path: row for path, row in after.items() if not path.endswith("/lock")} == {
            path: row for path, row in before.items() if not path.endswith("/lock")
        }
        assert verify_environment(prefix).ok
        assert install(*given, InstallOptions(prefix=prefix), now=NOW).status == "installed"
    finally:
        run(["umount", volume])


def test_b42_twins_are_refused_where_names_fold(tmp_path: Path) -> None:
    twins = bundle(Dist(name="d", files={"d/Foo.py": "x = 1\n", "d/foo.py": "x = 2\n"}))
    assert check_install(*twins, InstallOptions(prefix=tmp_path / "env")) == ()
    (tmp_path / "Name").touch()
    os.link(tmp_path / "Name", tmp_path / "nAME")  # what a folding volume looks like
    before = listing(tmp_path)
    with pytest.raises(HostError) as caught:
        install(*twins, InstallOptions(prefix=tmp_path / "env"), now=NOW)
    assert caught.value.code == "E-CASE"
    assert caught.value.subject == f"{SITE}/d/Foo.py / {SITE}/d/foo.py"
    assert listing(tmp_path) == before


def test_every_kind_of_invariant_has_its_check() -> None:
    assert set(INVARIANTS) == set(KINDS)
    folder = Path(probe.__file__).parent.parent / "installer" / "invariants"
    assert {path.stem for path in folder.glob("*.py")} == set(INVARIANTS) | {"__init__", "interface"}


def test_an_unknown_kind_refuses(tmp_path: Path) -> None:
    assert "E-INVARIANT" in findings(tmp_path, invariants=({"kind": "phase-of-moon"},))


def invariant(tmp_path: Path, kind: str, **fields: Any) -> list[str]:
    found = findings(
        tmp_path, invariants=({"kind": kind, **fields},), environment=fields.pop("environment", {})
    )
    return [f"{finding.code}: {finding.found}" for finding in found.values()]


def test_tools(tmp_path: Path, tools: Path) -> None:
    assert invariant(tmp_path, "tool", tool="nvcc", min="12.9") == ["E-HOST-TOOL: not found"]
    old = program(tools, "nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.131'")
    assert invariant(tmp_path, "tool", tool="nvcc") == []
    assert invariant(tmp_path, "tool", tool="nvcc", min="12.4") == []
    assert invariant(tmp_path, "tool", tool="nvcc", min="12.9") == [f"E-HOST-TOOL: 12.4 at {old}"]
    home = tmp_path / "cuda"
    home.mkdir()
    program(home / "bin", "nvcc", "echo 'release 12.9'")
    environment = {"CUDA_HOME": str(home)}
    given = ({"kind": "tool", "tool": "nvcc", "min": "12.9"},)
    assert findings(tmp_path, invariants=given, environment=environment) == {}
    silent = program(tools, "silent", "exit 0")
    assert invariant(tmp_path, "tool", tool=str(silent), min="1.0") == [
        f"E-HOST-TOOL: {silent}, which prints no version"
    ]
    program(tools, "ninja", '[ "$1" = -V ] && echo 1.11.1')
    assert invariant(tmp_path, "tool", tool="ninja", min="1.10", **{"version-args": ["-V"]}) == []


def test_paths(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("x")
    there.chmod(0o640)
    assert invariant(tmp_path, "path", path=str(there)) == []
    assert invariant(tmp_path, "path", path=str(there), type="file", mode="0640", readable=True) == []
    assert invariant(tmp_path, "path", path=str(there), type="dir") == ["E-HOST-PATH: a file"]
    assert invariant(tmp_path, "path", path=str(there), mode="0755") == ["E-HOST-PATH: 0640"]
    assert invariant(tmp_path, "path", path=f"{there}/no") == ["E-HOST-PATH: Not a directory"]


def test_libraries(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invariant(tmp_path, "library", soname="libc.so.6") == []
    assert len(invariant(tmp_path, "library", soname="libnowhere.so.1")) == 1
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs/libnowhere.so.1").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path}/libs")
    assert invariant(tmp_path, "library", soname="libnowhere.so.1") == []


def test_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invariant(tmp_path, "env", name="SOME_UNSET") == ["E-HOST-ENV: not set"]
    monkeypatch.setenv("SOME_UNSET", "abc")
    assert invariant(tmp_path, "env", name="SOME_UNSET") == []
    assert invariant(tmp_path, "env", name="SOME_UNSET", matches="ab") == ["E-HOST-ENV: 'abc'"]
    assert invariant(tmp_path, "env", name="SOME_UNSET", matches="ab.") == []


def test_gpu_counts(tmp_path: Path, tools: Path) -> None:
    smi(tools, H200)
    assert invariant(tmp_path, "gpu", **{"min-count": 1}) == []
    assert invariant(tmp_path, "gpu", **{"min-count": 8}) == ["E-GPU-COUNT: 1"]
    assert invariant(tmp_path, "gpu", arch=["sm_90"]) == []
    assert invariant(tmp_path, "gpu", arch=["sm_100", "sm_103"]) == ["E-GPU-ARCH: sm_90"]


def test_free_space(tmp_path: Path) -> None:
    assert invariant(tmp_path, "space", bytes=1) == []
    assert [line[:7] for line in invariant(tmp_path, "space", bytes=1 << 60, path=str(tmp_path))] == [
        "E-SPACE"
    ]


def shard(path: Path, size: int) -> None:
    header = json.dumps(
        {"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}, "__metadata__": {}}
    ).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))


def test_models(tmp_path: Path) -> None:
    model = tmp_path / "model"
    assert invariant(tmp_path, "model", path=str(model)) == ["E-MODEL: nothing"]
    model.mkdir()
    weights = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    shard(model / "model-1.safetensors", 100)
    assert invariant(tmp_path, "model", path=str(model)) == ["E-MODEL: nothing"]
    shard(model / "model-2.safetensors", 200)
    assert invariant(tmp_path, "model", path=str(model)) == []
    data = (model / "model-2.safetensors").read_bytes()
    (model / "model-2.safetensors").write_bytes(data[:-1])
    assert invariant(tmp_path, "model", path=str(model)) == [f"E-MODEL: {len(data) - 1} bytes"]
    (model / "model-2.safetensors").write_bytes(data)
    (model / "x.incomplete").touch()
    assert invariant(tmp_path, "model", path=str(model)) == ["E-MODEL: an unfinished one"]
    (model / "x.incomplete").unlink()
    right = {"model-2.safetensors": str(Digest.of(data))}
    assert invariant(tmp_path, "model", path=str(model), digests=right) == []
    wrong = {"model-2.safetensors": str(Digest.of(b""))}
    assert len(invariant(tmp_path, "model", path=str(model), digests=wrong)) == 1
    (model / "model.safetensors.index.json").write_text("{")
    assert "damaged" in invariant(tmp_path, "model", path=str(model))[0]


def test_b42_twins_of_a_case_insensitive_volume() -> None:
    assert probe.twins(["a/Foo.py", "a/foo.py", "a/b", "A/c"]) == [("a", "A"), ("a/Foo.py", "a/foo.py")]
    assert probe.twins(["caf\u00e9", "cafe\u0301"]) == [("caf\u00e9", "cafe\u0301")]
    assert probe.twins(["a/x", "a/y", "b/x"]) == []
