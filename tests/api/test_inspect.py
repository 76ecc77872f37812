"""`inspect` on files, wheels and folders; the answer's shape is held to its schema elsewhere."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from envbundle.api.example import write_example
from envbundle.api.inspect import inspect
from envbundle.errors import UserInputError

DATA = Path(__file__).parents[1] / "data" / "gpu"


def test_a_file_for_an_arch_that_it_lacks() -> None:
    answer = inspect([str(DATA / "sm90a.so")], archs=["sm_103", "sm_90"])
    assert answer.status == 1
    (file,) = answer.value["files"]
    assert file["verdicts"]["sm_103"]["verdict"] == "none"
    assert file["verdicts"]["sm_90"]["verdict"] == "native"


def test_kernels_of_missing_modules_are_named() -> None:
    answer = inspect([str(DATA / "two_containers.so")], archs=["sm_90"], kernels=True)
    (missing,) = answer.value["files"][0]["kernels_missing"]["sm_90"]
    assert "k2" in missing
    assert answer.status == 0


def test_damage_is_a_finding_with_an_offset() -> None:
    answer = inspect([str(DATA / "trunc_mid_fatbin.so")])
    assert answer.status == 1
    assert any(finding.code == "E-FATBIN" and finding.offset is not None for finding in answer.findings)


def test_a_wheel_and_the_environment_made_of_it_say_the_same(tmp_path: Path) -> None:
    write_example(tmp_path)
    (wheel,) = (tmp_path / "wheels").glob("demo_kernels*.whl")
    site = tmp_path / "env/lib/python3.12/site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    packed, unpacked = (inspect([str(place)], archs=["sm_103", "sm_75"]) for place in (wheel, tmp_path / "env"))
    for answer in (packed, unpacked):
        (distribution,) = answer.value["distributions"]
        assert distribution["name"].replace("_", "-") == "demo-kernels"
        assert distribution["verdicts"]["sm_103"]["verdict"] == "native"
        assert distribution["verdicts"]["sm_75"]["verdict"] == "none"
        assert answer.status == 1
    assert packed.value["files"][0]["entries"] == unpacked.value["files"][0]["entries"]


def test_a_broken_wheel_is_a_finding(tmp_path: Path) -> None:
    write_example(tmp_path)
    (wheel,) = (tmp_path / "wheels").glob("demo_app*.whl")
    other = tmp_path / "other_name-1.0-py3-none-any.whl"
    shutil.copy(wheel, other)
    answer = inspect([str(other)])
    assert answer.status == 1
    assert [finding.code for finding in answer.findings] == ["E-WHEEL-NAME"]


@pytest.mark.parametrize("words", [["/no/such/file"], [str(DATA / "plain.so")]], ids=["path", "arch"])
def test_wrong_words(words: list[str]) -> None:
    with pytest.raises(UserInputError):
        inspect(words, archs=["turing"] if "plain" in words[0] else [])
