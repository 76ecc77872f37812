from __future__ import annotations

import base64
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import UserInputError
from envbundle.trust.key_files import read_private_key, read_public_key
from envbundle.trust.keys import PublicKey, UnsupportedKeyError
from envbundle.trust.wire import Reader, pack_mpint, pack_string

from .builders import DATA, KINDS, golden, golden_key, may_refuse, signer

FINGERPRINTS = {
    "ed25519": "SHA256:CwLzOjFb6OhoTvRMV0YtD9YpZoK2eb4gCnHohigCF7c",
    "nistp256": "SHA256:9W4Pd7IlWpv7MP1bwLxV9jRqp1B0pSwk6FnHWPKaSko",
    "nistp384": "SHA256:sOtzmW4OBFTY8LCgAAp5f4zDvCqGnGhabBHjska6bXI",
    "nistp521": "SHA256:08/ouICRGom9plNIRXkqWa5C+zHWUE/gBxRvb3niiL4",
    "rsa": "SHA256:KtTh3935vMhisE5vIyuJTTWzPOJ1UTNn/FzHSeyCL9E",
}


@pytest.mark.parametrize("name", KINDS)
def test_fingerprints_are_those_that_ssh_keygen_prints(name: str) -> None:
    assert golden_key(name).fingerprint == FINGERPRINTS[name]


@pytest.mark.parametrize("name", KINDS)
def test_a_public_key_round_trips(name: str) -> None:
    key = golden_key(name)
    assert PublicKey.parse(str(key)) == key


def blob(kind: bytes, *parts: bytes) -> bytes:
    return pack_string(kind) + b"".join(parts)


ODD_MODULUS = (1 << 2047) + 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(blob(b"ssh-ed25519"), id="no key"),
        pytest.param(blob(b"ssh-ed25519", pack_string(b"x" * 31)), id="short ed25519"),
        pytest.param(blob(b"ssh-ed25519", pack_string(b"x" * 32), b"\0"), id="trailing byte"),
        pytest.param(blob(b"ssh-ed448", pack_string(b"x" * 57)), id="unknown type"),
        pytest.param(blob(b"ssh-ed\xe925519", pack_string(b"x" * 32)), id="type that is no ASCII"),
        pytest.param(b"\xff\xff\xff\xffssh", id="length beyond the end"),
        pytest.param(
            blob(b"ecdsa-sha2-nistp256", pack_string(b"nistp384"), pack_string(b"\4" * 97)), id="other curve"
        ),
        pytest.param(
            blob(b"ecdsa-sha2-nistp256", pack_string(b"nistp256"), pack_string(b"\2" * 33)),
            id="compressed point",
        ),
        pytest.param(
            blob(b"ecdsa-sha2-nistp256", pack_string(b"nistp256"), pack_string(b"\2" + b"x" * 64)),
            id="point without its mark",
        ),
        pytest.param(blob(b"ssh-rsa", pack_mpint(2), pack_mpint(ODD_MODULUS)), id="even exponent"),
        pytest.param(blob(b"ssh-rsa", pack_mpint(1), pack_mpint(ODD_MODULUS)), id="exponent one"),
        pytest.param(blob(b"ssh-rsa", pack_mpint(2**65 + 1), pack_mpint(ODD_MODULUS)), id="huge exponent"),
        pytest.param(blob(b"ssh-rsa", pack_string(b"\0\3"), pack_mpint(ODD_MODULUS)), id="needless zero"),
        pytest.param(blob(b"ssh-rsa", pack_string(b"\x83"), pack_mpint(ODD_MODULUS)), id="negative"),
    ],
)
def test_malformed_public_keys_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        PublicKey(data)
    assert not isinstance(caught.value, UnsupportedKeyError)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(
            blob(b"ssh-rsa", pack_mpint(65537), pack_mpint((1 << 2046) + 1)), "2047 bits", id="short RSA"
        ),
        pytest.param(
            blob(b"ssh-rsa", pack_mpint(65537), pack_mpint((1 << 16384) + 1)), "16385", id="huge RSA"
        ),
        pytest.param(blob(b"ssh-dss", b"x"), "DSA", id="dsa"),
        pytest.param(blob(b"sk-ssh-ed25519@openssh.com", b"x"), "FIDO", id="sk ed25519"),
        pytest.param(blob(b"sk-ecdsa-sha2-nistp256@openssh.com", b"x"), "FIDO", id="sk ecdsa"),
        pytest.param(blob(b"ssh-ed25519-cert-v01@openssh.com", b"x"), "certificates", id="certificate"),
        pytest.param(blob(b"sk-ssh-ed25519-cert-v01@openssh.com", b"x"), "certificates", id="sk certificate"),
    ],
)
def test_known_kinds_that_are_not_built_say_so(data: bytes, says: str) -> None:
    with pytest.raises(UnsupportedKeyError, match=says):
        PublicKey(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 !!!!",
        "ssh-rsa " + str(golden_key("ed25519")).split()[1],
        "ssh-ed25519 AAAA",
    ],
)
def test_lines_that_hold_no_key_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        PublicKey.parse(text)


@given(st.integers(0, 2**80))
def test_mpints_round_trip(value: int) -> None:
    reader = Reader(pack_mpint(value))
    assert reader.mpint("value") == value
    reader.done("value")


# Key files


@pytest.mark.parametrize("name", KINDS)
def test_public_key_files(name: str) -> None:
    assert read_public_key(golden(f"{name}.pub")) == golden_key(name)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"", "E-KEY-FORMAT", id="empty"),
        pytest.param(b"\xff\xfe", "E-KEY-FORMAT", id="no text"),
        pytest.param(golden("ed25519"), "E-KEY-FORMAT", id="private half"),
        pytest.param(golden("rsa1024.pub"), "E-KEY-KIND", id="short RSA"),
        pytest.param(golden("dsa.pub"), "E-KEY-KIND", id="dsa"),
        pytest.param(golden("certificate.pub"), "E-KEY-KIND", id="certificate"),
    ],
)
def test_public_key_files_that_cannot_be_used(data: bytes, code: str) -> None:
    with pytest.raises(UserInputError) as caught:
        read_public_key(data, source="id.pub")
    assert (caught.value.code, caught.value.subject) == (code, "id.pub")


@pytest.mark.parametrize("name", ["ed25519", "nistp256", "rsa", "pkcs8.pem"])
def test_plain_private_keys_are_read_without_a_passphrase(name: str) -> None:
    def never() -> bytes:
        raise AssertionError("asked for a passphrase")

    key = read_private_key(golden(name), never)
    if name != "pkcs8.pem":
        assert key.public == golden_key(name)


@pytest.mark.parametrize("name", ["encrypted", "pkcs8-encrypted.pem"])
def test_encrypted_keys_ask_once(name: str) -> None:
    asked = []

    def ask() -> bytes:
        asked.append(1)
        return b"test only"

    key = read_private_key(golden(name), ask, source=name)
    assert len(asked) == 1
    if name == "encrypted":
        assert key.public == golden_key("encrypted")


PUBLIC_LINE = golden("ed25519.pub")
SK_LINE = b"sk-ssh-ed25519@openssh.com AAAA"


def openssh(body: bytes) -> bytes:
    text = base64.b64encode(body)
    return b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + text + b"\n-----END OPENSSH PRIVATE KEY-----\n"


def fido_container() -> bytes:
    head = b"".join(pack_string(part) for part in (b"none", b"none", b""))
    public = pack_string(
        pack_string(b"sk-ssh-ed25519@openssh.com") + pack_string(b"x" * 32) + pack_string(b"ssh:")
    )
    return openssh(b"openssh-key-v1\0" + head + b"\0\0\0\1" + public + pack_string(b"y" * 64))


@pytest.mark.parametrize(
    ("data", "passphrase", "code", "says"),
    [
        pytest.param(b"", None, "E-KEY-FORMAT", "", id="empty"),
        pytest.param(b"hello\n", None, "E-KEY-FORMAT", "", id="other text"),
        pytest.param(PUBLIC_LINE, None, "E-KEY-FORMAT", "public key", id="public half"),
        pytest.param(SK_LINE, None, "E-KEY-FORMAT", "public key", id="public half of a FIDO key"),
        pytest.param(golden("ed25519")[:200], None, "E-KEY-FORMAT", "", id="cut"),
        pytest.param(
            golden("ed25519").replace(b"b3Blbn", b"c3Blbn"), None, "E-KEY-FORMAT", "magic", id="magic"
        ),
        pytest.param(golden("ed25519") + b"x" * 70_000, None, "E-KEY-FORMAT", "bytes", id="too big"),
        pytest.param(
            golden("nistp256")[:303] + b"A" + golden("nistp256")[304:],
            None,
            "E-KEY-FORMAT",
            "point",
            id="a point that is not written out",
        ),
        pytest.param(
            golden("pkcs8.pem").replace(b"K2Vw", b"K2Vv"),
            None,
            "E-KEY-FORMAT",
            "",
            id="another algorithm's name",
        ),
        pytest.param(openssh(b"openssh-key-v1\0"), None, "E-KEY-FORMAT", "", id="header alone"),
        pytest.param(
            golden("encrypted"), None, "E-KEY-PASSPHRASE", "no passphrase", id="encrypted, not asked"
        ),
        pytest.param(golden("encrypted"), b"wrong", "E-KEY-PASSPHRASE", "wrong", id="wrong passphrase"),
        pytest.param(golden("encrypted"), b"", "E-KEY-PASSPHRASE", "wrong", id="empty passphrase"),
        pytest.param(golden("pkcs8-encrypted.pem"), None, "E-KEY-PASSPHRASE", "no pass", id="pem, not asked"),
        pytest.param(golden("pkcs8-encrypted.pem"), b"no", "E-KEY-PASSPHRASE", "wrong", id="pem, wrong"),
        pytest.param(golden("pkcs8-encrypted.pem"), b"", "E-KEY-PASSPHRASE", "wrong", id="pem, empty"),
        pytest.param(golden("dsa"), None, "E-KEY-KIND", "DSA", id="dsa"),
        pytest.param(golden("rsa1024"), None, "E-KEY-KIND", "1024 bits", id="short RSA"),
        pytest.param(fido_container(), None, "E-KEY-KIND", "FIDO", id="FIDO"),
    ],
)
def test_private_keys_that_cannot_be_used(
    data: bytes, passphrase: bytes | None, code: str, says: str
) -> None:
    ask = None if passphrase is None else (lambda: passphrase)
    with pytest.raises(UserInputError) as caught:
        read_private_key(data, ask, source="id_test")
    assert caught.value.code == code
    assert caught.value.subject == "id_test"
    assert says in str(caught.value)
    assert "test only" not in str(caught.value)


def test_a_curve_that_ssh_does_not_have_is_refused() -> None:
    from cryptography.hazmat.primitives import serialization

    pem = ec.generate_private_key(ec.SECP256K1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(UserInputError) as caught:
        read_private_key(pem)
    assert caught.value.code == "E-KEY-KIND"


def test_without_bcrypt_an_encrypted_key_names_the_module() -> None:
    script = (
        "import sys; sys.modules['bcrypt'] = None\n"
        "from envbundle.trust.key_files import read_private_key, read_public_key\n"
        "try:\n    read_private_key(open(sys.argv[1], 'rb').read(), lambda: b'test only')\n"
        "except Exception as fault:\n    print(type(fault).__name__, fault)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(DATA / "encrypted")], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("UserInputError E-KEY-BCRYPT")


def test_importing_the_room_does_not_load_cryptography() -> None:
    script = (
        "import sys, envbundle.trust.trusted, envbundle.trust.key_files, envbundle.trust.revocation\n"
        "import envbundle.trust.name_rules, envbundle.host.agent\n"
        "print('cryptography' in sys.modules, 'bcrypt' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["ed25519", "nistp256", "pkcs8.pem", "pkcs8-encrypted.pem"]), st.data())
def test_a_damaged_private_key_file_is_an_error_of_ours_or_still_a_key(
    name: str, data: st.DataObject
) -> None:
    content = bytearray(golden(name))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    with may_refuse("E-KEY-"):
        assert read_private_key(bytes(content), lambda: b"test only").public_blob


@pytest.mark.parametrize("kind", KINDS)
def test_a_signer_answers_with_an_algorithm_of_its_key(kind: str) -> None:
    key = signer("carol", kind)
    reader = Reader(key.sign(b"data"))
    key.public.verify(reader.text("algorithm"), reader.string("signature"), b"data")
    with pytest.raises(UnsupportedKeyError):
        key.public.verify("ssh-rsa", b"", b"data")
