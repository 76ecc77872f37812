"""Other people's tools on our bundles: ssh-keygen, both ways; skopeo carrying one."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from .project import GREETING, Project, python_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e
TAG = "demo-1.0-sm_103"


def _image(store: Path) -> dict[str, object]:
    index = json.loads((store / "index.json").read_bytes())
    digest = next(e["digest"] for e in index["manifests"] if TAG in e["annotations"].values())
    image: dict[str, object] = json.loads((store / "blobs/sha256" / digest[7:]).read_bytes())
    return image


def _blob(store: Path, item: object) -> bytes:
    assert isinstance(item, dict)
    data: bytes = (store / "blobs/sha256" / item["digest"][7:]).read_bytes()
    return data


def test_ssh_keygen_accepts_our_signature(project: Project, tmp_path: Path) -> None:
    store = project.packed("sm_103")
    image = _image(store)
    layers = image["layers"]
    assert isinstance(layers, list)
    (signature,) = [item for item in layers if item["mediaType"].endswith("sshsig")]
    (tmp_path / "sig").write_bytes(_blob(store, signature))
    words = ["ssh-keygen", "-Y", "verify", "-n", "envbundle", "-s", str(tmp_path / "sig")]
    signers = ["-f", str(project.folder / "keys/allowed_signers"), "-I", "demo@example.org"]
    descriptor = _blob(store, image["config"])
    good = subprocess.run([*words, *signers], input=descriptor, capture_output=True, check=False)
    assert good.returncode == 0, good.stderr
    bad = subprocess.run([*words, *signers], input=descriptor + b" ", capture_output=True, check=False)
    assert bad.returncode != 0


def test_we_accept_a_signature_by_ssh_keygen(project: Project, tmp_path: Path) -> None:
    """A bundle packed unsigned, signed by hand, its signature added as docs/format.md says."""
    from envbundle.store.bundle import add_signature
    from envbundle.store.layout import DirectoryStore

    project.ok("lock", "--arch", "sm_103")
    project.ok("pack", "--arch", "sm_103", "--unsigned")
    store = project.folder / "dist"
    (tmp_path / "descriptor").write_bytes(_blob(store, _image(store)["config"]))
    key = project.folder / "keys/id_ed25519"
    subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-n", "envbundle", "-f", key, tmp_path / "descriptor"], check=True, capture_output=True
    )
    add_signature(DirectoryStore(store), TAG, (tmp_path / "descriptor.sig").read_bytes())
    project.ok("install", store, "--prefix", tmp_path / "env", "--no-device")
    assert project.ok("receipt", tmp_path / "env")["trust"] == "verified"


def test_a_bundle_carried_by_skopeo_installs(project: Project, tmp_path: Path) -> None:
    store, other = project.packed("sm_103", "sm_120"), tmp_path / "other"
    subprocess.run(["skopeo", "copy", f"oci:{store}:{TAG}", f"oci:{other}:{TAG}"], check=True, capture_output=True)
    assert project.ok("verify", other)["ok"] is True
    project.ok("install", other, "--prefix", tmp_path / "env", "--no-device")
    assert python_in(tmp_path / "env", GREETING) == "demo-app with the hand patch"
