"""How names are understood: targets of a manifest, bundles of a store, what is verified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from envbundle.api.settings import choose_targets, open_manifest
from envbundle.api.trust import TrustChoice, policy_of
from envbundle.api.verify import verify
from envbundle.errors import UserInputError
from envbundle.spec.manifest_text import parse_manifest

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = parse_manifest(
    """
[bundle]
name = "x"
version = "1"
python = "3.12"
[resolve]
requirements = ["a==1"]
[target.sm_103]
gpu = "sm_103"
platform = "x86_64-manylinux_2_39"
[target.fleet]
gpu = ["sm_90", "sm_100"]
platform = "x86_64-manylinux_2_39"
[target.old]
gpu = "sm_90"
platform = "x86_64-manylinux_2_28"
"""
)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ([], ["sm_103", "fleet", "old"]),
        (["sm_103"], ["sm_103"]),
        (["sm_100"], ["fleet"]),
        (["old", "sm_103", "old"], ["sm_103", "old"]),
    ],
    ids=str,
)
def test_targets(wanted: list[str], names: list[str]) -> None:
    assert [spec.target.name for spec in choose_targets(MANIFEST, wanted)] == names


@pytest.mark.parametrize(
    ("wanted", "code"), [("sm_120", "E-TARGET-UNKNOWN"), ("sm_90", "E-TARGET-AMBIGUOUS")]
)
def test_targets_that_are_not_meant_clearly(wanted: str, code: str) -> None:
    with pytest.raises(UserInputError) as caught:
        choose_targets(MANIFEST, [wanted])
    assert caught.value.code == code


@pytest.mark.parametrize("text", ["sha256:12", "md5:" + "0" * 32, ""])
def test_an_id_that_is_none(text: str) -> None:
    with pytest.raises(UserInputError) as caught:
        policy_of(TrustChoice(bundle_id=text))
    assert caught.value.subject == "--id"


def test_verifying_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "folder", tmp_path / "none"):
        with pytest.raises(UserInputError) as caught:
            verify(place, trust=TrustChoice())
        assert caught.value.code == "E-NOTHING-TO-VERIFY"


def test_keys_that_nothing_carries_out_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "envbundle.toml"
    path.write_text(
        """
[bundle]
name = "x"
version = "1"
python = "3.12"
[resolve]
requirements = ["a==1"]
[target.sm_103]
gpu = "sm_103"
platform = "x86_64-manylinux_2_39"
[layout]
interpreter = "bundled"
"""
    )
    with pytest.raises(UserInputError) as caught:
        open_manifest(path)
    assert {finding.code for finding in caught.value.findings} == {"E-NOT-BUILT"}
    assert [finding.subject for finding in caught.value.findings] == [
        f"{path}: layout.interpreter",
    ]
