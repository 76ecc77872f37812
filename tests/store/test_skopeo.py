"""Bundles carried by skopeo, which knows nothing of us: `apt-get install skopeo`."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from envbundle.store.bundle import check_bundle, find_bundles, parse_descriptor, read_bundle
from envbundle.store.layout import DirectoryStore
from envbundle.store.read import read_layer
from envbundle.store.verify import verify_store
from envbundle.transfer.copy import copy_bundle

from .builders import put_bundle, target

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e
TAG = "demo-1.0-sm_90"


def skopeo(*words: str) -> None:
    subprocess.run(["skopeo", *words], check=True, stdout=subprocess.DEVNULL)


def test_skopeo_carries_a_bundle_and_we_read_what_it_wrote(tmp_path: Path) -> None:
    ours = DirectoryStore(tmp_path / "ours", create=True)
    descriptor = put_bundle(ours)
    put_bundle(ours, target=target("sm_103"))
    for tag in (TAG, "demo-1.0-sm_103"):
        skopeo("copy", f"oci:{tmp_path}/ours:{tag}", f"oci:{tmp_path}/theirs:{tag}")
    theirs = DirectoryStore(tmp_path / "theirs")
    assert [b.tag for b in find_bundles(theirs)] == ["demo-1.0-sm_103", TAG]
    ref = read_bundle(theirs, TAG)
    assert ref == read_bundle(ours, TAG)
    check_bundle(ref, parse_descriptor(ref.descriptor))
    for layer in descriptor.content.layers:
        read_layer(theirs, descriptor, layer)
    assert verify_store(theirs, workers=1) == []


def test_we_add_to_a_layout_of_skopeo_s_and_it_to_ours(tmp_path: Path) -> None:
    ours = DirectoryStore(tmp_path / "ours", create=True)
    put_bundle(ours)
    skopeo("copy", f"oci:{tmp_path}/ours:{TAG}", f"oci:{tmp_path}/theirs:{TAG}")
    theirs = DirectoryStore(tmp_path / "theirs")
    put_bundle(theirs, target=target("sm_103"))
    skopeo("copy", f"oci:{tmp_path}/theirs:demo-1.0-sm_103", f"oci:{tmp_path}/ours:demo-1.0-sm_103")
    for store in (ours, theirs):
        assert len(find_bundles(store)) == 2
        assert verify_store(store, workers=1) == []
    copy_bundle(theirs, DirectoryStore(tmp_path / "third", create=True), TAG)
    assert verify_store(DirectoryStore(tmp_path / "third"), workers=1) == []


def test_another_tag_is_seen(tmp_path: Path) -> None:
    ours = DirectoryStore(tmp_path / "ours", create=True)
    put_bundle(ours)
    skopeo("copy", f"oci:{tmp_path}/ours:{TAG}", f"oci:{tmp_path}/theirs:latest")
    found = verify_store(DirectoryStore(tmp_path / "theirs"), workers=1)
    assert [finding.code for finding in found] == ["E-TAG-MISMATCH"]
