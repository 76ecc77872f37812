"""Ours against ssh-keygen and ssh-agent, in both directions."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import HostError, TrustError, UserInputError
from envbundle.host.agent import agent_keys, agent_signer
from envbundle.trust.allowed_signers import AllowedSigners
from envbundle.trust.key_files import FileSigner, read_private_key
from envbundle.trust.keys import PublicKey
from envbundle.trust.outcome import Vouched
from envbundle.trust.policy import TrustPolicy
from envbundle.trust.revocation import RevocationList
from envbundle.trust.sshsig import Signature, sign
from envbundle.trust.trusted import accept

from .builders import MESSAGE, Demo

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

KINDS = {
    "ed25519": ("-t", "ed25519"),
    "nistp256": ("-t", "ecdsa", "-b", "256"),
    "nistp384": ("-t", "ecdsa", "-b", "384"),
    "nistp521": ("-t", "ecdsa", "-b", "521"),
    "rsa2048": ("-t", "rsa", "-b", "2048"),
    "rsa3072": ("-t", "rsa", "-b", "3072"),
}
ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
NAMESPACES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30).filter(
    lambda text: not text.startswith("-")
)


def run(
    *words: str | Path, data: bytes = b"", check: bool = True, **more: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, input=data, capture_output=True, check=check, env=ENVIRONMENT | more)


@cache
def folder() -> Path:
    """Return a folder that lives as long as this process, for keys that every test may use."""
    holder = tempfile.TemporaryDirectory()
    _KEPT.append(holder)
    return Path(holder.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@cache
def key_file(kind: str, passphrase: str = "", name: str = "") -> Path:
    path = folder() / (name or f"{kind}{'-encrypted' if passphrase else ''}")
    run("ssh-keygen", "-q", *KINDS[kind], "-N", passphrase, "-C", kind, "-f", path)
    return path


def public(kind: str) -> PublicKey:
    return PublicKey.parse(key_file(kind).with_suffix(".pub").read_text())


def ours(kind: str) -> FileSigner:
    return read_private_key(key_file(kind).read_bytes())


def theirs(kind: str, message: bytes, namespace: str, *options: str) -> bytes:
    words = ("ssh-keygen", "-q", "-Y", "sign", "-f", key_file(kind), "-n", namespace)
    return run(*words, *options, data=message).stdout


def they_accept(
    armored: bytes,
    message: bytes,
    signers: str,
    *,
    namespace: str,
    principal: str = "a@x",
    options: tuple[str, ...] = (),
    zone: str = "UTC",
) -> bool:
    """Say whether ssh-keygen accepts the signature."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "signers").write_text(signers)
        Path(place, "sig").write_bytes(armored)
        words = ["ssh-keygen", "-Y", "verify", "-f", f"{place}/signers", "-I", principal, "-n", namespace]
        done = run(*words, "-s", f"{place}/sig", *options, data=message, check=False, TZ=zone)
    return done.returncode == 0


def we_accept(armored: bytes, message: bytes, signers: str, *, now: datetime, principal: str = "a@x") -> bool:
    """Say whether the gate accepts the signature for its namespace."""
    try:
        listed = AllowedSigners.parse(signers.encode(), source="signers", zone=timezone.utc)
        policy = TrustPolicy(now=now, allowed_signers=(listed,), signers=(principal,))
        accept(message, [armored], policy=policy, parse=lambda _: Demo("demo"))
    except (TrustError, UserInputError):
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_they_accept_ours_and_we_theirs(kind: str) -> None:
    signers = f"a@x {public(kind)}\n"
    assert they_accept(
        sign(MESSAGE, ours(kind), namespace="envbundle"), MESSAGE, signers, namespace="envbundle"
    )
    assert we_accept(theirs(kind, MESSAGE, "envbundle"), MESSAGE, signers, now=NOW)
    for damaged in (MESSAGE + b"\n", b""):
        assert not they_accept(
            sign(MESSAGE, ours(kind), namespace="envbundle"), damaged, signers, namespace="envbundle"
        )
        assert not we_accept(theirs(kind, MESSAGE, "envbundle"), damaged, signers, now=NOW)


NOW = datetime(2026, 6, 15, 12, tzinfo=timezone.utc)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=300), NAMESPACES)
def test_ours_are_good_for_them(kind: str, message: bytes, namespace: str) -> None:
    armored = sign(message, ours(kind), namespace=namespace)
    assert they_accept(armored, message, f"a@x {public(kind)}\n", namespace=namespace)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)), st.binary(max_size=300), NAMESPACES, st.sampled_from(["sha256", "sha512"])
)
def test_theirs_are_good_for_us(kind: str, message: bytes, namespace: str, hash_name: str) -> None:
    signature = Signature.parse(theirs(kind, message, namespace, "-O", f"hashalg={hash_name}"))
    signature.verify(message)
    assert (signature.key, signature.namespace, signature.hash_name) == (public(kind), namespace, hash_name)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["ed25519", "rsa2048", "rsa3072"]), st.binary(max_size=300), NAMESPACES)
def test_ed25519_and_rsa_give_equal_bytes(kind: str, message: bytes, namespace: str) -> None:
    assert sign(message, ours(kind), namespace=namespace) == theirs(kind, message, namespace)


@cache
def kept(kind: str) -> bytes:
    """Return one signature of this run: an ECDSA one is never the same twice."""
    return sign(MESSAGE, ours(kind), namespace="envbundle")


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["ed25519", "nistp256", "rsa2048"]), st.data())
def test_what_we_accept_they_accept(kind: str, data: st.DataObject) -> None:
    """A changed byte of the armored text: wherever we still accept, so do they."""
    armored = bytearray(kept(kind))
    at = data.draw(st.integers(0, len(armored) - 1))
    armored[at] = data.draw(st.integers(0, 255))
    signers = f"a@x {public(kind)}\n"
    if we_accept(bytes(armored), MESSAGE, signers, now=NOW):
        assert they_accept(bytes(armored), MESSAGE, signers, namespace="envbundle")


VERIFY_TIME = ("-Overify-time=20260615120000",)


@pytest.mark.parametrize(
    ("before", "accepted"),
    [
        pytest.param("a@x ", True, id="plain"),
        pytest.param("b@x ", False, id="another principal"),
        pytest.param("b@x,a@x ", True, id="list"),
        pytest.param("*@x ", True, id="star"),
        pytest.param("?@x ", True, id="question mark"),
        pytest.param("!a@x,*@x ", False, id="negated"),
        pytest.param('"a@x" ', True, id="quoted"),
        pytest.param('a@x namespaces="envbundle" ', True, id="namespace"),
        pytest.param('a@x namespaces="git" ', False, id="another namespace"),
        pytest.param('a@x namespaces="git,env*" ', True, id="namespace pattern"),
        pytest.param('a@x namespaces="env*,!envbundle" ', False, id="namespace negated"),
        pytest.param('a@x Namespaces="envbundle" ', True, id="case of an option"),
        pytest.param('a@x valid-after="20260615120000" ', True, id="from now"),
        pytest.param('a@x valid-after="20260615120001" ', False, id="from the next second"),
        pytest.param('a@x valid-before="20260615120000" ', True, id="until now"),
        pytest.param('a@x valid-before="20260615115959" ', False, id="until the second before"),
        pytest.param('a@x valid-before="202606151200Z" ', True, id="minutes and Z"),
        pytest.param('a@x valid-after="20260101",valid-before="20261231" ', True, id="span"),
        pytest.param('a@x valid-after="20261231",valid-before="20260101" ', False, id="span turned round"),
        pytest.param('a@x valid-after="soon" ', False, id="no time"),
        pytest.param("a@x valid-after=20260101 ", False, id="no quotes"),
        pytest.param('a@x namespaces="a",namespaces="envbundle" ', False, id="twice"),
        pytest.param("a@x frobnicate ", False, id="unknown option"),
        pytest.param('a@x namespaces="envbundle", ', False, id="comma at the end"),
        pytest.param("a@x cert-authority ", False, id="certificate authority"),
        pytest.param("# a@x ", False, id="comment"),
    ],
)
def test_lines_mean_what_they_mean_to_ssh_keygen(before: str, accepted: bool) -> None:
    signers = f"{before}{public('ed25519')} a comment\n"
    armored = sign(MESSAGE, ours("ed25519"), namespace="envbundle")
    assert they_accept(armored, MESSAGE, signers, namespace="envbundle", options=VERIFY_TIME) is accepted
    assert we_accept(armored, MESSAGE, signers, now=NOW) is accepted


PATTERNS = st.lists(
    st.text("ab@*?!", min_size=1, max_size=5).filter(lambda t: t.strip("!")), min_size=1, max_size=3
)


@settings(max_examples=40, deadline=None)
@given(PATTERNS, st.text("ab@", min_size=1, max_size=4))
def test_principals_match_as_for_ssh_keygen(patterns: list[str], principal: str) -> None:
    signers = f"{','.join(patterns)} {public('ed25519')}\n"
    armored = sign(MESSAGE, ours("ed25519"), namespace="envbundle")
    expected = they_accept(armored, MESSAGE, signers, namespace="envbundle", principal=principal)
    assert we_accept(armored, MESSAGE, signers, now=NOW, principal=principal) is expected


@pytest.mark.parametrize(
    ("name", "hours"),
    [pytest.param("HERE0", 0, id="0"), pytest.param("EAST-9", 9, id="east"), ("WEST+3:30", -3.5)],
)
def test_local_times_are_those_of_ssh_keygen(name: str, hours: float) -> None:
    zone = timezone(timedelta(hours=hours))
    signers = f'a@x valid-after="202606151200" {public("ed25519")}\n'
    first = datetime(2026, 6, 15, 12, tzinfo=zone)
    listed = AllowedSigners.parse(signers.encode(), source="s", zone=zone)
    armored = sign(MESSAGE, ours("ed25519"), namespace="envbundle")
    for moment, accepted in ((first, True), (first - timedelta(seconds=1), False)):
        written = moment.astimezone(timezone.utc).strftime("%Y%m%d%H%M%SZ")
        answer = listed.judge(public("ed25519"), namespace="envbundle", now=moment, principals=None)
        assert isinstance(answer, Vouched) is accepted
        options = (f"-Overify-time={written}",)
        assert (
            they_accept(armored, MESSAGE, signers, namespace="envbundle", options=options, zone=name)
            is accepted
        )


def test_revocation_lists_of_ssh_keygen(tmp_path: Path) -> None:
    names = ("ed25519", "nistp256", "rsa2048")
    (tmp_path / "spec").write_text(
        f"hash: {public('ed25519').fingerprint}\nsha1: {public('nistp256')} x\nkey: {public('rsa2048')} x\n"
    )
    run("ssh-keygen", "-q", "-k", "-f", tmp_path / "list.krl", tmp_path / "spec")
    made = RevocationList.parse((tmp_path / "list.krl").read_bytes(), source="list.krl")
    assert all(made.revokes(public(name).blob) for name in names)
    assert not made.revokes(public("nistp384").blob)
    text = RevocationList.parse(f"{public('ed25519')} x\n".encode(), source="list")
    for name in ("ed25519", "nistp384"):
        (tmp_path / "text").write_text(f"{public('ed25519')} x\n")
        refused = not they_accept(
            sign(MESSAGE, ours(name), namespace="envbundle"),
            MESSAGE,
            f"a@x {public(name)}\n",
            namespace="envbundle",
            options=("-r", str(tmp_path / "text")),
        )
        assert text.revokes(public(name).blob) is refused is (name == "ed25519")


@pytest.mark.parametrize("kind", KINDS)
def test_encrypted_keys(kind: str) -> None:
    path = key_file(kind, "a passphrase", f"{kind}-locked")
    key = read_private_key(path.read_bytes(), lambda: b"a passphrase")
    armored = sign(MESSAGE, key, namespace="envbundle")
    listed = path.with_suffix(".pub").read_text()
    assert they_accept(armored, MESSAGE, f"a@x {listed}", namespace="envbundle")
    with pytest.raises(UserInputError, match="E-KEY-PASSPHRASE"):
        read_private_key(path.read_bytes(), lambda: b"another")


@pytest.mark.parametrize("form", ["PEM", "PKCS8"])
@pytest.mark.parametrize("passphrase", ["", "a passphrase"])
@pytest.mark.parametrize("kind", ["nistp256", "rsa2048"])
def test_older_key_files(kind: str, passphrase: str, form: str) -> None:
    path = folder() / f"{kind}-{form}-{bool(passphrase)}"
    run("ssh-keygen", "-q", *KINDS[kind], "-m", form, "-N", passphrase, "-f", path)
    key = read_private_key(path.read_bytes(), passphrase.encode if passphrase else None)
    assert key.public == PublicKey.parse(path.with_suffix(".pub").read_text())


# The agent


@contextmanager
def ssh_agent(*words: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as place:
        path = f"{place}/agent"
        process = subprocess.Popen(
            ["ssh-agent", "-D", "-a", path, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it prints where it listens once it does
            yield path
        finally:
            process.terminate()
            process.communicate(timeout=10)


def add(socket_path: str, *words: str | Path) -> None:
    run("ssh-add", "-q", *words, SSH_AUTH_SOCK=socket_path, DISPLAY="", SSH_ASKPASS="/bin/false")


def test_every_kind_of_key_in_ssh_agent() -> None:
    with ssh_agent() as path:
        assert agent_keys(path) == ()
        for kind in KINDS:
            add(path, key_file(kind))
        assert [key.comment for key in agent_keys(path)] == list(KINDS)
        for kind in KINDS:
            armored = sign(MESSAGE, agent_signer(path, public(kind).blob), namespace="envbundle")
            assert they_accept(armored, MESSAGE, f"a@x {public(kind)}\n", namespace="envbundle")
            if kind.startswith(("ed25519", "rsa")):
                assert armored == sign(MESSAGE, ours(kind), namespace="envbundle")


def test_what_ssh_agent_refuses() -> None:
    with ssh_agent() as path:
        add(path, "-c", key_file("ed25519"))
        with pytest.raises(HostError, match=r"E-AGENT.*refused"):
            sign(MESSAGE, agent_signer(path, public("ed25519").blob), namespace="envbundle")
        with pytest.raises(UserInputError, match="E-AGENT-KEY"):
            agent_signer(path, public("nistp256").blob)
    with pytest.raises(HostError, match="E-AGENT"):
        agent_keys(path)
