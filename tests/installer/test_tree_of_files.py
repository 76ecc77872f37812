"""What stands on the disk afterwards: modes, records, installers, links, equal files, bytecode."""


from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import stat
import sys
from importlib.metadata import PathDistribution
from typing import TYPE_CHECKING

import pytest

from envbundle.host.run import run
from envbundle.installer.fixers import FIXERS, Place, Subject
from envbundle.installer.install import install
from envbundle.installer.options import InstallOptions
from envbundle.installer.verify import verify_environment

from .builders import (
    LATER,
    NOW,
    PYTHON,
    SITE,
    Dist,
    Patch,
    bundle,
    inline,
    listing,
    output,
    sample,
    sample_items,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=["022", "077", "000"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_b44_modes_do_not_hang_on_the_umask(tmp_path: Path, umask: int) -> None:
    patched = Dist(
        name="patched",
        files={"patched/m.py": "x = 1\n", "patched/bin/ptxas": b"\x7fELF"},
        executable=("patched/bin/ptxas",),
    )
    given = bundle(*sample_items("one"), patched, Patch(name="patched", files={"patched/m.py": "x = 2\n"}))
    prefix = tmp_path / "env"
    install(*given, InstallOptions(prefix=prefix), now=NOW)
    root = (prefix / ".").resolve()
    wanted = {
        "bin/app": 0o755,
        f"{SITE}/lib/tool": 0o555,  # published and not patched: read-only
        f"{SITE}/app/late.py": 0o444,
        f"{SITE}/patched/bin/ptxas": 0o755,
        f"{SITE}/patched/m.py": 0o644,
        f"{SITE}/app/__pycache__/late.{sys.implementation.cache_tag}.pyc": 0o444,
        f"{SITE}/patched/__pycache__/m.{sys.implementation.cache_tag}.pyc": 0o644,
        f"{SITE}/app/__pycache__": 0o755,
        f"{SITE}/app": 0o755,
        "bin": 0o755,
        ".": 0o755,
        "pyvenv.cfg": 0o644,
        ".envbundle/receipt.json": 0o644,
    }
    assert {path: stat.S_IMODE((root / path).stat().st_mode) for path in wanted} == wanted
    assert verify_environment(prefix, runner=run).ok


def test_private_copies_are_writable(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    options = InstallOptions(prefix=prefix, reuse="copy")
    install(*sample("one"), options, now=NOW)
    first = (prefix / SITE / "lib/big.bin").stat()
    assert stat.S_IMODE(first.st_mode) == 0o644
    result = install(*sample("two"), options, now=LATER)
    second = (prefix / SITE / "lib/big.bin").stat()
    assert result.reused_bytes > 20000
    assert (second.st_nlink, second.st_mtime_ns) == (1, first.st_mtime_ns)
    assert second.st_ino != first.st_ino
    assert verify_environment(prefix).ok


def test_what_is_overlaid_is_never_shared(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    app, lib = sample_items("one")
    install(*bundle(app, lib), InstallOptions(prefix=prefix), now=NOW)
    install(
        *bundle(app, lib, Patch(name="lib", files={"lib/new.py": "x = 1\n"})),
        InstallOptions(prefix=prefix),
        now=LATER,
    )
    for name in ("lib/big.bin", "lib/new.py", "lib/__init__.py"):
        status = (prefix / SITE / name).stat()
        assert (status.st_nlink, stat.S_IMODE(status.st_mode)) == (1, 0o644)
    for name in ("pyvenv.cfg", "bin/app", "bin/activate", f"{SITE}/app-1.0.dist-info/RECORD"):
        assert (prefix / name).stat().st_nlink == 1
    assert (prefix / SITE / "app/late.py").stat().st_nlink == 2


@pytest.mark.parametrize("change", ["edited", "same-size-and-time", "replaced", "gone"])
def test_an_old_file_that_changed_is_not_reused(tmp_path: Path, change: str) -> None:
    prefix = tmp_path / "env"
    install(*sample("one"), InstallOptions(prefix=prefix), now=NOW)
    path = (prefix / SITE / "lib/big.bin").resolve()
    right, status = path.read_bytes(), path.stat()
    path.chmod(0o644)
    if change == "edited":
        path.write_bytes(b"hacked")
    elif change == "same-size-and-time":
        path.write_bytes(bytes(len(right)))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif change == "replaced":
        path.rename(path.with_name("other"))
        path.write_bytes(right)
    else:
        path.unlink()
    if path.exists():
        path.chmod(0o444)
    options = InstallOptions(prefix=prefix, verify_all=change == "same-size-and-time")
    install(*sample("two"), options, now=LATER)
    new = (prefix / SITE / "lib/big.bin").resolve()
    assert new != path
    assert new.read_bytes() == right
    assert new.stat().st_nlink == 1
    assert verify_environment(prefix).ok


def test_b38_nothing_outside_the_generations_is_linked(tmp_path: Path) -> None:
    for name in ("one", "two"):
        install(*sample("same"), InstallOptions(prefix=tmp_path / name), now=NOW)
    status = (tmp_path / "two" / SITE / "lib/big.bin").stat()
    assert status.st_nlink == 1


def test_b48_record_says_what_is_installed(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    app = Dist(
        name="my-app",
        version="1.5",
        files={
            "my_app/__init__.py": "value = 1\n",
            "my_app/gone.py": "x = 1\n",
            "data/share/my, app/read me.txt": "hello",
            "headers/my.h": "int x;",
            "purelib/my_app-1.5.dist-info/INSTALLER": "pip\n",
        },
        scripts={"carried": "#!python\nprint(1)\n"},
        entry_points={"written": "my_app:value"},
        links={"my_app/alias.py": "__init__.py"},
    )
    patch = Patch(
        name="my-app", version="1.5", files={"my_app/__init__.py": "value = 2\n"}, remove=("my_app/gone.py",)
    )
    install(*bundle(app, patch), InstallOptions(prefix=prefix), now=NOW)
    site = prefix / SITE
    info = site / "my_app-1.5.dist-info"
    assert (info / "INSTALLER").read_text() == "envbundle\n"
    rows = {row[0]: row[1:] for row in csv.reader((info / "RECORD").read_text().splitlines())}
    expected = {
        "my_app/__init__.py", "my_app/alias.py", "my_app-1.5.dist-info/METADATA", "my_app-1.5.dist-info/RECORD",
        "my_app-1.5.dist-info/INSTALLER", "../../../bin/carried", "../../../bin/written",
        "../../../share/my, app/read me.txt", f"../../../include/site/python{PYTHON}/my-app/my.h",
        f"my_app/__pycache__/__init__.{sys.implementation.cache_tag}.pyc",
    }  # fmt: skip
    assert set(rows) == expected
    assert rows["my_app-1.5.dist-info/RECORD"] == ["", ""]
    for path, (digest, size) in rows.items():
        if not digest:
            assert path.endswith((".pyc", "RECORD", "alias.py"))
            continue
        data = (site / path).read_bytes()
        assert (
            digest
            == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        )
        assert int(size) == len(data)
    distribution = PathDistribution(info)
    assert all((site / str(file)).exists() for file in distribution.files or ())
    assert not (site / "my_app/gone.py").exists()
    assert output(prefix / "bin/python", "-c", "import my_app; print(my_app.value)") == "2"
    receipt = json.loads((prefix / ".envbundle/receipt.json").read_text())
    by_path = {row["path"]: row for row in receipt["files"]}
    assert by_path[f"{SITE}/my_app-1.5.dist-info/INSTALLER"]["fixer"] == "installer"
    assert by_path[f"{SITE}/my_app/__init__.py"]["source"] == 1


DIRECT = {
    "editable": (
        {"url": "file:///home/dev/foo", "dir_info": {"editable": True}},
        {"url": "file:///home/dev/foo", "dir_info": {}},
    ),
    "vcs": ({"url": "https://example.org/x.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}, None),
    "not-a-document": ([1, 2], None),
}


@pytest.mark.parametrize(("given", "expected"), DIRECT.values(), ids=DIRECT.keys())
def test_direct_url(given: object, expected: object) -> None:
    data = json.dumps(given).encode()
    entry = inline("purelib/d-1.dist-info/direct_url.json", data, "direct-url")
    place = Place(interpreter="/new/bin/python", old_prefixes=("/old",), site=SITE, files_of=lambda _: ())
    fixed = FIXERS["direct-url"](Subject(path="x", entry=entry, layer=0, data=data), place).data
    assert fixed == data if expected is None else json.loads(fixed) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [("/old/bin/python3", "/new/bin/python"), ("python", "python"), ("/usr/bin/python3", "/usr/bin/python3")],
)
def test_kernelspec(word: str, expected: str) -> None:
    data = json.dumps({"argv": [word, "-m", "kernel"], "display_name": "P"}).encode()
    entry = inline("data/share/jupyter/kernels/p/kernel.json", data, "kernelspec")
    place = Place(interpreter="/new/bin/python", old_prefixes=("/old",), site=SITE, files_of=lambda _: ())
    fixed = FIXERS["kernelspec"](Subject(path="x", entry=entry, layer=0, data=data), place).data
    assert json.loads(fixed)["argv"][0] == expected
    if word == expected:
        assert fixed == data


def test_b37_bytecode_is_checked_by_hash(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    patched = Patch(name="app", files={"app/late.py": "value = 'won'\n"})  # as long as "value = 'one'"
    install(*bundle(*sample_items("one"), patched), InstallOptions(prefix=prefix), now=NOW)
    pyc = prefix / SITE / f"app/__pycache__/late.{sys.implementation.cache_tag}.pyc"
    assert int.from_bytes(pyc.read_bytes()[4:8], "little") == 0b11
    ask: list[str | Path] = [prefix / "bin/python", "-c", "import app.late; print(app.late.value)"]
    assert output(*ask) == "won"
    source = prefix / SITE / "app/late.py"
    status = source.stat()
    source.write_text("value = 'new'\n")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert output(*ask) == "new"


def test_bytecode_is_equal_in_every_generation(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    options = InstallOptions(prefix=prefix, reuse="copy")
    digests = []
    for value, now in (("one", NOW), ("two", LATER)):
        install(*sample(value), options, now=now)
        digests.append(
            (prefix / SITE / f"lib/__pycache__/__init__.{sys.implementation.cache_tag}.pyc").read_bytes()
        )
    assert digests[0] == digests[1]
    assert str(prefix).encode() in digests[0]
    assert b".stage" not in digests[0]


def test_sources_that_do_not_compile_are_fine(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    given = bundle(
        Dist(name="d", files={"d/template.py": "{{ x }} = (\n", "d/fine.py": "x = 1\n", "d/bad.py": b"\xff"})
    )
    install(*given, InstallOptions(prefix=prefix), now=NOW)
    assert len(list((prefix / SITE / "d/__pycache__").iterdir())) == 1
    assert verify_environment(prefix, runner=run).ok


def test_no_compile(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    install(*sample(), InstallOptions(prefix=prefix, compile=False), now=NOW)
    assert [path for path in listing(prefix.resolve()) if path.endswith(".pyc")] == []
    assert output(prefix / "bin/app").startswith("one ")


def test_equal_files_empty_files_and_files_of_many_pieces(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    big = bytes(range(256)) * 200
    files = {f"d/same{n}.bin": big for n in range(70)} | {f"d/empty{n}": b"" for n in range(600)}
    files |= {f"d/small{n:03}.txt": f"{n}".encode() * n for n in range(1, 200)} | {"d/other.bin": big[::-1]}
    install(
        *bundle(Dist(name="d", files=files), piece=4096), InstallOptions(prefix=prefix, workers=3), now=NOW
    )
    for path, data in files.items():
        assert (prefix / SITE / path).read_bytes() == data
    assert verify_environment(prefix).ok


def test_links_of_a_layer(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    dist = Dist(
        name="d",
        files={"d/libx.so.1.2": b"so"},
        links={"d/libx.so.1": "libx.so.1.2", "d/libx.so": "libx.so.1", "d/up": "../d"},
    )
    install(*bundle(dist), InstallOptions(prefix=prefix), now=NOW)
    assert (prefix / SITE / "d/up/libx.so").read_bytes() == b"so"
    assert os.readlink(prefix / SITE / "d/libx.so") == "libx.so.1"
    assert verify_environment(prefix).ok


def test_scripts_and_records_too_long_to_be_inline(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    text = b"#!python\nprint('big')\n" + b"# filler\n" * 9000
    record = "big-1.0.dist-info/RECORD"
    big = Dist(
        name="big",
        files={"scripts/elf": b"\x7fELF" + bytes(70000), record: b"x,,\n" * 20000},
        record=False,
        roles={"scripts/elf": "script", f"purelib/{record}": "record"},
    )
    long = Dist(name="long", files={"scripts/long": text}, roles={"scripts/long": "script"})
    install(*bundle(big, long, piece=1 << 20), InstallOptions(prefix=prefix), now=NOW)
    assert output(prefix / "bin/long") == "big"
    assert len((prefix / SITE / record).read_bytes().splitlines()) == 3
    given, store = bundle(big, Dist(name="new"), piece=1 << 20)
    (chunk,) = [blob.blob for blob in given.descriptor.blobs.values() if blob.plain_size > 60000]
    store.remove(chunk)
    assert install(given, store, InstallOptions(prefix=prefix), now=LATER).status == "installed"
    assert (prefix / "bin/elf").stat().st_nlink == 1
    assert len((prefix / SITE / record).read_bytes().splitlines()) == 3
    assert verify_environment(prefix).ok


@pytest.mark.e2e
def test_blocks_are_shared_where_the_file_system_can(tmp_path: Path) -> None:
    image, volume = tmp_path / "image", tmp_path / "volume"
    volume.mkdir()
    with image.open("wb") as stream:
        stream.truncate(400 << 20)
    made = run(["mkfs.xfs", "-q", image])
    assert made.status == 0, made.error_text
    mounted = run(["mount", "-o", "loop", image, volume])
    assert mounted.status == 0, mounted.error_text
    try:
        prefix = volume / "env"
        install(*sample("one"), InstallOptions(prefix=prefix), now=NOW)
        old = (prefix / SITE / "lib/big.bin").resolve()
        result = install(*sample("two"), InstallOptions(prefix=prefix), now=LATER)
        new = (prefix / SITE / "lib/big.bin").resolve()
        assert result.reused_bytes > 20000
        assert (new.stat().st_nlink, new.stat().st_mtime_ns) == (1, old.stat().st_mtime_ns)
        assert old.stat().st_ino != new.stat().st_ino
        new.chmod(0o644)
        new.write_bytes(b"changed")
        assert old.stat().st_size == 20000
        assert verify_environment(prefix).modified == (f"{SITE}/lib/big.bin",)
    finally:
        run(["umount", volume])
