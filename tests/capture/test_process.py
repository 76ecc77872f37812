"""A running server: its variables, models, caches and libraries become demands."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from envbundle.spec.manifest_text import parse_manifest

from .builders import CLEAN, SITE, Living

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = "import sys, time; f = open(sys.argv[2] + '/model-1.safetensors'); print('up', flush=True); time.sleep(60)\n"


@pytest.fixture
def server(sglang: Living) -> Iterator[subprocess.Popen[str]]:
    model = sglang.folder / "model"
    model.mkdir()
    (model / "model-1.safetensors").write_text("x")
    (sglang.folder / "jit").mkdir()
    sglang.put(f"{SITE}/serve/__init__.py", "")
    sglang.put(f"{SITE}/serve/launch.py", SERVER)
    env = CLEAN | {
        "CUDA_HOME": "/usr",
        "TRITON_CACHE_DIR": str(sglang.folder / "jit"),
        "HF_TOKEN": "x",
        "SGL_MODE": "fast",
    }
    words = [str(sglang.venv / "bin/python"), "-B", "-m", "serve.launch", "--model-path", str(model)]
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True, cwd="/")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.communicate()


def test_a_server_is_read(sglang: Living, server: subprocess.Popen[str]) -> None:
    ran = sglang.capture("--pid", str(server.pid))
    manifest = parse_manifest((sglang.folder / "out/envbundle.toml").read_text())
    values = dict(manifest.environment)
    assert values["CUDA_HOME"] == "/usr"
    assert values["SGL_MODE"] == "fast"
    assert "HF_TOKEN" not in values
    assert "PATH" not in values
    assert ran.answer["left_out"]["secrets"] == ["HF_TOKEN"]
    demands = [(one.kind, dict(one.fields).get("path")) for one in manifest.invariants]
    assert ("model", str(sglang.folder / "model")) in demands
    assert ("path", "/usr") in demands
    assert ("path", str(sglang.folder / "jit")) in demands
    assert [check.imports for check in manifest.checks] == [("serve",)]
    assert server.poll() is None


def test_a_stranger_is_said_to_be_one(sglang: Living) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=CLEAN) as process:
        ran = sglang.capture("--pid", str(process.pid))
        process.communicate(b"\n")
    assert "W-CAPTURE-PROCESS" in ran.codes


def test_no_such_process(sglang: Living) -> None:
    ran = sglang.run("capture", sglang.venv, "-o", "out", "--as-is", "--pid", "999999999")
    assert (ran.status, ran.codes) == (2, {"E-NO-PROCESS"})


def test_paths_and_checks(sglang: Living) -> None:
    model = sglang.folder / "weights"
    model.mkdir()
    (model / "a.safetensors").write_text("")
    ran = sglang.capture(
        "--path",
        model,
        "--path",
        "/etc",
        "--check",
        "sglang",
        "--check",
        "nothing_of_that_name",
        "--arch",
        "sm_103",
    )
    manifest = parse_manifest((sglang.folder / "out/envbundle.toml").read_text())
    assert [(one.kind, dict(one.fields)["path"]) for one in manifest.invariants] == [
        ("model", str(model)),
        ("path", "/etc"),
    ]
    assert manifest.source is not None
    assert manifest.source.checks == (("import nothing_of_that_name", False), ("import sglang", True))
    assert [str(gpu) for gpu in manifest.targets[0].target.gpus] == ["sm_103"]
    assert ran.answer["coverage"] == []
    ran = sglang.run("capture", sglang.venv, "-o", "more", "--as-is", "--path", "/nothing/there")
    assert (ran.status, ran.codes) == (2, {"E-NOT-FOUND"})
