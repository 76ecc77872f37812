"""Where the wheels of ``install.pyz`` come from: cache, find-links, what is installed here."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from envbundle.errors import HostError, IntegrityError, VerdictError
from envbundle.resolver.installed import installed_filename, rebuild_wheel
from envbundle.resolver.parts import FoundPart, find_parts

from ..builders import make_wheel, record_hash
from .builders import OTHER, TARGET, gatherer, listing

NATIVE = f"cp{OTHER.python.replace('.', '')}-cp{OTHER.python.replace('.', '')}-manylinux_2_17_{OTHER.machine}"


def find(
    tmp_path: Path, *libraries: str, target: Any = TARGET, folders: tuple[Path, ...] = ()
) -> dict[str, FoundPart]:
    found = find_parts(
        libraries,
        target,
        cache=tmp_path / "cache",
        gatherer=gatherer(tmp_path / "cache"),
        listing=lambda: listing(*folders, _codec(tmp_path)),
    )
    return {part.filename.partition("-")[0]: part for part in found}


def _codec(tmp_path: Path) -> Path:
    """A folder with a small wheel in the place of the codec's, which takes seconds to rebuild."""
    version = str(installed_filename("zstandard")).split("-")[1]
    make_wheel(tmp_path / "codec", "zstandard", version)
    return tmp_path / "codec"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on sys.path with a distribution that was installed from a wheel."""
    site = tmp_path / "site"
    wheel = make_wheel(tmp_path / "w", "tiny", "1.0", {"tiny/__init__.py": "x = 1\n"}, requires=["pycparser"])
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(site)
    info = site / "tiny-1.0.dist-info"
    (info / "INSTALLER").write_text("someone\n")
    (site / "tiny/__pycache__").mkdir()
    (site / "tiny/__pycache__/x.pyc").write_bytes(b"")
    with (info / "RECORD").open("a") as record:
        record.write("tiny-1.0.dist-info/INSTALLER,,\ntiny/__pycache__/x.pyc,,\n../../../bin/tiny,,\n")
    monkeypatch.syspath_prepend(str(site))
    return site


def test_what_is_installed_here_serves_where_nothing_is_on_offer(tmp_path: Path, installed: Path) -> None:
    found = find(tmp_path, "tiny")
    assert found["tiny"].origin == "rebuilt"
    assert found["tiny"].filename == "tiny-1.0-py3-none-any.whl"
    assert "pycparser" in found  # required by it
    with zipfile.ZipFile(io.BytesIO(found["tiny"].data)) as wheel:
        names = wheel.namelist()
    assert "tiny/__init__.py" in names
    assert [name for name in names if name.endswith(("INSTALLER", ".pyc")) or name.startswith("..")] == []


def test_the_published_wheel_is_taken_before_it(tmp_path: Path, installed: Path) -> None:
    make_wheel(tmp_path / "links", "tiny", "1.0", {"tiny/__init__.py": "published = 1\n"})
    make_wheel(tmp_path / "links", "tiny", "2.0")  # not what runs here
    found = find(tmp_path, "tiny", folders=(tmp_path / "links",))
    assert (found["tiny"].origin, found["tiny"].filename) == ("published", "tiny-1.0-py3-none-any.whl")
    assert found["tiny"].data == (tmp_path / "links/tiny-1.0-py3-none-any.whl").read_bytes()


def test_what_was_found_once_is_remembered(tmp_path: Path, installed: Path) -> None:
    wheel = make_wheel(tmp_path / "links", "tiny", "1.0")
    data = wheel.read_bytes()
    find(tmp_path, "tiny", folders=(tmp_path / "links",))
    shutil.rmtree(tmp_path / "links")
    assert find(tmp_path, "tiny")["tiny"].data == data


def test_a_cache_that_was_changed_is_not_believed(tmp_path: Path, installed: Path) -> None:
    wheel = make_wheel(tmp_path / "links", "tiny", "1.0")
    find(tmp_path, "tiny", folders=(tmp_path / "links",))
    for path in (tmp_path / "cache/artifacts").iterdir():
        path.chmod(0o644)
        path.write_bytes(b"other")
    again = find(tmp_path, "tiny", folders=(tmp_path / "links",))
    assert again["tiny"].data == wheel.read_bytes()


def test_a_library_that_is_not_installed_comes_in_its_newest_fitting_version(tmp_path: Path) -> None:
    make_wheel(tmp_path / "links", "far", "1.0")
    make_wheel(tmp_path / "links", "far", "1.5")
    make_wheel(tmp_path / "links", "far", "2.0", tag=NATIVE)  # for another Python
    assert find(tmp_path, "far", folders=(tmp_path / "links",))["far"].filename.startswith("far-1.5-")


def test_markers_are_asked_for_the_target_and_not_for_this_python(tmp_path: Path) -> None:
    requires = [f"near ; python_version == '{OTHER.python}'", "never ; sys_platform == 'win32'"]
    make_wheel(tmp_path / "links", "far", "1.0", requires=requires)
    make_wheel(tmp_path / "links", "near", "1.0")
    there = find(tmp_path, "far", target=OTHER, folders=(tmp_path / "links",))
    here = find(tmp_path, "far", folders=(tmp_path / "links",))
    assert ("near" in there, "near" in here, "never" in there) == (True, False, False)


def test_another_python_cannot_be_served_by_what_is_installed_here(tmp_path: Path) -> None:
    with pytest.raises(VerdictError) as caught:
        find(tmp_path, "cryptography", target=OTHER)
    assert caught.value.code == "E-BOOTSTRAP-WHEEL"
    assert caught.value.subject.startswith(("cffi", "cryptography", "zstandard"))
    assert OTHER.python in caught.value.expected
    assert "--no-bootstrap" in caught.value.hint


def test_an_installed_file_that_was_patched_is_not_passed_on(tmp_path: Path, installed: Path) -> None:
    (installed / "tiny/__init__.py").write_text("x = 2\n")
    with pytest.raises(IntegrityError) as caught:
        rebuild_wheel("tiny")
    assert (caught.value.code, caught.value.subject) == ("E-INSTALLED-FILE", "tiny: tiny/__init__.py")
    assert record_hash(b"x = 2\n") == caught.value.found


def test_a_rebuilt_wheel_has_the_same_bytes_each_time_and_a_right_record(installed: Path) -> None:
    assert rebuild_wheel("tiny") == rebuild_wheel("tiny")
    with zipfile.ZipFile(io.BytesIO(rebuild_wheel("tiny"))) as wheel:
        rows = [row.split(",") for row in wheel.read("tiny-1.0.dist-info/RECORD").decode().splitlines()]
        for name, stated, _size in rows[:-1]:
            assert record_hash(wheel.read(name)) == stated
        assert {row[0] for row in rows} == set(wheel.namelist())


def test_what_is_not_installed_cannot_be_rebuilt() -> None:
    assert installed_filename("no-such-thing") is None
    with pytest.raises(HostError, match="E-NOT-INSTALLED"):
        rebuild_wheel("no-such-thing")
