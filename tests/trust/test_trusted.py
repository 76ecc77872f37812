"""The gate, case B76 of the public reports (signature by-pass) and the rules of serials."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import FormatError, TrustError, UserInputError
from envbundle.spec.digest import Digest
from envbundle.trust.name_rules import NameRules
from envbundle.trust.policy import TrustPolicy, check_serial
from envbundle.trust.revocation import RevocationList
from envbundle.trust.sshsig import BOOTSTRAP_NAMESPACE, Signature
from envbundle.trust.trusted import (
    MAX_SIGNATURES,
    Trust,
    TrustedDescriptor,
    accept,
    accept_bootstrap,
    check_signatures,
    signature_status,
)

from .builders import MESSAGE, NOW, Demo, golden, line, policy, signed, signer

ID = Digest.of(MESSAGE)
OTHER = MESSAGE.replace(b"sm_103", b"sm_120")


def gate(*signatures: bytes, trusting: TrustPolicy, data: bytes = MESSAGE) -> TrustedDescriptor[Demo]:
    return accept(data, signatures, policy=trusting, parse=Demo.parse)


def refusal(*signatures: bytes, trusting: TrustPolicy, data: bytes = MESSAGE) -> TrustError:
    """Return the refusal; the descriptor must not even have been parsed."""

    def never(data: bytes) -> Demo:
        raise AssertionError("parsed before it was trusted")

    with pytest.raises(TrustError) as caught:
        accept(data, signatures, policy=trusting, parse=never)
    return caught.value


def damaged(armored: bytes) -> bytes:
    """Return the signature with a bit of its octets flipped: well-formed, and bad."""
    signature = Signature.parse(armored)
    raw = bytes([signature.raw[0] ^ 1]) + signature.raw[1:]
    return bytes(dataclasses.replace(signature, raw=raw))


def revoking(name: str) -> tuple[RevocationList, ...]:
    return (RevocationList.parse(str(signer(name).public).encode(), source="revoked"),)


def rules(text: str) -> NameRules:
    return NameRules.parse(text.encode(), source="rules")


# What is accepted


def test_a_trusted_signature() -> None:
    trusted = gate(signed(), trusting=policy(line()))
    assert (trusted.data, trusted.id, trusted.descriptor) == (MESSAGE, ID, Demo("demo"))
    assert trusted.trust == Trust(
        status="verified",
        principal="alice@test.example",
        key=signer().public.fingerprint,
        namespace="envbundle",
    )
    assert trusted.trust.to_dict()["status"] == "verified"


@pytest.mark.parametrize(
    ("signatures", "fields", "status", "principal", "notes"),
    [
        pytest.param((), {"allow_unsigned": True}, "unsigned", None, ["W-UNSIGNED"], id="unsigned, allowed"),
        pytest.param((), {"pinned_id": ID}, "pinned", None, [], id="unsigned, pinned"),
        pytest.param(
            (signed(by="bob"),), {"pinned_id": ID}, "pinned", None, ["N-SIG-OTHER"], id="unknown, pinned"
        ),
        pytest.param((signed(),), {"pinned_id": ID}, "pinned", "alice@test.example", [], id="signed, pinned"),
        pytest.param(
            (signed(),),
            {"allow_unsigned": True},
            "verified",
            "alice@test.example",
            [],
            id="signed, unsigned allowed",
        ),
        pytest.param(
            (signed(by="bob"), signed()),
            {},
            "verified",
            "alice@test.example",
            ["N-SIG-OTHER"],
            id="unknown beside",
        ),
        pytest.param((signed(), signed()), {}, "verified", "alice@test.example", [], id="the same twice"),
        pytest.param(
            (signed(by="bob"), signed()),
            {"revoked": revoking("bob")},
            "verified",
            "alice@test.example",
            ["N-SIG-OTHER"],
            id="revoked beside, as after a change of keys",
        ),
        pytest.param(
            (signed(),),
            {"signers": ("alice@test.example",)},
            "verified",
            "alice@test.example",
            [],
            id="signer asked for",
        ),
        pytest.param(
            (signed(),),
            {"signers": ("alice@test.example",), "pinned_id": ID},
            "pinned",
            "alice@test.example",
            [],
            id="signer and id asked for",
        ),
        pytest.param(
            (signed(),),
            {"name_rules": rules("demo alice@test.example")},
            "verified",
            "alice@test.example",
            [],
            id="rule for the name",
        ),
        pytest.param(
            (), {"name_rules": rules("x y"), "pinned_id": ID}, "pinned", None, [], id="an id beats the rules"
        ),
    ],
)
def test_accepted(
    signatures: tuple[bytes, ...], fields: dict[str, object], status: str, principal: str, notes: list[str]
) -> None:
    trust = gate(*signatures, trusting=policy(line(), **fields)).trust
    assert (trust.status, trust.principal) == (status, principal)
    assert [finding.code for finding in trust.findings] == notes


# What is refused

LENIENT: list[dict[str, object]] = [{}, {"allow_unsigned": True}, {"pinned_id": ID}]


@pytest.mark.parametrize("fields", LENIENT, ids=["plain", "allow unsigned", "pinned"])
@pytest.mark.parametrize(
    ("signatures", "code"),
    [
        pytest.param((damaged(signed()),), "E-SIG-BAD", id="bad"),
        pytest.param((signed(), damaged(signed())), "E-SIG-BAD", id="bad behind good"),
        pytest.param(
            (damaged(signed(by="bob")), signed()), "E-SIG-BAD", id="bad by an unknown key before good"
        ),
        pytest.param((b"",), "E-SIG-BAD", id="empty file"),
        pytest.param((signed(), b""), "E-SIG-BAD", id="empty file beside good"),
        pytest.param((signed() + signed(),), "E-SIG-BAD", id="two in one file"),
        pytest.param((signed(OTHER),), "E-SIG-BAD", id="good over another bundle"),
        pytest.param((signed(namespace="git"),), "E-SIG-NAMESPACE", id="made for git"),
        pytest.param(
            (signed(namespace=BOOTSTRAP_NAMESPACE),), "E-SIG-NAMESPACE", id="made for the bootstrap"
        ),
        pytest.param((signed(), signed(namespace="git")), "E-SIG-NAMESPACE", id="made for git, beside good"),
        pytest.param((golden("certificate.sig"),), "E-SIG-UNSUPPORTED", id="by a certificate"),
        pytest.param((golden("rsa1024.sig"), signed()), "E-SIG-UNSUPPORTED", id="by a weak key, beside good"),
        pytest.param((signed(),) * (MAX_SIGNATURES + 1), "E-SIG-BAD", id="too many"),
    ],
)
def test_bad_is_fatal_whatever_else_holds(
    signatures: tuple[bytes, ...], code: str, fields: dict[str, object]
) -> None:
    fault = refusal(*signatures, trusting=policy(line(), **fields))
    assert fault.code == code
    assert signature_status(fault) == "bad"


EXPIRED = line(options='valid-before="20260101"')
NOT_YET = line(options='valid-after="20270101"')
ALICE = ("alice@test.example",)


@pytest.mark.parametrize(
    ("lines", "signatures", "fields", "code", "status"),
    [
        pytest.param([line()], (), {}, "E-SIG-MISSING", "unsigned", id="no signature"),
        pytest.param([], (), {}, "E-SIG-MISSING", "unsigned", id="no signature, nobody trusted"),
        pytest.param(
            [line()],
            (),
            {"signers": ALICE, "allow_unsigned": True},
            "E-SIG-MISSING",
            "unsigned",
            id="a signer is named",
        ),
        pytest.param(
            [line()],
            (),
            {"signers": ALICE, "pinned_id": ID},
            "E-SIG-MISSING",
            "unsigned",
            id="pinned, and a signer is named",
        ),
        pytest.param([line()], (signed(by="bob"),), {}, "E-SIG-UNTRUSTED", "untrusted", id="unknown key"),
        pytest.param([], (signed(),), {}, "E-SIG-UNTRUSTED", "untrusted", id="nobody trusted"),
        pytest.param(
            [line()],
            (signed(by="bob"),),
            {"allow_unsigned": True},
            "E-SIG-UNTRUSTED",
            "untrusted",
            id="unknown is not unsigned",
        ),
        pytest.param(
            [line(options='namespaces="git"')], (signed(),), {}, "E-SIG-NAMESPACE", "untrusted", id="git key"
        ),
        pytest.param([EXPIRED], (signed(),), {}, "E-SIG-EXPIRED", "untrusted", id="expired"),
        pytest.param(
            [EXPIRED],
            (signed(),),
            {"allow_unsigned": True},
            "E-SIG-EXPIRED",
            "untrusted",
            id="expired is not unsigned",
        ),
        pytest.param([NOT_YET], (signed(),), {}, "E-SIG-NOT-YET", "untrusted", id="not yet"),
        pytest.param(
            [line()], (signed(),), {"revoked": revoking("alice")}, "E-SIG-REVOKED", "untrusted", id="revoked"
        ),
        pytest.param(
            [line()], (signed(),), {"signers": ("bob@x",)}, "E-SIG-PRINCIPAL", "untrusted", id="other signer"
        ),
        pytest.param(
            [line()],
            (signed(),),
            {"signers": ("bob@x",), "pinned_id": ID},
            "E-SIG-PRINCIPAL",
            "untrusted",
            id="pinned, other signer",
        ),
        pytest.param(
            [line(options="cert-authority")],
            (signed(),),
            {},
            "E-SIG-UNSUPPORTED",
            "untrusted",
            id="only an authority",
        ),
        pytest.param(
            [EXPIRED],
            (signed(by="bob"), signed()),
            {},
            "E-SIG-EXPIRED",
            "untrusted",
            id="the nearest of two is told",
        ),
        pytest.param(
            [line()], (signed(),), {"pinned_id": Digest.of(OTHER)}, "E-ID-MISMATCH", "bad", id="another id"
        ),
    ],
)
def test_refused(
    lines: list[str], signatures: tuple[bytes, ...], fields: dict[str, object], code: str, status: str
) -> None:
    fault = refusal(*signatures, trusting=policy(*lines, **fields))
    assert (fault.code, signature_status(fault)) == (code, status)
    assert fault.subject
    assert fault.hint or fault.expected


def test_every_refused_signature_is_told() -> None:
    fault = refusal(signed(by="bob"), signed(), trusting=policy(EXPIRED))
    assert [finding.code for finding in fault.findings] == ["E-SIG-EXPIRED", "E-SIG-UNTRUSTED"]
    assert signer("bob").public.fingerprint in fault.findings[1].found


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param("demo bob@x", "E-SIG-PRINCIPAL", id="another may"),
        pytest.param("other alice@test.example", "E-SIG-PRINCIPAL", id="no line for the name"),
        pytest.param("", "E-SIG-PRINCIPAL", id="no line"),
    ],
)
def test_rules_for_names(text: str, code: str) -> None:
    with pytest.raises(TrustError) as caught:
        gate(signed(), trusting=policy(line(), name_rules=rules(text)))
    assert (caught.value.code, signature_status(caught.value)) == (code, "untrusted")
    assert "demo" in caught.value.subject


def test_where_the_site_has_rules_nothing_passes_unsigned() -> None:
    with pytest.raises(TrustError, match="E-SIG-MISSING"):
        gate(trusting=policy(line(), name_rules=rules("demo alice@test.example"), allow_unsigned=True))


def test_rules_and_signer_must_both_hold() -> None:
    both = line(principals="alice@x,bob@x")
    named = rules("demo alice@x")
    assert (
        gate(signed(), trusting=policy(both, name_rules=named, signers=("alice@x",))).trust.principal
        == "alice@x"
    )
    with pytest.raises(TrustError, match="E-SIG-PRINCIPAL"):
        gate(signed(), trusting=policy(both, name_rules=named, signers=("bob@x",)))


# B76 as it was reported


@pytest.mark.parametrize("fields", LENIENT, ids=["plain", "allow unsigned", "pinned"])
def test_b76_the_arch_field_changed(fields: dict[str, object]) -> None:
    fault = refusal(signed(), trusting=policy(line(), **fields), data=OTHER)
    assert fault.code == ("E-ID-MISMATCH" if "pinned_id" in fields else "E-SIG-BAD")
    assert isinstance(fault, TrustError)


def test_b76_a_key_shipped_in_the_bundle_counts_for_nothing() -> None:
    data = b'{"name":"demo","allowed_signers":' + repr(line("mallory")).encode() + b"}"
    assert refusal(signed(data, "mallory"), trusting=policy(line()), data=data).code == "E-SIG-UNTRUSTED"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_b76_any_changed_byte_anywhere_is_refused(data: st.DataObject) -> None:
    parts = [bytearray(MESSAGE), bytearray(signed())]
    part = data.draw(st.sampled_from(parts))
    # The armor's end may lack its line feed, so that byte alone may change without changing the signature.
    at = data.draw(st.integers(0, len(part) - 1 - (part is parts[1])))
    part[at] ^= data.draw(st.integers(1, 255))
    fields = data.draw(st.sampled_from(LENIENT))
    fault = refusal(bytes(parts[1]), trusting=policy(line(), **fields), data=bytes(parts[0]))
    assert fault.code in ("E-SIG-BAD", "E-SIG-UNSUPPORTED", "E-SIG-NAMESPACE", "E-ID-MISMATCH")


# The value


def test_nobody_else_makes_a_trusted_descriptor() -> None:
    with pytest.raises(RuntimeError):
        TrustedDescriptor(
            data=MESSAGE, descriptor=Demo("demo"), id=ID, trust=Trust(status="verified"), proof=object()
        )


def test_a_trusted_descriptor_is_neither_changed_nor_copied() -> None:
    trusted = gate(signed(), trusting=policy(line()))
    with pytest.raises(dataclasses.FrozenInstanceError):
        trusted.data = OTHER  # type: ignore[misc]
    # Which of the two it is depends on the version of Python.
    with pytest.raises((TypeError, ValueError), match="proof"):
        dataclasses.replace(trusted, data=OTHER)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        pickle.dumps(trusted)
    with pytest.raises(TypeError):
        copy.copy(trusted)


def test_what_the_parser_says_about_trusted_bytes_passes_through() -> None:
    def parse(data: bytes) -> Demo:
        raise FormatError("E-FORMAT", "descriptor")

    with pytest.raises(FormatError):
        accept(MESSAGE, [signed()], policy=policy(line()), parse=parse)


def test_a_policy_needs_an_aware_time() -> None:
    with pytest.raises(RuntimeError):
        TrustPolicy(now=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("name", ["", "*@x", "a@x,b@x", "!a@x", "a b", 'a"b'])
def test_a_signer_is_one_plain_name(name: str) -> None:
    with pytest.raises(UserInputError, match="E-SIGNER-NAME"):
        TrustPolicy(now=NOW, signers=(name,))


# Bootstrap, and carrying without judging


def test_the_bootstrap_has_its_own_namespace() -> None:
    data = b"PK install.pyz"
    boot = signed(data, namespace=BOOTSTRAP_NAMESPACE)
    assert accept_bootstrap(data, [boot], policy=policy(line())).namespace == BOOTSTRAP_NAMESPACE
    for signatures, trusting, code in (
        ([signed(data)], policy(line()), "E-SIG-NAMESPACE"),
        ([boot], policy(line(options='namespaces="envbundle"')), "E-SIG-NAMESPACE"),
        ([], policy(line()), "E-SIG-MISSING"),
        ([boot], policy(line(), pinned_id=ID), "E-ID-MISMATCH"),
    ):
        with pytest.raises(TrustError) as caught:
            accept_bootstrap(data, signatures, policy=trusting)
        assert caught.value.code == code


def test_signatures_are_checked_without_anybody_being_trusted() -> None:
    assert [s.key for s in check_signatures(MESSAGE, [signed(), signed(by="bob")])] == [
        signer("alice").public,
        signer("bob").public,
    ]
    assert check_signatures(MESSAGE, []) == ()
    with pytest.raises(TrustError, match="signature 2 of"):
        check_signatures(MESSAGE, [signed(), signed(OTHER)])


# Serials


@pytest.mark.parametrize(
    ("found", "highest", "allowed", "expected"),
    [
        pytest.param(None, None, False, None, id="never any"),
        pytest.param(7, None, False, 7, id="the first"),
        pytest.param(0, None, False, 0, id="the first is zero"),
        pytest.param(8, 7, False, 8, id="higher"),
        pytest.param(7, 7, False, 7, id="equal"),
        pytest.param(6, 7, False, "E-DOWNGRADE", id="lower"),
        pytest.param(None, 7, False, "E-DOWNGRADE", id="none after one"),
        pytest.param(None, 0, False, "E-DOWNGRADE", id="none after zero"),
        pytest.param(6, 7, True, 7, id="lower, allowed: the mark stays"),
        pytest.param(None, 7, True, 7, id="none, allowed"),
        pytest.param(9, 7, True, 9, id="higher, allowed"),
    ],
)
def test_serials(found: int | None, highest: int | None, allowed: bool, expected: object) -> None:
    try:
        answer: object = check_serial(found, highest, allow_downgrade=allowed)
    except TrustError as fault:
        answer = fault.code
    assert answer == expected


@given(st.lists(st.none() | st.integers(0, 9), max_size=12))
def test_the_mark_never_falls(serials: list[int | None]) -> None:
    mark: int | None = None
    for serial in serials:
        before = mark
        try:
            mark = check_serial(serial, mark)
        except TrustError:
            assert before is not None
            assert serial is None or serial < before
        assert before is None or (mark is not None and mark >= before)
