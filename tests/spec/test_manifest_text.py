"""What a good manifest says: one with every section, the smallest one, the template, and how targets are chosen."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from envbundle.spec import manifest as m
from envbundle.spec.invariants import KINDS
from envbundle.spec.manifest_document import document
from envbundle.spec.manifest_render import render_manifest
from envbundle.spec.manifest_template import manifest_template, suggest_bundle_name
from envbundle.spec.manifest_text import parse_manifest
from envbundle.spec.names import check_bundle_name
from envbundle.spec.prefix import check_prefix
from envbundle.spec.target import Arch, Target

SMALL = """
[bundle]
name = "demo"
version = "1"
python = "3.12"
[target.cpu]
gpu = "none"
platform = "x86_64-manylinux_2_28"
"""

FULL = """
[bundle]
name = "llm"
version = "2026.12"
python = "3.12"
serial = 7

[resolve]
requirements = ["torch==2.9.0+cu130", "sglang", "mine @ ./wheels/mine-1-py3-none-any.whl"]
requirement-files = ["more.txt"]
constraints = ["numpy<3", "limits.txt"]
find-links = ["wheels", "https://h.example/links"]
max-tries = 9
from = { Torch = "cu130" }

[[resolve.index]]
name = "cu130"
url = "https://h.example/cu130"
explicit = true

[target.b300]
gpu = ["sm_103", "sm_100"]
platform = "x86_64-manylinux_2_39"
glibc = "2.39"
driver = "580.65.06"
offline = false
requirements = ["nvidia-nvjpeg"]
constraints = ["scipy<2"]
find-links = ["more-wheels"]
[[target.b300.index]]
name = "own"
url = "file:///srv/simple"
[target.b300.from]
nvidia-nvjpeg = "own"
[target.b300.package.torch]
coverage = "complete"
exempt = ["torch/lib/b.so"]

[target.rtx]
gpu = "sm_120"
platform = "aarch64-manylinux_2_39"
driver = "570"

[[overlay]]
distribution = "SGLang"
base = "0.5.9"
path = "overlays/sglang"
remove = ["srt/old.py"]
[[overlay]]
distribution = "other.one"
path = "overlays/other"
mode = "replace"

[package.Torch]
coverage = "files"
jit = "refuse"
exempt = ["torch/lib/a.so"]
winner = ["bin/x"]
[package.fa3.build]
source = "git+https://h.example/fa3@abc123"
env = { TORCH_CUDA_ARCH_LIST = "10.3" }
requires = ["ninja"]

[layout]
prefix = "/root/venv sglang/"
mode = "fixed"
interpreter-path = "/usr/bin/python3.12"
pin-processes = false

[[invariant]]
kind = "path"
path = "/data"
type = "dir"
writable = true
[[invariant]]
kind = "gpu"
arch = "sm_103"

[environment]
CUDA_HOME = "/usr/local/cuda"
A = ""

[[check]]
import = ["sglang", "torch.cuda"]
timeout = 20
[[check]]
run = ["python", "-c", "print(1)", "print(1)"]
network = "allowed"

[[group]]
same-version = ["flashinfer_python", "flashinfer-cubin"]

[source]
gpu = "sm_120"
driver = "570.1"
glibc = "2.39"
python = "3.12.3"
checks = { "import sglang" = true }
"""


def test_the_smallest_manifest_gets_its_defaults() -> None:
    target = Target(
        name="cpu",
        gpus=(),
        python="3.12",
        platform="x86_64-manylinux_2_28",
        glibc="2.28",
        driver=None,
        offline=True,
    )
    assert parse_manifest(SMALL) == m.Manifest(
        name="demo", version="1", python="3.12", targets=(m.TargetSpec(target=target),)
    )
    assert parse_manifest(SMALL).resolve.max_tries == 5


def test_every_section_is_read() -> None:
    manifest = parse_manifest(FULL)
    assert manifest == m.Manifest(
        name="llm",
        version="2026.12",
        python="3.12",
        serial=7,
        resolve=m.Resolve(
            requirements=("torch==2.9.0+cu130", "sglang", "mine @ ./wheels/mine-1-py3-none-any.whl"),
            requirement_files=("more.txt",),
            constraints=("numpy<3", "limits.txt"),
            find_links=("wheels", "https://h.example/links"),
            max_tries=9,
            indexes=(m.IndexSource(name="cu130", url="https://h.example/cu130", explicit=True),),
            sources=(("torch", "cu130"),),
        ),
        targets=(
            m.TargetSpec(
                target=Target(
                    name="b300",
                    gpus=(Arch("sm_103"), Arch("sm_100")),
                    python="3.12",
                    platform="x86_64-manylinux_2_39",
                    glibc="2.39",
                    driver="580.65.06",
                    offline=False,
                ),
                resolve=m.Resolve(
                    requirements=("nvidia-nvjpeg",),
                    constraints=("scipy<2",),
                    find_links=("more-wheels",),
                    indexes=(m.IndexSource(name="own", url="file:///srv/simple"),),
                    sources=(("nvidia-nvjpeg", "own"),),
                ),
                packages=(("torch", m.PackagePolicy(coverage="complete", exempt=("torch/lib/b.so",))),),
            ),
            m.TargetSpec(
                target=Target(
                    name="rtx",
                    gpus=(Arch("sm_120"),),
                    python="3.12",
                    platform="aarch64-manylinux_2_39",
                    glibc="2.39",
                    driver="570",
                )
            ),
        ),
        overlays=(
            m.Overlay(distribution="sglang", path="overlays/sglang", base="0.5.9", remove=("srt/old.py",)),
            m.Overlay(distribution="other-one", path="overlays/other", mode="replace"),
        ),
        packages=(
            (
                "fa3",
                m.PackagePolicy(
                    build=m.Build(
                        source="git+https://h.example/fa3@abc123",
                        env=(("TORCH_CUDA_ARCH_LIST", "10.3"),),
                        requires=("ninja",),
                    )
                ),
            ),
            (
                "torch",
                m.PackagePolicy(
                    coverage="files", jit="refuse", exempt=("torch/lib/a.so",), winner=("bin/x",)
                ),
            ),
        ),
        layout=m.Layout(
            prefix="/root/venv sglang",
            mode="fixed",
            interpreter_path="/usr/bin/python3.12",
            pin_processes=False,
        ),
        invariants=(
            m.Invariant(kind="path", fields=(("path", "/data"), ("type", "dir"), ("writable", True))),
            m.Invariant(kind="gpu", fields=(("arch", ["sm_103"]),)),
        ),
        environment=(("A", ""), ("CUDA_HOME", "/usr/local/cuda")),
        checks=(
            m.Check(imports=("sglang", "torch.cuda"), timeout=20),
            m.Check(run=("python", "-c", "print(1)", "print(1)"), network="allowed"),
        ),
        groups=(m.Group(same_version=("flashinfer-python", "flashinfer-cubin")),),
        source=m.Source(
            gpus=("sm_120",), driver="570.1", glibc="2.39", python="3.12.3", checks=(("import sglang", True),)
        ),
    )


def test_a_target_adds_its_own_to_what_is_common() -> None:
    manifest = parse_manifest(FULL)
    merged = manifest.resolve_for("b300")
    assert merged.requirements == (*manifest.resolve.requirements, "nvidia-nvjpeg")
    assert merged.constraints == ("numpy<3", "limits.txt", "scipy<2")
    assert merged.find_links == ("wheels", "https://h.example/links", "more-wheels")
    assert [index.name for index in merged.indexes] == ["cu130", "own"]
    assert merged.sources == (("nvidia-nvjpeg", "own"), ("torch", "cu130"))
    assert merged.max_tries == 9
    assert manifest.resolve_for("rtx") == manifest.resolve
    assert manifest.policies("b300")["torch"] == m.PackagePolicy(
        coverage="complete", jit="refuse", exempt=("torch/lib/a.so", "torch/lib/b.so"), winner=("bin/x",)
    )
    assert manifest.policies("rtx")["torch"].coverage == "files"


def test_where_things_stand_in_the_text_means_nothing() -> None:
    tables = re.split(r"\n(?=\[)", FULL.strip())
    # arrays of tables keep their order, and what hangs below one stays with it
    top = [t for t in tables if not t.startswith("[[")]
    arrays = [t for t in tables if t.startswith("[[")]
    turned = parse_manifest("\n".join([*reversed(top), *arrays]))
    assert [spec.target.name for spec in turned.targets] == ["rtx", "b300"]
    assert sorted(turned.targets, key=lambda s: s.target.name) == list(parse_manifest(FULL).targets)
    assert replace(turned, targets=()) == replace(parse_manifest(FULL), targets=())


def test_defaults_written_out_are_the_same_as_not_written() -> None:
    more = SMALL + 'glibc = "2.28"\noffline = true\n[layout]\nmode = "relocatable"\ninterpreter = "host"\n'
    more += "pin-processes = true\n[resolve]\nno-index = false\ncomplete = false\nmax-tries = 5\nrequirements = []\n"
    assert parse_manifest(more) == parse_manifest(SMALL)
    assert document(parse_manifest(more)) == document(parse_manifest(SMALL))


def test_a_requirement_with_a_direct_reference_needs_no_index() -> None:
    text = SMALL + '[resolve]\nno-index = true\nrequirements = ["a @ ./a-1-py3-none-any.whl"]\n'
    assert parse_manifest(text).resolve.no_index


ACCEPTED = {
    "two pins of other machines": '[resolve]\nrequirements = ["a==1; sys_platform == \'linux\'", "a==2; sys_platform == \'darwin\'"]\n',
    "same pin twice": '[resolve]\nrequirements = ["a==1", "A==1"]\n',
    "overlay of a local version": '[resolve]\nrequirements=["a==1"]\n[[overlay]]\ndistribution="a"\npath="x"\nbase="1+cu130"\n',
    "complete with references": '[resolve]\ncomplete = true\nrequirements = ["a===1", "b==1", "c @ https://h.example/c.whl"]\n',
    "ssh with a user": '[resolve]\nrequirements = ["a @ git+ssh://git@h.example/a@v1"]\n',
    "bare wheels without an index": '[resolve]\nno-index = true\nrequirements = ["./w/a-1-py3-none-any.whl", "https://h.example/b-1%2Bcu130-py3-none-any.whl ; sys_platform == \'linux\'"]\n',
    "no-index with files only": '[resolve]\nno-index = true\nrequirement-files = ["r.txt"]\n',
    "no-index with the target's wheels": '[target.b]\ngpu="none"\nplatform="x86_64-manylinux_2_39"\nrequirements=["a"]\nfind-links=["w"]\n[resolve]\nno-index = true\n',
    "relocatable with a prefix": '[layout]\nprefix = "/a b/c$(d)"\n',
    "complete coverage where one target has a GPU": '[target.b]\ngpu="sm_90"\nplatform="x86_64-manylinux_2_39"\n[package.x]\ncoverage="complete"\n',
    "glibc below the platform's": '[target.b]\ngpu="none"\nplatform="x86_64-manylinux_2_39"\nglibc="2.34"\n',
    "AMD": '[target.b]\ngpu="gfx942"\nplatform="x86_64-manylinux_2_39"\n',
}  # fmt: skip


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_what_only_looks_contradictory_is_read(text: str) -> None:
    manifest = parse_manifest(SMALL + text)
    assert parse_manifest(render_manifest(manifest)) == manifest


def test_rendering_keeps_comments_where_they_were_asked_for() -> None:
    text = render_manifest(
        parse_manifest(FULL),
        header=[":schema ./s.json", "by hand"],
        comments={"source": "two\nlines", "target.rtx": "one"},
    )
    assert text.startswith("#:schema ./s.json\n# by hand\n\n[bundle]\n")
    assert "\n# two\n# lines\n[source]\n" in text
    assert "\n# one\n[target.rtx]\n" in text


def test_the_template_is_valid_as_it_is_and_with_every_setting_in_use() -> None:
    text = manifest_template(name="my-env", requirements=['torch==2.9.0; sys_platform == "linux"'])
    assert text.startswith("#:schema ./envbundle.schema.json\n")
    plain = parse_manifest(text)
    assert plain.name == "my-env"
    assert plain.resolve.requirements == ('torch==2.9.0; sys_platform == "linux"',)
    used = re.sub(r"(?m)^#(?=[A-Za-z\[])", "", text)
    assert used.count("\n#") < text.count("\n#") - 25
    full = document(parse_manifest(used))
    assert set(full) >= {"overlay", "package", "invariant", "environment", "check", "group", "layout"}
    assert parse_manifest(manifest_template()) is not None


@pytest.mark.parametrize("folder", ["My Env", "..", "", "ünï", "a" * 300, "-x-", "venv_sglang211"])
def test_any_folder_suggests_a_legal_name(folder: str) -> None:
    name = suggest_bundle_name(folder)
    assert check_bundle_name(name) == name
    assert parse_manifest(manifest_template(name=name)).name == name


KIND_SAMPLES: dict[str, dict[str, Any]] = {
    "path": {"path": "/x", "type": "dir", "mode": "0755", "readable": True, "writable": False},
    "tool": {"tool": "nvcc", "min": "12.9", "version-args": ["--version"]},
    "library": {"soname": "libibverbs.so.1"},
    "model": {"path": "/m", "digests": {"a/b.safetensors": "sha256:" + "0" * 64}},
    "driver": {"min": "580"},
    "gpu": {"min-count": 8, "arch": ["sm_103", "sm_100"]},
    "space": {"bytes": 10, "path": "/var"},
    "env": {"name": "HOME", "matches": "/.*"},
}


def test_every_kind_of_invariant_has_a_sample_with_all_its_fields() -> None:
    assert {kind: set(fields) for kind, fields in KIND_SAMPLES.items()} == {
        k: set(r.fields) for k, r in KINDS.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_an_invariant_is_read_by_its_row(kind: str) -> None:
    invariant = m.Invariant(kind=kind, fields=tuple(sorted(KIND_SAMPLES[kind].items())))
    manifest = parse_manifest(SMALL)
    with_it = m.Manifest(
        name="demo", version="1", python="3.12", targets=manifest.targets, invariants=(invariant,)
    )
    assert parse_manifest(render_manifest(with_it)).invariants == (invariant,)
    assert invariant.to_dict() == {"kind": kind, **KIND_SAMPLES[kind]}


@pytest.mark.parametrize("path", ["/a", "/a b", "/ünï/x$(y)`z`", "/a/", "/a..b/.c"])
def test_a_prefix_may_hold_what_a_shebang_bears(path: str) -> None:
    assert check_prefix(path) == path.rstrip("/")
