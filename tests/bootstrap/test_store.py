"""``install.pyz`` in a store: made by pack, checked by verify, carried by copy, never trusted unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbundle.bundler.bootstrap import NAME, SIGNATURE_NAME, TAG
from envbundle.store.artifact import read_artifact
from envbundle.store.layout import DirectoryStore
from envbundle.trust.sshsig import BOOTSTRAP_NAMESPACE
from envbundle.trust.trusted import check_signatures

from ..journey.project import Project
from .builders import PYTHON, digest, start


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.make(tmp_path_factory.mktemp("packed") / "here")
    made.ok("lock", "--arch", "sm_103", "--arch", "sm_120")
    made.ok("pack", "--arch", "sm_103", "--key", "keys/id_ed25519")
    return made


@pytest.fixture
def store(project: Project, tmp_path: Path) -> Path:
    project.ok("copy", "dist", tmp_path / "store")
    return tmp_path / "store"


def test_pack_puts_it_beside_the_layout_and_under_a_tag_of_its_own(project: Project) -> None:
    answer = project.ok("pack", "--arch", "sm_103", "--key", "keys/id_ed25519")["bootstrap"]
    data = (project.folder / "dist" / NAME).read_bytes()
    assert answer["sha256"] == digest(data)
    assert answer["size"] == len(data)
    assert answer["pythons"][0].startswith(f"{PYTHON} ")
    files = read_artifact(
        DirectoryStore(project.folder / "dist"), TAG, "application/vnd.envbundle.bootstrap.v1"
    )
    held = {file.name: file.data for file in files}
    assert held == {NAME: data, SIGNATURE_NAME: (project.folder / "dist" / SIGNATURE_NAME).read_bytes()}
    (signature,) = check_signatures(data, [held[SIGNATURE_NAME]], namespace=BOOTSTRAP_NAMESPACE)
    assert signature.namespace == "envbundle-bootstrap"


def test_no_descriptor_names_it(project: Project) -> None:
    pyz = digest((project.folder / "dist" / NAME).read_bytes())
    tags = {entry.tag: entry for entry in DirectoryStore(project.folder / "dist").tags()}
    assert set(tags) == {"demo-1.0-sm_103", TAG}
    for blob in (project.folder / "dist/blobs/sha256").iterdir():
        if blob.stat().st_size < 100_000 and blob.name != tags[TAG].manifest.hex:
            assert pyz.encode() not in blob.read_bytes()


def test_packing_again_changes_no_byte(project: Project) -> None:
    before = digest((project.folder / "dist" / NAME).read_bytes())
    project.ok("pack", "--arch", "sm_120", "--key", "keys/id_ed25519", "-o", "other")
    assert digest((project.folder / "other" / NAME).read_bytes()) == before


def test_it_installs_what_it_came_with(project: Project, store: Path, tmp_path: Path) -> None:
    words: list[str | Path] = ["install", store, "--prefix", tmp_path / "the env", "--no-device", "--json"]
    signers = str(project.folder / "keys/allowed_signers")
    done = start(store / NAME, *words, ENVBUNDLE_ALLOWED_SIGNERS=signers)
    assert done.status == 0, done.err + done.out
    assert json.loads(done.out)["status"] == "installed"
    again = start(store / NAME, "verify", tmp_path / "the env", "--json")
    assert json.loads(again.out)["ok"] is True


def test_without_a_source_it_takes_the_store_that_it_stands_in(
    project: Project, store: Path, tmp_path: Path
) -> None:
    signers = str(project.folder / "keys/allowed_signers")
    words: list[str | Path] = ["install", "--prefix", tmp_path / "env", "--no-device", "--json"]
    done = start(store / NAME, *words, ENVBUNDLE_ALLOWED_SIGNERS=signers)
    assert done.status == 0, done.err + done.out
    alone = tmp_path / "elsewhere" / NAME
    alone.parent.mkdir()
    alone.write_bytes((store / NAME).read_bytes())
    refused = start(alone, *words, ENVBUNDLE_ALLOWED_SIGNERS=signers)
    assert (refused.status, refused.finding["code"]) == (2, "E-USAGE")


def test_copy_carries_it_and_says_its_hash(project: Project, tmp_path: Path) -> None:
    answer = project.ok("copy", "dist", tmp_path / "there")
    data = (project.folder / "dist" / NAME).read_bytes()
    assert answer["bootstrap"] == {"sha256": digest(data), "size": len(data), "pythons": []}
    assert (tmp_path / "there" / NAME).read_bytes() == data
    assert (tmp_path / "there" / SIGNATURE_NAME).exists()
    assert project.ok("verify", tmp_path / "there")["findings"] == []


def test_copy_carries_it_in_an_archive(project: Project, tmp_path: Path) -> None:
    project.ok("copy", "dist", tmp_path / "there.tar")
    project.ok("copy", tmp_path / "there.tar", tmp_path / "back")
    assert (tmp_path / "back" / NAME).read_bytes() == (project.folder / "dist" / NAME).read_bytes()


def test_a_dry_run_writes_nothing(project: Project, tmp_path: Path) -> None:
    answer = project.ok("copy", "dist", tmp_path / "there", "--dry-run")
    assert len(answer["bootstrap"]["sha256"]) == 64
    assert not (tmp_path / "there").exists()


def flip_beside(store: Path) -> None:
    flip(store / NAME)


def flip_blob(store: Path) -> None:
    flip(store / "blobs/sha256" / digest((store / NAME).read_bytes()))


def flip_signature(store: Path) -> None:
    flip(store / SIGNATURE_NAME)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip_beside, flip_blob, flip_signature])
def test_verify_sees_a_flipped_byte(project: Project, store: Path, damage: object) -> None:
    assert callable(damage)
    damage(store)
    done = project.run("verify", store)
    assert (done.status, done.answer["ok"]) == (3, False)
    assert {"E-STORE-FILE", "E-BLOB-HASH"} & set(done.codes)


def test_a_damaged_one_is_not_carried(project: Project, store: Path, tmp_path: Path) -> None:
    flip_blob(store)
    done = project.run("copy", store, tmp_path / "there")
    assert (done.status, done.codes) == (3, ["E-BLOB-HASH"])
    assert not (tmp_path / "there" / NAME).exists()


def trusted_for(project: Project, folder: Path, namespaces: str) -> str:
    line = (project.folder / "keys/allowed_signers").read_text()
    path = folder / "signers"
    path.write_text(line.replace('namespaces="envbundle,envbundle-bootstrap"', namespaces))
    return str(path)


def test_who_may_sign_bundles_alone_does_not_vouch_for_it(project: Project, tmp_path: Path) -> None:
    signers = trusted_for(project, tmp_path, 'namespaces="envbundle"')
    done = project.run("copy", "dist", tmp_path / "there", ENVBUNDLE_ALLOWED_SIGNERS=signers)
    assert done.status == 0
    (warning,) = [f for f in done.answer["findings"] if f["severity"] == "warning"]
    assert warning["code"] == "W-BOOTSTRAP-TRUST"
    assert "envbundle,envbundle-bootstrap" in warning["hint"]
    assert not (tmp_path / "there" / NAME).exists()
    assert project.run("verify", "dist", ENVBUNDLE_ALLOWED_SIGNERS=signers).status == 0


def test_a_stranger_who_puts_his_own_into_the_store_is_seen(
    project: Project, store: Path, tmp_path: Path
) -> None:
    other = Project.make(tmp_path / "stranger")
    other.ok("lock", "--arch", "sm_120")
    other.ok("pack", "--arch", "sm_120", "--key", "keys/id_ed25519", "-o", store)
    done = project.run("copy", store, tmp_path / "there", "--arch", "sm_103")
    assert [f["code"] for f in done.answer["findings"]] == ["W-BOOTSTRAP-TRUST"]
    assert not (tmp_path / "there" / NAME).exists()


def test_a_descriptors_signature_is_none_for_it(project: Project, store: Path, tmp_path: Path) -> None:
    """A signature made for bundles does not pass for one made for programs."""
    from envbundle.bundler.bootstrap import put_bootstrap
    from envbundle.trust.key_files import read_private_key
    from envbundle.trust.sshsig import DESCRIPTOR_NAMESPACE, sign

    key = read_private_key((project.folder / "keys/id_ed25519").read_bytes(), lambda: b"", source="key")
    data = (store / NAME).read_bytes()
    put_bootstrap(
        DirectoryStore(store), {NAME: data, SIGNATURE_NAME: sign(data, key, namespace=DESCRIPTOR_NAMESPACE)}
    )
    for words in (("verify", store), ("copy", store, tmp_path / "there")):
        done = project.run(*words)
        assert (done.status, done.codes) == (3, ["E-SIG-NAMESPACE"])
    assert not (tmp_path / "there" / NAME).exists()


def test_unsigned(project: Project, tmp_path: Path) -> None:
    project.ok("pack", "--arch", "sm_103", "--unsigned", "-o", tmp_path / "unsigned")
    assert (tmp_path / "unsigned" / NAME).exists()
    assert not (tmp_path / "unsigned" / SIGNATURE_NAME).exists()
    project.ok("copy", tmp_path / "unsigned", tmp_path / "there", "--allow-unsigned")
    assert (tmp_path / "there" / NAME).exists()


def test_without_it(project: Project, tmp_path: Path) -> None:
    answer = project.ok("pack", "--arch", "sm_103", "--unsigned", "--no-bootstrap", "-o", tmp_path / "plain")
    assert answer["bootstrap"]["sha256"] == ""
    assert not (tmp_path / "plain" / NAME).exists()


def test_wheels_that_cannot_be_had_are_a_warning_and_the_bundle_is_packed(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "here")
    other = "3.11" if PYTHON != "3.11" else "3.12"
    project.edit(f'python = "{PYTHON}"', f'python = "{other}"')
    project.ok("lock", "--arch", "sm_103")
    answer = project.ok("pack", "--arch", "sm_103", "--key", "keys/id_ed25519", "--offline")
    (warning,) = [f for f in answer["findings"] if f["code"] == "W-BOOTSTRAP"]
    assert f"Python {other}" in warning["subject"]
    assert "--no-bootstrap" in warning["hint"]
    assert answer["bundles"]["sm_103"]["id"]
    assert not (project.folder / "dist" / NAME).exists()
