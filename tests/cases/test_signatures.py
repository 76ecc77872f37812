"""Every way in which a signature is not enough: exit 3, a code that names it, and nothing at the prefix."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from .kit import Case, new_key

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Case:
    case = Case.make(tmp_path_factory.mktemp("signed"))
    case.wheel("app", "1.0")
    case.manifest("app==1.0")
    case.packed()
    return case


@pytest.fixture
def there(case: Case, signed: Case) -> Case:
    """The signed store in a project of this test's own, with the signer's key and line."""
    shutil.copytree(signed.store, case.store)
    for name in ("key", "signers"):
        shutil.copy2(signed.folder / name, case.folder / name)
    return case


def _line(case: Case) -> str:
    return (case.folder / "signers").read_text().partition(" ")[2].strip()


def _refused(case: Case, code: str, *words: str | Path, **env: str) -> None:
    install = ("install", "dist", "--prefix", case.prefix, "--no-device")
    for command in (install, (*install, "--allow-unsigned"), (*install, "--check"), ("copy", "dist", case.root / "there")):
        found = case.refused(3, code, *command, *words, **env)
        assert found["hint"] or found["found"]
    done = case.run("verify", "dist", *words, **env)
    assert (done.status, done.answer["signature"]["status"] in ("untrusted", "bad")) == (3, True), done.answer


SIGNERS = {
    "nobody": ("# nobody\n", "E-SIG-UNTRUSTED"),
    "an empty file": ("", "E-SIG-UNTRUSTED"),
    "another namespace": ('dev@example.org namespaces="git,file" {key}\n', "E-SIG-NAMESPACE"),
    "the bootstrap's namespace": ('dev@example.org namespaces="envbundle-bootstrap" {key}\n', "E-SIG-NAMESPACE"),
    "another namespace that begins alike": ('dev@example.org namespaces="envbundle2" {key}\n', "E-SIG-NAMESPACE"),
    "not this namespace": ('dev@example.org namespaces="!envbundle,*" {key}\n', "E-SIG-NAMESPACE"),
    "expired": ('dev@example.org valid-before="20200101" {key}\n', "E-SIG-EXPIRED"),
    "expired to the second": ('dev@example.org valid-before="20240101120000Z" {key}\n', "E-SIG-EXPIRED"),
    "not yet": ('dev@example.org valid-after="29990101" {key}\n', "E-SIG-NOT-YET"),
    "never": ('dev@example.org valid-after="20200101",valid-before="20200102" {key}\n', "E-SIG-EXPIRED"),
}


@pytest.mark.parametrize("name", SIGNERS)
def test_3_signers(there: Case, name: str) -> None:
    text, code = SIGNERS[name]
    (there.folder / "signers").write_text(text.format(key=_line(there)))
    _refused(there, code)


def test_3_the_key_of_somebody_else(there: Case) -> None:
    _, public = new_key(there.folder, "other")
    (there.folder / "signers").write_text(f"dev@example.org {public}\n")
    _refused(there, "E-SIG-UNTRUSTED")


@pytest.mark.parametrize("signer", ["boss@example.org", "dev", "DEV@example.org", "dev@example.org.evil"])
def test_3_another_principal_is_wanted(there: Case, signer: str) -> None:
    _refused(there, "E-SIG-PRINCIPAL", "--signer", signer)
    assert there.install("--signer", "dev@example.org").status == 0


@pytest.mark.parametrize("how", ["the key", "the fingerprint"])
def test_3_a_revoked_key(there: Case, how: str) -> None:
    line = _line(there)
    if how == "the fingerprint":
        from envbundle.trust.keys import PublicKey

        line = PublicKey.parse(line).fingerprint
    (there.folder / "revoked").write_text(line + "\n")
    _refused(there, "E-SIG-REVOKED", "--revoked", "revoked")


def test_3_nobody_is_known_here(there: Case) -> None:
    """No signers file at all: refused, however good the signature; copy carries it and says so."""
    there.env.pop("ENVBUNDLE_ALLOWED_SIGNERS")
    for words in ((), ("--allow-unsigned",)):
        there.refused(3, "E-SIG-UNTRUSTED", "install", "dist", "--prefix", there.prefix, "--no-device", *words)
    assert "N-SIG-NOT-JUDGED" in there.ok("copy", "dist", there.root / "there").told
    assert there.run("verify", "dist").answer["signature"]["status"] == "not judged"


@pytest.mark.parametrize("bundle_id", ["sha256:" + "0" * 64, "sha256:00", "", "x"])
def test_3_another_id(there: Case, bundle_id: str) -> None:
    before = there.listing()
    done = there.install("--id", bundle_id)
    assert done.status == (3 if len(bundle_id) == 71 else 2), done.answer
    assert there.listing() == before


def test_a_signers_file_that_is_not_there_or_a_folder(there: Case) -> None:
    for name in ("none", "."):
        before = there.listing()
        assert there.install("--allowed-signers", name).status in (2, 4)
        assert there.listing() == before


def test_3_a_lower_serial(case: Case) -> None:
    """What was once accepted is a floor, whoever signs the older one again; rolling back is none of it."""
    case.wheel("app", "1.0")
    for serial, version in ((7, "2.0"), (6, "1.0")):
        path = case.manifest("app==1.0")
        text = path.read_text().replace('version = "1.0"\n', f'version = "{version}"\nserial = {serial}\n', 1)
        path.write_text(text)
        case.packed()
    assert case.install("--arch", "case-2.0-sm_103").status == 0
    words = ("install", "dist", "--arch", "case-1.0-sm_103", "--prefix", case.prefix, "--no-device")
    found = case.refused(3, "E-DOWNGRADE", *words)
    assert ("7" in found["expected"], "6" in found["found"]) == (True, True)
    case.ok(*words, "--allow-downgrade")


@pytest.mark.parametrize("words", [(), ("--allow-unsigned",)], ids=["plain", "--allow-unsigned"])
def test_B76_unsigned_only_when_said(case: Case, words: tuple[str, ...]) -> None:
    case.wheel("app", "1.0")
    case.manifest("app==1.0")
    case.locked()
    case.ok("pack", "--unsigned")
    if words:
        assert case.install(*words).one("W-UNSIGNED")["severity"] == "warning"
        assert case.ok("receipt", case.prefix).answer["trust"] == "unsigned"
    else:
        case.refused(3, "E-SIG-MISSING", "install", "dist", "--prefix", case.prefix, "--no-device")
        assert case.run("verify", "dist").status == 3
