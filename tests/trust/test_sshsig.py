from __future__ import annotations

import base64
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import HostError, TrustError, UserInputError
from envbundle.trust.key_files import read_private_key
from envbundle.trust.keys import pack_signature
from envbundle.trust.sshsig import BOOTSTRAP_NAMESPACE, MAX_ARMOR, Signature, blob_to_sign, sign
from envbundle.trust.wire import pack_mpint, pack_string

from .builders import KINDS, MESSAGE, golden, golden_key, signed, signer

BEGIN, END = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"
GOLDEN = [*KINDS, "ed25519-sha256"]


def armor(blob: bytes, width: int = 70) -> bytes:
    text = base64.b64encode(blob)
    return BEGIN + b"".join(text[at : at + width] + b"\n" for at in range(0, len(text), width)) + END


def made(
    *,
    magic: bytes = b"SSHSIG",
    version: int = 1,
    key: bytes | None = None,
    namespace: bytes = b"envbundle",
    reserved: bytes = b"",
    hash_name: bytes = b"sha512",
    signature: bytes | None = None,
    behind: bytes = b"",
) -> bytes:
    """Return an armored signature that is right but for what is given."""
    public = signer().public_blob if key is None else key
    proper = pack_signature("ssh-ed25519", b"x" * 64) if signature is None else signature
    parts = (public, namespace, reserved, hash_name, proper)
    return armor(magic + version.to_bytes(4, "big") + b"".join(pack_string(part) for part in parts) + behind)


# Golden signatures


@pytest.mark.parametrize("name", GOLDEN)
def test_signatures_of_ssh_keygen_verify_and_keep_their_bytes(name: str) -> None:
    signature = Signature.parse(golden(f"{name}.sig"))
    signature.verify(MESSAGE)
    assert signature.key == golden_key(name.removesuffix("-sha256"))
    assert signature.namespace == "envbundle"
    assert bytes(signature) == golden(f"{name}.sig")


@pytest.mark.parametrize("name", ["ed25519", "rsa"])
def test_our_signatures_are_the_bytes_of_ssh_keygen(name: str) -> None:
    assert sign(MESSAGE, read_private_key(golden(name)), namespace="envbundle") == golden(f"{name}.sig")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("namespace", ["envbundle", BOOTSTRAP_NAMESPACE])
def test_what_we_sign_verifies(kind: str, namespace: str) -> None:
    signature = Signature.parse(sign(MESSAGE, signer("alice", kind), namespace=namespace))
    signature.verify(MESSAGE)
    signature.verify(memoryview(bytearray(MESSAGE)))
    assert signature.namespace == namespace
    with pytest.raises(TrustError, match="E-SIG-BAD"):
        signature.verify(MESSAGE + b" ")
    with pytest.raises(TrustError, match="E-SIG-BAD"):
        dataclasses.replace(signature, namespace="other").verify(MESSAGE)
    with pytest.raises(TrustError, match="E-SIG-BAD"):
        dataclasses.replace(signature, hash_name="sha256").verify(MESSAGE)


# Malformed signatures

GOOD = golden("ed25519.sig")
GOOD_BLOB = Signature.parse(GOOD).to_blob()


def half(kind: bytes) -> bytes:
    return pack_string(kind) + pack_string(b"x" * 32)


WEAK_RSA = pack_string(b"ssh-rsa") + pack_mpint(65537) + pack_mpint((1 << 1023) + 1)
RSA = golden_key("rsa").blob

MALFORMED = [
    pytest.param(b"", "E-SIG-BAD", "empty", id="empty file"),
    pytest.param(b"\n\n", "E-SIG-BAD", "empty", id="blank lines"),
    pytest.param(b"hello", "E-SIG-BAD", "armored", id="other text"),
    pytest.param(BEGIN + END, "E-SIG-BAD", "armored", id="no data"),
    pytest.param(BEGIN + b"\n" + END, "E-SIG-BAD", "armored", id="a blank line in it"),
    pytest.param(GOOD + GOOD, "E-SIG-BAD", "more than one", id="two in one file"),
    pytest.param(GOOD + b"\n", "E-SIG-BAD", "around", id="a blank line behind"),
    pytest.param(b"\n" + GOOD, "E-SIG-BAD", "around", id="a blank line before"),
    pytest.param(GOOD.replace(b"\n", b"\r\n"), "E-SIG-BAD", "armored", id="carriage returns"),
    pytest.param(GOOD[: len(GOOD) // 2], "E-SIG-BAD", "armored", id="cut"),
    pytest.param(GOOD.replace(b"BEGIN SSH", b"BEGIN PGP"), "E-SIG-BAD", "armored", id="other armor"),
    pytest.param(BEGIN + b"AAA\n" + END, "E-SIG-BAD", "base64", id="base64 of a wrong length"),
    pytest.param(BEGIN + b"A=AA\n" + END, "E-SIG-BAD", "base64", id="padding inside"),
    pytest.param(BEGIN + b"U1NIU0lHAB==\n" + END, "E-SIG-BAD", "base64", id="bits that mean nothing"),
    pytest.param(armor(GOOD_BLOB + b"\0" * MAX_ARMOR), "E-SIG-BAD", "more than any", id="oversized"),
    pytest.param(made(magic=b"SSHSIX"), "E-SIG-BAD", "magic", id="magic"),
    pytest.param(made(version=0), "E-SIG-BAD", "version 0", id="version 0"),
    pytest.param(made(version=2), "E-SIG-UNSUPPORTED", "version 2", id="version 2"),
    pytest.param(made(key=b""), "E-SIG-BAD", "", id="no key"),
    pytest.param(made(key=half(b"ssh-ed448")), "E-SIG-BAD", "unknown key type", id="unknown key"),
    pytest.param(made(key=half(b"ssh-dss")), "E-SIG-UNSUPPORTED", "DSA", id="dsa"),
    pytest.param(made(key=WEAK_RSA), "E-SIG-UNSUPPORTED", "1024 bits", id="short RSA"),
    pytest.param(made(key=half(b"sk-ssh-ed25519@openssh.com")), "E-SIG-UNSUPPORTED", "FIDO", id="FIDO"),
    pytest.param(golden("certificate.sig"), "E-SIG-UNSUPPORTED", "certificates", id="certificate"),
    pytest.param(golden("rsa1024.sig"), "E-SIG-UNSUPPORTED", "1024 bits", id="short RSA of ssh-keygen"),
    pytest.param(made(namespace=b""), "E-SIG-BAD", "namespace", id="no namespace"),
    pytest.param(made(namespace=b"envbundle\0x"), "E-SIG-BAD", "namespace", id="namespace with a NUL"),
    pytest.param(made(namespace="envbündle".encode()), "E-SIG-BAD", "namespace", id="namespace in UTF-8"),
    pytest.param(made(reserved=b"x"), "E-SIG-BAD", "reserved", id="reserved field"),
    pytest.param(made(hash_name=b"md5"), "E-SIG-UNSUPPORTED", "md5", id="md5"),
    pytest.param(made(hash_name=b"sha1"), "E-SIG-UNSUPPORTED", "sha1", id="sha1"),
    pytest.param(made(hash_name=b"sha384"), "E-SIG-UNSUPPORTED", "sha384", id="another sha2"),
    pytest.param(made(hash_name=b""), "E-SIG-BAD", "hash", id="no hash"),
    pytest.param(made(signature=b""), "E-SIG-BAD", "", id="no signature"),
    pytest.param(
        made(signature=pack_signature("ssh-ed25519", b"x" * 64) + b"\0"),
        "E-SIG-BAD",
        "behind",
        id="inner tail",
    ),
    pytest.param(made(behind=b"\0"), "E-SIG-BAD", "behind the end", id="trailing byte"),
    pytest.param(
        made(signature=pack_signature("ssh-rsa", b"x" * 64)),
        "E-SIG-UNSUPPORTED",
        "ssh-rsa",
        id="other algorithm",
    ),
    pytest.param(
        made(key=RSA, signature=pack_signature("ssh-rsa", b"x" * 256)),
        "E-SIG-UNSUPPORTED",
        "ssh-rsa",
        id="RSA SHA-1",
    ),
]


@pytest.mark.parametrize(("armored", "code", "says"), MALFORMED)
def test_malformed_signatures(armored: bytes, code: str, says: str) -> None:
    with pytest.raises(TrustError) as caught:
        Signature.parse(armored, subject="a.sig")
    assert (caught.value.code, caught.value.subject) == (code, "a.sig")
    assert says in str(caught.value)


EC = golden_key("nistp256").blob
R = pack_mpint(5)


@pytest.mark.parametrize(
    ("key", "algorithm", "raw"),
    [
        pytest.param(None, "ssh-ed25519", b"x" * 63, id="ed25519 of 63 bytes"),
        pytest.param(None, "ssh-ed25519", b"", id="ed25519 of nothing"),
        pytest.param(RSA, "rsa-sha2-512", b"x" * 255, id="RSA shorter than its modulus"),
        pytest.param(RSA, "rsa-sha2-256", b"\xff" * 256, id="RSA larger than its modulus"),
        pytest.param(EC, "ecdsa-sha2-nistp256", b"", id="ecdsa of nothing"),
        pytest.param(EC, "ecdsa-sha2-nistp256", R, id="ecdsa without s"),
        pytest.param(EC, "ecdsa-sha2-nistp256", R + pack_mpint(0), id="ecdsa with s = 0"),
        pytest.param(EC, "ecdsa-sha2-nistp256", R + R + b"\0", id="ecdsa with a tail"),
        pytest.param(EC, "ecdsa-sha2-nistp256", pack_string(b"\x80") + R, id="negative r"),
        pytest.param(EC, "ecdsa-sha2-nistp256", pack_mpint(1 << 4000) + R, id="huge r"),
        pytest.param(
            pack_string(b"ecdsa-sha2-nistp256") + pack_string(b"nistp256") + pack_string(b"\4" + b"\7" * 64),
            "ecdsa-sha2-nistp256",
            R + R,
            id="a point off the curve",
        ),
        pytest.param(
            pack_string(b"ssh-rsa") + pack_mpint(65537) + pack_mpint(1 << 2047),
            "rsa-sha2-512",
            b"x" * 256,
            id="even modulus",
        ),
        pytest.param(
            pack_string(b"ssh-ed25519") + pack_string(b"\xff" * 32), "ssh-ed25519", b"x" * 64, id="no point"
        ),
    ],
)
def test_well_formed_nonsense_is_a_bad_signature(key: bytes | None, algorithm: str, raw: bytes) -> None:
    signature = Signature.parse(made(key=key, signature=pack_signature(algorithm, raw)))
    with pytest.raises(TrustError, match="E-SIG-BAD"):
        signature.verify(MESSAGE)


@pytest.mark.parametrize("width", [1, 64, 76, 80])
def test_other_tools_break_lines_elsewhere(width: int) -> None:
    assert Signature.parse(armor(GOOD_BLOB, width)) == Signature.parse(GOOD)


def test_the_last_line_feed_may_be_missing() -> None:
    assert Signature.parse(GOOD.rstrip(b"\n")) == Signature.parse(GOOD)


# Properties


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KINDS), st.data())
def test_any_changed_byte_of_a_signature_is_a_trust_error(name: str, data: st.DataObject) -> None:
    blob = bytearray(Signature.parse(golden(f"{name}.sig")).to_blob())
    at = data.draw(st.integers(0, len(blob) - 1), label="at")
    blob[at] ^= data.draw(st.integers(1, 255), label="flip")
    with pytest.raises(TrustError, match="E-SIG-"):
        Signature.parse(armor(bytes(blob))).verify(MESSAGE)


@pytest.mark.parametrize("name", ["ed25519", "nistp256"])
def test_every_single_bit_of_a_signature_counts(name: str) -> None:
    good = Signature.parse(golden(f"{name}.sig")).to_blob()
    for at in range(len(good)):
        for bit in (1, 128):
            blob = bytearray(good)
            blob[at] ^= bit
            with pytest.raises(TrustError, match="E-SIG-"):
                Signature.parse(armor(bytes(blob))).verify(MESSAGE)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, len(MESSAGE) - 1), st.integers(1, 255))
def test_any_changed_byte_of_the_message_is_a_trust_error(name: str, at: int, flip: int) -> None:
    message = bytearray(MESSAGE)
    message[at] ^= flip
    with pytest.raises(TrustError, match="E-SIG-BAD"):
        Signature.parse(golden(f"{name}.sig")).verify(message)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_trust_error_and_nothing_else(data: bytes) -> None:
    for armored in (data, armor(data), armor(b"SSHSIG\0\0\0\1" + data)):
        with pytest.raises(TrustError):
            Signature.parse(armored)


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=200),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=40),
)
def test_signing_and_parsing_round_trip(message: bytes, namespace: str) -> None:
    armored = sign(message, signer(), namespace=namespace)
    signature = Signature.parse(armored)
    signature.verify(message)
    assert (signature.namespace, bytes(signature)) == (namespace, armored)


# Signing


def test_the_bytes_that_are_signed_follow_the_format() -> None:
    blob = blob_to_sign(b"", "n", "sha256")
    empty = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert blob == b"SSHSIG\0\0\0\1n\0\0\0\0\0\0\0\6sha256\0\0\0 " + empty


@pytest.mark.parametrize("namespace", ["", "new\nline", "\0", "ü"])
def test_a_namespace_that_is_none_is_a_fault_of_the_program(namespace: str) -> None:
    with pytest.raises(RuntimeError):
        sign(MESSAGE, signer(), namespace=namespace)


class Answering:
    """A signer as a broken or hostile agent would be: it returns what it is told to."""

    def __init__(self, public_blob: bytes, answer: bytes) -> None:
        self.public_blob, self.answer = public_blob, answer

    def sign(self, data: bytes) -> bytes:
        assert data.startswith(b"SSHSIG")
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\0\0\0\xffx", id="cut"),
        pytest.param(pack_signature("ssh-ed25519", b"x" * 64), id="another signature"),
        pytest.param(pack_signature("ssh-rsa", b"x" * 64), id="another algorithm"),
        pytest.param(pack_signature("ssh-ed25519", b"x" * 20_000), id="oversized"),
    ],
)
def test_what_does_not_verify_is_never_handed_out(answer: bytes) -> None:
    with pytest.raises(HostError, match="E-AGENT"):
        sign(MESSAGE, Answering(signer().public_blob, answer), namespace="envbundle")


def test_an_agent_may_drop_the_leading_zeros_of_an_rsa_signature() -> None:
    key = signer("alice", "rsa")
    for number in range(3000):
        message = b"%d" % number
        answer = key.sign(blob_to_sign(message, "envbundle"))
        head, raw = answer[: -4 - 256], answer[-256:]
        if raw[0] == 0:
            short = Answering(key.public_blob, head + pack_string(raw.lstrip(b"\0")))
            assert sign(message, short, namespace="envbundle") == sign(message, key, namespace="envbundle")
            return
    raise AssertionError("no signature with a leading zero in 3000")


def test_a_kind_of_key_that_nobody_could_check_does_not_sign() -> None:
    fido = pack_string(b"sk-ssh-ed25519@openssh.com") + pack_string(b"x" * 32) + pack_string(b"ssh:")
    with pytest.raises(UserInputError, match=r"E-KEY-KIND.*FIDO"):
        sign(MESSAGE, Answering(fido, b""), namespace="envbundle")


def test_ed25519_signs_without_chance() -> None:
    assert signed() == signed()
    assert Signature.parse(signed()).key == signer().public
