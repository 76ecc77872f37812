"""Every kind of bad input: code, exit status, what the finding says, and that nothing was left behind.

2: what a person wrote. 1: the facts refuse. 3: bytes or signatures are not what was promised. 4: this
machine or the network. Disks that are full or read-only are in test_disk.py; they need mounts.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from ..builders import wheel_bytes
from .kit import OLD_PYTHON, PLATFORM, PYTHON, SITE, new_key

if TYPE_CHECKING:
    from pathlib import Path

    from .kit import Case

GOOD = f"""[bundle]
name = "case"
version = "1.0"
python = "{PYTHON}"

[resolve]
requirements = ["app==1.0"]
find-links = ["wheels"]
no-index = true

[target.sm_103]
gpu = "sm_103"
platform = "{PLATFORM}"

[[overlay]]
distribution = "app"
path = "overlays/app"
"""


@pytest.fixture
def app(case: Case) -> Case:
    """A project that locks: one wheel, one overlay, one target."""
    case.wheel("app", "1.0", {"app/__init__.py": "", "app/a.py": "value = 1\n"}, entry_points={"console_scripts": {"app": "app.a:main"}})
    case.overlay("app", {"app/a.py": "value = 2\n"})
    (case.folder / "envbundle.toml").write_text(GOOD)
    return case


def _change(case: Case, old: str, new: str) -> None:
    path = case.folder / "envbundle.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_project_without_a_fault_locks(app: Case) -> None:
    app.locked()


# --- exit 2: what a person wrote

MANIFEST_FAULTS = {
    "unknown key": ('name = "case"', 'name = "case"\nnmae = "x"', "E-KEY", "bundle.nmae"),
    "unknown key of a target": ('gpu = "sm_103"', 'gpu = "sm_103"\nglibcc = "2.39"', "E-KEY", "target.sm_103.glibcc"),
    "unknown key of an overlay": ('distribution = "app"', 'distribution = "app"\nfiles = []', "E-KEY", "overlay[0].files"),
    "unknown table": ("[resolve]", "[resolver]\nx = 1\n[resolve]", "E-KEY", "resolver"),
    "a number for text": ('version = "1.0"', "version = 1.0", "E-TYPE", "bundle.version"),
    "text for a list": ('requirements = ["app==1.0"]', 'requirements = "app==1.0"', "E-TYPE", "resolve.requirements"),
    "text for a boolean": ("no-index = true", 'no-index = "true"', "E-TYPE", "resolve.no-index"),
    "a list for a table": ("[target.sm_103]", "[[target.sm_103]]", "E-TYPE", "target.sm_103"),
    "a date for text": ('python = "', 'serial = 2026-12-01\npython = "', "E-TYPE", "bundle.serial"),
    "no target": (f'[target.sm_103]\ngpu = "sm_103"\nplatform = "{PLATFORM}"\n', "", "E-MISSING", "target"),
    "a target with a capital": ("[target.sm_103]", "[target.SM_103]", "E-TARGET-NAME", "target.SM_103"),
    "a target with a dot": ("[target.sm_103]", '[target."b300.prod"]', "E-TARGET-NAME", "b300.prod"),
    "a target that is a path": ("[target.sm_103]", '[target."../x"]', "E-TARGET-NAME", "../x"),
    "a target without a name": ("[target.sm_103]", '[target.""]', "E-TARGET-NAME", "target"),
    "a bundle that is a path": ('name = "case"', 'name = "../../x"', "E-VALUE", "bundle.name"),
    "a version that is a path": ('version = "1.0"', 'version = "../1"', "E-VALUE", "bundle.version"),
    "no such gpu": ('gpu = "sm_103"', 'gpu = "b300"', "E-VALUE", "target.sm_103.gpu"),
    "no such platform": (f'platform = "{PLATFORM}"', 'platform = "linux_x86_64"', "E-VALUE", "target.sm_103.platform"),
    "no such python": (f'python = "{PYTHON}"', 'python = "3"', "E-VALUE", "bundle.python"),
    "an overlay of what is not locked": ('distribution = "app"', 'distribution = "other"', "E-OVERLAY-UNLOCKED", "overlays/app"),
    "an overlay that is not there": ('path = "overlays/app"', 'path = "overlays/none"', "E-OVERLAY-FOLDER", "overlays/none"),
    "find-links that are not there": ('find-links = ["wheels"]', 'find-links = ["whels"]', "E-FIND-LINKS", "whels"),
    "credentials in a URL": ("no-index = true", '[[resolve.index]]\nname = "i"\nurl = "https://u:p@h.invalid/simple"', "E-CREDENTIALS", "url"),
    "replace and remove": ('path = "overlays/app"', 'path = "overlays/app"\nmode = "replace"\nremove = ["a.py"]', "E-CONTRADICTION", "overlay"),
    "two overlays of one distribution": (
        '[[overlay]]\ndistribution = "app"',
        '[[overlay]]\ndistribution = "App"\npath = "o2"\n[[overlay]]\ndistribution = "app"',
        "E-CONTRADICTION",
        "overlay",
    ),
    "two default indexes": (
        "no-index = true",
        ('[[resolve.index]]\nname = "a"\nurl = "https://a.invalid"\ndefault = true\n'
        '[[resolve.index]]\nname = "b"\nurl = "https://b.invalid"\ndefault = true'),
        "E-CONTRADICTION",
        "index",
    ),
    "fixed without a prefix": ("[[overlay]]", '[layout]\nmode = "fixed"\n[[overlay]]', "E-CONTRADICTION", "layout"),
    "a prefix with a newline": ("[[overlay]]", '[layout]\nprefix = "/opt/a\\nb"\n[[overlay]]', "E-PREFIX-CHARS", "layout.prefix"),
    "a prefix with a NUL": ("[[overlay]]", '[layout]\nprefix = "/opt/a\\u0000b"\n[[overlay]]', "E-PREFIX-CHARS", "layout.prefix"),
    "a prefix with a quote": ("[[overlay]]", "[layout]\nprefix = \"/opt/it's\"\n[[overlay]]", "E-PREFIX-CHARS", "layout.prefix"),
    "a prefix with a double quote": ("[[overlay]]", '[layout]\nprefix = "/opt/a\\"b"\n[[overlay]]', "E-PREFIX-CHARS", "layout.prefix"),
    "a relative prefix": ("[[overlay]]", '[layout]\nprefix = "opt/env"\n[[overlay]]', "E-VALUE", "layout.prefix"),
    "no TOML": ("[resolve]", "[resolve", "E-TOML", ""),
    "a key twice": ('name = "case"', 'name = "case"\nname = "x"', "E-TOML", ""),
    "a requirement that is none": ('"app==1.0"', '"app = 1.0"', "E-VALUE", "requirements"),
    "two pins": ('"app==1.0"', '"app==1.0", "app==2.0"', "E-CONTRADICTION", "requirements"),
}


@pytest.mark.parametrize("name", MANIFEST_FAULTS)
def test_2_manifest(app: Case, name: str) -> None:
    old, new, code, where = MANIFEST_FAULTS[name]
    _change(app, old, new)
    found = app.refused(2, code, "lock")
    assert where in found["subject"], found
    assert found["expected"] or found["found"]
    for command in (("plan", "--arch", "sm_103"), ("pack", "--key", "key")):
        before = app.listing()
        assert app.run(*command).status != 0
        assert app.listing() == before


def test_2_bytes_that_are_no_text(app: Case) -> None:
    (app.folder / "envbundle.toml").write_bytes(GOOD.encode() + b"# \xff\xfe\n")
    found = app.refused(2, "E-TOML", "lock")
    assert (found["subject"], found["found"]) == (f"envbundle.toml:{GOOD.count(chr(10)) + 1}:3", "the byte 0xff")


def test_2_several_faults_are_all_told(app: Case) -> None:
    _change(app, 'name = "case"', 'name = "case"\nnmae = 1')
    _change(app, "no-index = true", "no-index = 1")
    assert app.run("lock").codes == ["E-KEY", "E-TYPE"]


@pytest.mark.parametrize("command", ["lock", "pack"])
@pytest.mark.parametrize("name", ["sm_90", "SM_103", "../sm_103", "", "sm_103\n", "pylock"])
def test_2_a_target_that_the_manifest_does_not_have(app: Case, command: str, name: str) -> None:
    words = [command, "--arch", name] + (["--key", "key"] if command == "pack" else [])
    found = app.refused(2, "E-TARGET-UNKNOWN", *words)
    assert "sm_103" in found["expected"]


def test_2_one_gpu_of_two_targets(app: Case) -> None:
    _change(app, "[[overlay]]", f'[target.other]\ngpu = "sm_103"\nplatform = "{PLATFORM}"\n[[overlay]]')
    app.locked("sm_103")  # the name wins
    _change(app, "[target.sm_103]", "[target.b300]")
    assert "b300" in app.refused(2, "E-TARGET-AMBIGUOUS", "lock", "--arch", "sm_103")["found"]


@pytest.mark.parametrize(
    "words",
    [
        ("lock", "--no-such-option"),
        ("lok",),
        ("pack", "--level", "x"),
        ("install",),
        ("install", "dist", "--reuse", "guess"),
        ("lock", "stray"),
        ("pack", "--key", "key", "--unsigned"),
        (),
    ],
)
def test_2_usage(app: Case, words: tuple[str, ...]) -> None:
    app.refused(2, "E-USAGE", *words)


@pytest.mark.parametrize("level", ["0", "20", "-1"])
def test_2_level(app: Case, level: str) -> None:
    app.locked()
    app.refused(2, "E-LEVEL", "pack", "--key", "key", f"--level={level}")


def test_2_no_manifest(app: Case) -> None:
    app.refused(2, "E-NO-MANIFEST", "lock", "--manifest", "other.toml")


@pytest.mark.parametrize(
    ("prefix", "code"),
    [
        ("/opt/a\nb", "E-PREFIX-CHARS"),
        ("/opt/a\0b", "E-PREFIX-CHARS"),
        ("/opt/it's", "E-PREFIX-CHARS"),
        ('/opt/"x"', "E-PREFIX-CHARS"),
        ("/opt/a:b", "E-PREFIX-CHARS"),
        ("/opt/a\\b", "E-PREFIX-CHARS"),
        ("/opt/a\tb", "E-PREFIX-CHARS"),
        ("/opt/\x7f", "E-PREFIX-CHARS"),
        ("/", "E-VALUE"),
    ],
)
@pytest.mark.parametrize("check", [(), ("--check",)])
def test_2_prefix(app: Case, prefix: str, code: str, check: tuple[str, ...]) -> None:
    app.packed()
    found = app.refused(2, code, "install", "dist", "--prefix", prefix, "--no-device", *check)
    assert found["subject"] == "prefix"


def test_2_a_hostile_prefix_runs_nothing(app: Case) -> None:
    app.packed()
    prefix = app.root / "$(touch X)" / "`touch Y`;touch Z"
    prefix.parent.mkdir()
    app.ok("install", "dist", "--prefix", prefix, "--no-device")
    import subprocess

    where = subprocess.run(
        ["/bin/sh", "-c", f". '{prefix}/bin/activate' && python -c 'import sys; print(sys.prefix)'"],
        cwd=app.root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert str(prefix.parent) in where.stdout
    assert not [path for path in app.root.rglob("*") if path.name in ("X", "Y", "Z")]


@pytest.mark.parametrize("content", [b"", b"no key\n", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"])
def test_2_a_key_that_is_none(app: Case, content: bytes) -> None:
    app.locked()
    (app.folder / "bad").write_bytes(content)
    app.refused(2, "E-KEY-FORMAT", "pack", "--key", "bad")


def test_2_no_key(app: Case) -> None:
    app.locked()
    app.refused(2, "E-KEY-MISSING", "pack", "--key", "none")
    app.refused(2, "E-KEY-MISSING", "pack")


@pytest.mark.parametrize("wanted", ["other", "sm_90", "../case", ""])
def test_2_a_bundle_that_is_not_there(app: Case, wanted: str) -> None:
    app.packed()
    for words in (("install", "dist", "--prefix", "/nowhere/env"), ("verify", "dist"), ("copy", "dist", "there")):
        app.refused(2, "E-NO-BUNDLE", *words, "--arch", wanted)


# --- exit 1: the facts refuse

OTHER = "win_amd64"
WHEELS_FOR_OTHERS = {
    "another platform": {"tag": f"py3-none-{OTHER}"},
    "another processor": {"tag": "py3-none-manylinux_2_17_aarch64" if "x86_64" in PLATFORM else "py3-none-manylinux_2_17_x86_64"},
    "a newer glibc": {"tag": f"py3-none-manylinux_2_39_{PLATFORM.partition('-')[0]}"},
    "another Python": {"tag": f"cp{OLD_PYTHON.replace('.', '')}-cp{OLD_PYTHON.replace('.', '')}-manylinux_2_17_{PLATFORM.partition('-')[0]}"},
    "a Mac": {"tag": "py3-none-macosx_11_0_arm64"},
}


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
@pytest.mark.parametrize("name", WHEELS_FOR_OTHERS)
def test_1_a_wheel_for_others_only(case: Case, name: str, complete: bool) -> None:
    case.wheel("app", "1.0", tag=WHEELS_FOR_OTHERS[name]["tag"])
    case.manifest("app==1.0", resolve=f'find-links = ["wheels"]\nno-index = true\ncomplete = {str(complete).lower()}')
    found = case.refused(1, "E-NO-WHEEL", "lock")
    assert found["subject"] == "app 1.0"
    assert PYTHON in found["expected"]
    assert WHEELS_FOR_OTHERS[name]["tag"] in found["found"]


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
def test_1_a_pin_whose_wheel_holds_nothing_for_the_target(case: Case, complete: bool) -> None:
    case.gpu_wheel("kern", "sm_90", version="1.0")
    case.gpu_wheel("kern", "sm_103", version="1.1")
    case.manifest("kern==1.0", resolve=f'find-links = ["wheels"]\nno-index = true\ncomplete = {str(complete).lower()}')
    done = case.run("lock")
    assert (done.status, done.codes) == (1, ["E-ARCH-NONE"])
    assert "1.1" in done.one("N-PINNED")["hint"]
    assert not (case.folder / "pylock.sm_103.toml").exists()
    case.manifest("kern>=1.0")
    case.locked()


def test_1_the_base_of_an_overlay_moved(app: Case) -> None:
    app.locked()
    lock = (app.folder / "pylock.sm_103.toml").read_bytes()
    for path in app.wheels.iterdir():
        path.unlink()
    app.wheel("app", "1.0", {"app/__init__.py": "", "app/a.py": "value = 10\n"})
    found = app.refused(1, "E-OVERLAY-BASE", "lock")
    assert "app/a.py" in found["subject"]
    assert found["expected"].startswith("sha256:")
    assert found["found"].startswith("sha256:")
    assert (app.folder / "pylock.sm_103.toml").read_bytes() == lock
    app.ok("lock", "--upgrade-package", "app")


@pytest.mark.parametrize(
    "files",
    [{"app/__init__.py": ""}, {"app/__init__.py": "", "app/a/__init__.py": ""}],
    ids=["the file is gone", "it became a folder"],
)
def test_1_the_base_of_an_overlay_went_away(app: Case, files: dict[str, str]) -> None:
    app.locked()
    for path in app.wheels.iterdir():
        path.unlink()
    app.wheel("app", "1.0", files)
    assert "no such file" in app.refused(1, "E-OVERLAY-BASE", "lock")["found"]


def test_1_an_overlay_for_another_version(app: Case) -> None:
    _change(app, 'distribution = "app"', 'distribution = "app"\nbase = "0.9"')
    app.refused(2, "E-CONTRADICTION", "lock")  # two texts of the manifest contradict each other
    _change(app, '"app==1.0"', '"app"')
    assert "0.9" in app.refused(1, "E-NO-SOLUTION", "lock")["found"]


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ({"both/x.py": "1"}, {"both/x.py": "2"}, f"{SITE}/both/x.py"),
        ({"both/x.py": "1"}, {"both/x.py/y.py": "2"}, f"{SITE}/both/x.py"),
    ],
    ids=["other bytes", "a file and a folder"],
)
def test_1_contested_path(case: Case, one: dict[str, str], other: dict[str, str], path: str) -> None:
    case.wheel("one", "1.0", one)
    case.wheel("other", "1.0", other)
    case.manifest("one==1.0", "other==1.0")
    found = case.refused(1, "E-OVERLAP", "lock")
    assert found["subject"] == path
    assert "one" in found["found"]
    assert "other" in found["found"]


def test_1_contested_path_with_a_winner_or_equal_bytes(case: Case) -> None:
    case.wheel("one", "1.0", {"both/x.py": "1", "both/same.py": "s"})
    case.wheel("other", "1.0", {"both/x.py": "2", "both/same.py": "s"})
    case.manifest("one==1.0", "other==1.0", more=f'[package.other]\nwinner = ["{SITE}/both/x.py"]')
    case.packed()
    assert (case.installed() / SITE / "both/x.py").read_text() == "2"


def test_1_no_lock_and_a_stale_lock(app: Case) -> None:
    app.refused(1, "E-LOCK-MISSING", "pack", "--key", "key")
    app.locked()
    _change(app, 'version = "1.0"', 'version = "1.1"')
    app.refused(1, "E-LOCK-STALE", "pack", "--key", "key")
    done = app.run("lock", "--check")
    assert (done.status, done.answer["targets"]["sm_103"]["status"]) == (1, "stale")


def test_1_nothing_solves(case: Case) -> None:
    case.wheel("app", "1.0", requires=["lib>=2"])
    case.wheel("lib", "1.0")
    case.manifest("app==1.0")
    assert "lib" in case.refused(1, "E-NO-SOLUTION", "lock")["found"]


# --- exit 3: bytes are not what was promised


def _bad_bytes(case: Case, data: bytes, filename: str = "app-1.0-py3-none-any.whl") -> Path:
    path = case.wheels / filename
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
@pytest.mark.parametrize("keep", [0, 10, 100, -1, -22, -40], ids=lambda n: f"[:{n}]")
def test_3_truncated_wheel(case: Case, keep: int, complete: bool) -> None:
    _bad_bytes(case, wheel_bytes("app", "1.0")[:keep])
    case.manifest("app==1.0", resolve=f'find-links = ["wheels"]\nno-index = true\ncomplete = {str(complete).lower()}')
    found = case.refused(3, "E-WHEEL-ZIP", "lock")
    assert "app-1.0-py3-none-any.whl" in found["subject"]


@pytest.mark.parametrize(
    ("change", "code"),
    [(lambda data: data[:-1], "E-SIZE"), (lambda data: data[:-1] + b"\1", "E-HASH"), (lambda _: b"", "E-SIZE")],
    ids=["shorter", "another byte", "empty"],
)
def test_3_a_wheel_that_is_not_the_locked_one(app: Case, change: object, code: str) -> None:
    app.locked()
    path = app.wheels / "app-1.0-py3-none-any.whl"
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    found = app.refused(3, code, "pack", "--key", "key")
    assert "app-1.0-py3-none-any.whl" in found["subject"]
    assert found["expected"] != found["found"]


def test_4_a_wheel_that_is_gone(app: Case) -> None:
    app.locked()
    (app.wheels / "app-1.0-py3-none-any.whl").unlink()
    found = app.refused(4, "E-ARTIFACT-GONE", "pack", "--key", "key")
    assert found["subject"] == "app-1.0-py3-none-any.whl"


@pytest.mark.parametrize("text", ["", "lock-version = '1.0'\n", "[", "x = 1\n", "\0"])
def test_3_a_lock_that_is_none(app: Case, text: str) -> None:
    app.locked()
    (app.folder / "pylock.sm_103.toml").write_text(text)
    before = app.listing()
    done = app.run("pack", "--key", "key")
    assert done.status == 3, done.answer
    assert app.listing() == before
    app.locked()  # which makes it anew


# --- exit 3: stores


@pytest.fixture
def store(app: Case) -> Path:
    return app.packed()


def _blobs(store: Path) -> list[Path]:
    return sorted((store / "blobs/sha256").iterdir())


def test_3_missing_blob(app: Case, store: Path) -> None:
    for path in _blobs(store):
        data = path.read_bytes()
        path.unlink()
        for words in (("verify", "dist"), ("install", "dist", "--prefix", app.prefix, "--no-device"), ("copy", "dist", "there")):
            before = app.listing()
            done = app.run(*words)
            assert (done.status, done.codes) == (3, ["E-BLOB-MISSING"]), (words, done.answer)
            assert path.name in str(done.findings)
            if words[0] != "copy":
                assert app.listing() == before
        shutil.rmtree(app.folder / "there", ignore_errors=True)
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["flipped", "shorter", "longer", "empty"])
def test_3_changed_blob(app: Case, store: Path, how: str) -> None:
    for path in _blobs(store):
        data = path.read_bytes()
        middle = len(data) // 2
        changed = {
            "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "shorter": data[:-1],
            "longer": data + b"\0",
            "empty": b"",
        }[how]
        path.write_bytes(changed)
        for words in (("verify", "dist"), ("install", "dist", "--prefix", app.prefix, "--no-device")):
            before = app.listing()
            done = app.run(*words)
            assert done.status == 3, (words, path, done.answer)
            assert set(done.codes) & {"E-BLOB-HASH", "E-BLOB-SIZE", "E-BLOB-MISSING"}
            assert path.name in str(done.findings)
            assert app.listing() == before
        path.write_bytes(data)
    assert app.run("verify", "dist").status == 0


@pytest.mark.parametrize("name", ["index.json", "oci-layout"])
@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": NaN}', "[" * 100_000, '{"schemaVersion":2,"manifests":3}', "\0"])
def test_3_a_layout_that_is_none(app: Case, store: Path, name: str, text: str) -> None:
    (store / name).write_text(text)
    for words in (("verify", "dist"), ("install", "dist", "--prefix", app.prefix, "--no-device"), ("copy", "dist", "there")):
        before = app.listing()
        done = app.run(*words)
        assert done.status == 3, (words, done.answer)
        assert app.listing() == before


def test_4_no_store(app: Case) -> None:
    for words in (("install", "none", "--prefix", app.prefix), ("copy", "none", "there"), ("sign", "none", "--key", "key")):
        app.refused(4, "E-NOT-FOUND", *words)
    (app.folder / "other").mkdir()
    (app.folder / "other/file").write_text("x")
    for words in (("install", "other", "--prefix", app.prefix), ("copy", "other", "there")):
        app.refused(4, "E-NOT-A-STORE", *words)
    app.locked()
    app.refused(4, "E-NOT-A-STORE", "pack", "--key", "key", "-o", "other")
    (app.folder / "plain").write_text("x")
    assert app.run("pack", "--key", "key", "-o", "plain").status == 4
    app.refused(2, "E-NOTHING-TO-VERIFY", "verify", "none")


# --- exit 3: installed trees


@pytest.mark.parametrize("quick", [(), ("--quick",)], ids=["full", "quick"])
def test_3_drift_in_an_installed_tree(app: Case, store: Path, quick: tuple[str, ...]) -> None:
    prefix = app.installed()
    site = prefix / SITE
    app.ok("verify", prefix, *quick)
    (site / "app/new.py").write_text("")
    done = app.run("verify", prefix, *quick)
    assert (done.status, done.codes) == (3, ["E-EXTRA-FILE"])
    assert done.answer["files"]["extra"] == [f"{SITE}/app/new.py"]
    (site / "app/new.py").unlink()
    (site / "app/a.py").chmod(0o644)
    (site / "app/a.py").write_text("value = 33\n")
    done = app.run("verify", prefix, *quick)
    assert done.status == 3
    assert done.answer["files"]["modified"] == [f"{SITE}/app/a.py"]
    assert f"{SITE}/app/a.py" in [f["subject"] for f in done.findings]
    (site / "app/a.py").unlink()
    done = app.run("verify", prefix, *quick)
    assert done.status == 3
    assert done.answer["files"]["missing"] == [f"{SITE}/app/a.py"]


EXTRAS = {
    "a module": (f"{SITE}/zz.py", "x"),
    "a .pth": (f"{SITE}/zz.pth", "import os\n"),
    "sitecustomize": (f"{SITE}/sitecustomize.py", "x"),
    "bytecode": (f"{SITE}/__pycache__/zz.cpython-{PYTHON.replace('.', '')}.pyc", "x"),
    "a program": ("bin/zz", "#!/bin/sh\n"),
    "beside the receipt": (".envbundle/zz.json", "{}"),
    "at the top": ("zz", "x"),
}


@pytest.mark.parametrize("name", EXTRAS)
def test_3_an_extra_file_anywhere(app: Case, store: Path, name: str) -> None:
    prefix = app.installed()
    path, text = EXTRAS[name]
    (prefix / path).parent.mkdir(exist_ok=True)
    (prefix / path).write_text(text)
    done = app.run("verify", prefix)
    assert (done.status, done.codes) == (3, ["E-EXTRA-FILE"]), done.answer
    assert done.answer["files"]["extra"] == [path]


def test_3_changed_mode_link_or_kind(app: Case, store: Path) -> None:
    prefix = app.installed()
    path = prefix / SITE / "app/a.py"
    path.chmod(0o4755)
    assert app.run("verify", prefix).answer["files"]["modified"] == [f"{SITE}/app/a.py"]
    path.unlink()
    path.symlink_to("/etc/hostname")
    done = app.run("verify", prefix)
    assert done.status == 3
    assert f"{SITE}/app/a.py" in done.answer["files"]["modified"] + done.answer["files"]["missing"]


@pytest.mark.parametrize("text", ["", "{", "{}", "null", "[" * 50_000])
def test_3_a_receipt_that_is_none(app: Case, store: Path, text: str) -> None:
    prefix = app.installed()
    (prefix / ".envbundle/receipt.json").write_text(text)
    for words in (("verify", prefix), ("receipt", prefix)):
        before = app.listing()
        done = app.run(*words)
        assert done.status == 3, (words, done.answer)
        assert app.listing() == before


# --- exit 4: this machine


@pytest.mark.parametrize("what", ["a file", "a folder", "a folder with files", "a link", "a broken link", "generations of another"])
def test_4_a_prefix_that_is_not_ours(app: Case, store: Path, what: str) -> None:
    prefix = app.prefix
    if what == "a file":
        prefix.write_text("mine")
    elif what == "a folder":
        prefix.mkdir()
    elif what == "a folder with files":
        (prefix / "bin").mkdir(parents=True)
        (prefix / "bin/python").write_text("mine")
    elif what == "a link":
        (app.root / "real").mkdir()
        prefix.symlink_to("real")
    elif what == "a broken link":
        prefix.symlink_to("nowhere")
    else:
        (app.root / "env.generations").write_text("mine")
    found = app.refused(4, "E-PREFIX-FOREIGN", "install", "dist", "--prefix", prefix, "--no-device")
    assert found["subject"] == str(prefix)


def test_4_a_prefix_below_a_file(app: Case, store: Path) -> None:
    (app.root / "file").write_text("x")
    before = app.listing()
    done = app.run("install", "dist", "--prefix", app.root / "file/env", "--no-device")
    assert done.status == 4, done.answer
    assert app.listing() == before


def test_4_a_prefix_with_too_long_a_name(app: Case, store: Path) -> None:
    before = app.listing()
    done = app.run("install", "dist", "--prefix", app.root / ("x" * 250), "--no-device")
    assert done.status == 4, done.answer
    assert app.listing() == before


def test_4_no_interpreter_for_the_bundle(case: Case) -> None:
    case.wheel("app", "1.0")
    case.manifest("app==1.0", python="3.99")
    case.packed()
    found = case.refused(4, "E-HOST-PYTHON", "install", "dist", "--prefix", case.prefix, "--no-device")
    assert "3.99" in found["expected"]


# --- several targets


def test_the_exit_status_of_several_targets_is_the_highest(case: Case) -> None:
    case.gpu_wheel("kern", "sm_90")
    _bad_bytes(case, wheel_bytes("bad", "1.0")[:-30], "bad-1.0-py3-none-any.whl")
    case.manifest(
        gpu={"good": "sm_90", "verdict": "sm_120", "damaged": "sm_90"},
    )
    text = (case.folder / "envbundle.toml").read_text()
    text = text.replace("requirements = []", 'requirements = ["kern==1.0"]')
    text += f'[target.broken]\ngpu = "sm_90"\nplatform = "{PLATFORM}"\nrequirements = ["bad==1.0"]\n'
    text = text.replace("[target.damaged]", "[target.last]")
    (case.folder / "envbundle.toml").write_text(text)
    done = case.run("lock")
    assert done.status == 3, done.answer
    assert {name: t["status"] for name, t in done.answer["targets"].items()} == {
        "good": "written",
        "verdict": "refused",
        "last": "written",
        "broken": "refused",
    }
    assert sorted(path.name for path in case.folder.glob("pylock*")) == ["pylock.good.toml", "pylock.last.toml"]
    assert case.run("lock", "--arch", "good", "--arch", "verdict").status == 1
    done = case.run("pack", "--key", "key", "--arch", "good", "--arch", "verdict")
    assert done.status == 1
    assert done.answer["bundles"]["good"]["tag"] == "case-1.0-good"
    assert [entry["annotations"]["org.opencontainers.image.ref.name"] for entry in json.loads((case.store / "index.json").read_bytes())["manifests"]] == ["case-1.0-good"]


def test_a_refused_target_leaves_no_blob_in_the_store(case: Case) -> None:
    case.wheel("app", "1.0", {"app/__init__.py": "a" * 100})
    case.wheel("lib", "1.0", {"lib/__init__.py": "b" * 200})
    case.manifest("app==1.0", gpu={"one": "sm_90", "two": "sm_100"}, more='[target.two.package.x]\ncoverage = "any"')
    text = (case.folder / "envbundle.toml").read_text().replace("[target.two]\n", '[target.two]\nrequirements = ["lib==1.0"]\n')
    (case.folder / "envbundle.toml").write_text(text)
    case.packed("one")
    case.locked("two")
    before = case.listing()
    (case.wheels / "lib-1.0-py3-none-any.whl").write_bytes(b"PK")
    done = case.run("pack", "--key", "key", "--arch", "two")
    assert done.status == 3, done.answer
    after = case.listing()
    after.pop("project/wheels/lib-1.0-py3-none-any.whl")
    before.pop("project/wheels/lib-1.0-py3-none-any.whl")
    assert after == before
    case.ok("verify", "dist")


def test_wrong_keys_and_signers(app: Case) -> None:
    """The whole table of signatures is in test_signatures.py; here: files that cannot be read."""
    app.packed()
    (app.folder / "garbage").write_bytes(b"\xff\xfe\0 not a line\n")
    for option, code in (("--allowed-signers", "E-SIGNERS"), ("--revoked", "E-REVOKED-LIST")):
        app.refused(2, code, "install", "dist", "--prefix", app.prefix, "--no-device", option, "garbage")
    app.refused(2, "E-SIGNER-NAME", "install", "dist", "--prefix", app.prefix, "--no-device", "--signer", "*@x")
    other, _ = new_key(app.folder, "other")
    app.ok("sign", "dist", "--key", other)
