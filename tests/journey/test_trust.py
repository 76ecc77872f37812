"""Who vouches: every way in which a bundle must not be installed, and the two in which it may."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from .project import Project, new_key

if TYPE_CHECKING:
    from pathlib import Path


def _refused(project: Project, store: Path, prefix: Path, *words: str | Path, **env: str) -> list[str]:
    done = project.run("install", store, "--prefix", prefix, "--no-device", *words, **env)
    assert done.status == 3, (done.status, done.answer)
    assert not prefix.exists()
    assert not prefix.with_name(f"{prefix.name}.generations").exists()
    return done.codes


def _signers(project: Project, tmp_path: Path, old: str, new: str) -> dict[str, str]:
    text = (project.folder / "keys/allowed_signers").read_text()
    assert old in text
    path = tmp_path / "signers"
    path.write_text(text.replace(old, new, 1))
    return {"ENVBUNDLE_ALLOWED_SIGNERS": str(path)}


def test_unsigned(project: Project, tmp_path: Path) -> None:
    project.ok("lock", "--arch", "sm_103")
    project.ok("pack", "--arch", "sm_103", "--unsigned")
    store, prefix = project.folder / "dist", tmp_path / "env"
    assert _refused(project, store, prefix) == ["E-SIG-MISSING"]
    done = project.ok("install", store, "--prefix", prefix, "--no-device", "--allow-unsigned")
    assert "W-UNSIGNED" in [f["code"] for f in done["findings"]]
    assert project.ok("receipt", prefix)["trust"] == "unsigned"


def test_wrong_key(project: Project, tmp_path: Path) -> None:
    project.ok("lock", "--arch", "sm_103")
    key, _ = new_key(tmp_path, "other")
    project.ok("pack", "--arch", "sm_103", "--key", key)
    codes = _refused(project, project.folder / "dist", tmp_path / "env")
    assert codes == ["E-SIG-UNTRUSTED"]
    assert _refused(project, project.folder / "dist", tmp_path / "env", "--allow-unsigned") == ["E-SIG-UNTRUSTED"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        pytest.param('namespaces="envbundle,envbundle-bootstrap"', 'namespaces="git"', "E-SIG-NAMESPACE", id="wrong namespace"),
        pytest.param('namespaces="envbundle,envbundle-bootstrap"', 'valid-before="20200101Z"', "E-SIG-EXPIRED", id="expired"),
        pytest.param('namespaces="envbundle,envbundle-bootstrap"', 'valid-after="29990101Z"', "E-SIG-NOT-YET", id="not yet valid"),
    ],
)
def test_signer_lines(project: Project, tmp_path: Path, old: str, new: str, code: str) -> None:
    store = project.packed("sm_103")
    assert code in _refused(project, store, tmp_path / "env", **_signers(project, tmp_path, old, new))


def test_another_principal(project: Project, tmp_path: Path) -> None:
    store = project.packed("sm_103")
    assert "E-SIG-PRINCIPAL" in _refused(project, store, tmp_path / "env", "--signer", "boss@example.org")
    project.ok("install", store, "--prefix", tmp_path / "env", "--no-device", "--signer", "demo@example.org")


def test_revoked_key(project: Project, tmp_path: Path) -> None:
    store = project.packed("sm_103")
    line = (project.folder / "keys/allowed_signers").read_text().split(" ", 2)[2]
    (tmp_path / "revoked").write_text(line)
    assert "E-SIG-REVOKED" in _refused(project, store, tmp_path / "env", "--revoked", tmp_path / "revoked")


@pytest.mark.parametrize("words", [(), ("--allow-unsigned",)], ids=["plain", "with --allow-unsigned"])
def test_tampered_descriptor(project: Project, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Whoever can write the store changes the target's GPU and mends every unsigned digest around it."""
    import hashlib

    store = project.packed("sm_103")
    blobs = store / "blobs/sha256"
    index = json.loads((store / "index.json").read_bytes())
    image = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_bytes())
    descriptor = (blobs / image["config"]["digest"][7:]).read_bytes()
    assert b'"gpus":["sm_103"]' in descriptor
    value = json.loads(descriptor.replace(b'"gpus":["sm_103"]', b'"gpus":["sm_120"]'))
    content = json.dumps(value["content"], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    value["content_id"] = "sha256:" + hashlib.sha256(content).hexdigest()
    changed = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    image["config"] |= {"digest": "sha256:" + hashlib.sha256(changed).hexdigest(), "size": len(changed)}
    data = json.dumps(image, sort_keys=True, separators=(",", ":")).encode()
    index["manifests"][0] |= {"digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}
    for blob in (changed, data):
        (blobs / hashlib.sha256(blob).hexdigest()).write_bytes(blob)
    (store / "index.json").write_text(json.dumps(index, sort_keys=True, separators=(",", ":")))
    assert _refused(project, store, tmp_path / "env", *words) == ["E-SIG-BAD"]


def test_the_id_alone_is_a_root_of_trust(project: Project, tmp_path: Path) -> None:
    project.ok("lock", "--arch", "sm_103")
    packed = project.ok("pack", "--arch", "sm_103", "--unsigned")["bundles"]["sm_103"]
    store, nobody = project.folder / "dist", {"ENVBUNDLE_ALLOWED_SIGNERS": ""}
    wrong = "sha256:" + "0" * 64
    assert _refused(project, store, tmp_path / "env", "--id", wrong, **nobody) == ["E-ID-MISMATCH"]
    project.ok("install", store, "--prefix", tmp_path / "env", "--no-device", "--id", packed["id"], **nobody)
    assert project.ok("receipt", tmp_path / "env")["trust"] == "pinned"


def test_a_second_signature_counts_too(project: Project, tmp_path: Path) -> None:
    store = project.packed("sm_103")
    key, public = new_key(tmp_path, "release")
    answer = project.ok("sign", store, "--key", key)
    assert answer["signatures"] == 2
    (tmp_path / "signers").write_text(f"release@example.org {public}\n")
    env = {"ENVBUNDLE_ALLOWED_SIGNERS": str(tmp_path / "signers")}
    project.ok("install", store, "--prefix", tmp_path / "env", "--no-device", **env)
    assert project.ok("receipt", tmp_path / "env")["principal"] == "release@example.org"


def test_a_lower_serial_is_refused(project: Project, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    project.edit('version = "1.0"\n', 'version = "1.0"\nserial = 7\n')
    project.ok("install", project.packed("sm_103"), "--prefix", prefix, "--no-device")
    project.edit("serial = 7", "serial = 6")
    store = project.packed("sm_103")
    done = project.run("install", store, "--prefix", prefix, "--no-device")
    assert done.status == 3
    assert done.codes == ["E-DOWNGRADE"]
    project.ok("install", store, "--prefix", prefix, "--no-device", "--allow-downgrade")
