from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import UserInputError
from envbundle.trust.revocation import RevocationList
from envbundle.trust.wire import pack_string

from .builders import KINDS, golden, golden_key, may_refuse


def revoked(data: bytes) -> set[str]:
    parsed = RevocationList.parse(data, source="revoked")
    return {name for name in KINDS if parsed.revokes(golden_key(name).blob)}


RSA_PRINT = golden_key("rsa").fingerprint


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", set(), id="empty"),
        pytest.param(b"# nothing\n\n", set(), id="comment"),
        pytest.param(golden("ed25519.pub"), {"ed25519"}, id="key"),
        pytest.param(golden("ed25519.pub") + golden("nistp384.pub"), {"ed25519", "nistp384"}, id="keys"),
        pytest.param(f"{RSA_PRINT}\n".encode(), {"rsa"}, id="fingerprint"),
        pytest.param(f"  {RSA_PRINT}=  # lost laptop\r\n".encode(), {"rsa"}, id="fingerprint and comment"),
        pytest.param(f"hash: {RSA_PRINT}\n".encode(), {"rsa"}, id="as ssh-keygen's lists have it"),
        pytest.param(golden("dsa.pub") + golden("certificate.pub"), set(), id="kinds that never vouch"),
        pytest.param(golden("revoked.krl"), {"ed25519", "rsa"}, id="krl of keys"),
        pytest.param(golden("mixed.krl"), {"nistp256", "nistp384"}, id="krl of fingerprints and a serial"),
    ],
)
def test_lists(data: bytes, expected: set[str]) -> None:
    assert revoked(data) == expected


@pytest.mark.parametrize(
    ("data", "subject"),
    [
        pytest.param(b"hello\n", "revoked:1", id="other text"),
        pytest.param(b"\nSHA256:abc\n", "revoked:2", id="short fingerprint"),
        pytest.param(RSA_PRINT.encode() + b"x\n", "revoked:1", id="long fingerprint"),
        pytest.param(b"MD5:16:27:ac:a5\n", "revoked:1", id="md5"),
        pytest.param(b"ssh-ed25519 AAAA\n", "revoked:1", id="damaged key"),
        pytest.param(b"ssh-ed25519 \xff\n", "revoked", id="no text"),
    ],
)
def test_text_that_cannot_be_read(data: bytes, subject: str) -> None:
    with pytest.raises(UserInputError) as caught:
        revoked(data)
    assert (caught.value.code, caught.value.subject) == ("E-REVOKED-LIST", subject)


def krl(*sections: bytes, version: int = 1) -> bytes:
    head = (
        b"SSHKRL\n\0" + version.to_bytes(4, "big") + bytes(24) + pack_string(b"") + pack_string(b"a comment")
    )
    return head + b"".join(sections)


def section(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + pack_string(body)


def test_extensions_that_are_not_critical_are_passed_over() -> None:
    extension = section(255, pack_string(b"new@x") + b"\0" + pack_string(b"?"))
    assert revoked(krl(extension, section(2, pack_string(golden_key("rsa").blob)))) == {"rsa"}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(krl(version=2), "version 2", id="version"),
        pytest.param(krl()[:30], "", id="cut header"),
        pytest.param(golden("revoked.krl")[:-1], "", id="cut section"),
        pytest.param(krl(section(4, b"")), "signed", id="signed"),
        pytest.param(krl(section(9, b"")), "type 9", id="unknown section"),
        pytest.param(krl(section(255, pack_string(b"new@x") + b"\1")), "critical", id="critical extension"),
        pytest.param(krl(section(5, pack_string(b"x" * 20))), "20 bytes", id="wrong size of a fingerprint"),
        pytest.param(krl(section(2, b"\0\0\0\x09x")), "", id="cut key"),
    ],
)
def test_binary_lists_that_cannot_be_obeyed(data: bytes, says: str) -> None:
    with pytest.raises(UserInputError, match="E-REVOKED-LIST") as caught:
        revoked(data)
    assert says in caught.value.found


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["revoked.krl", "mixed.krl", "ed25519.pub"]), st.data())
def test_a_damaged_list_is_read_or_refused(name: str, data: st.DataObject) -> None:
    content = bytearray(golden(name))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    with may_refuse("E-REVOKED-LIST"):
        assert revoked(cut) <= {"ed25519", "rsa", "nistp256", "nistp384"}
