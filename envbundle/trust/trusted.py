"""The gate: bytes and signatures go in, a ``TrustedDescriptor`` comes out, or a ``TrustError``.

* Every signature that is there must be well-formed and fit the bytes, whatever else vouches for them: a bad
  one means that somebody changed something. No flag lets it pass.
* Valid signatures by unknown, expired or revoked keys do no harm beside one by a trusted signer.
* Keys and names come from the policy alone, never from the bundle. No signature at all passes only with
  ``allow_unsigned`` or a pinned id.
* A pinned id is a root of trust by itself; where signers are named as well, both must hold.
* Nothing is parsed before somebody vouches for the bytes. Where the site has name rules, no bundle passes
  unsigned.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol, TypeVar

from envbundle.errors import TrustError
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding

from .outcome import Refusal, Vouched, nearest
from .sshsig import BOOTSTRAP_NAMESPACE, DESCRIPTOR_NAMESPACE, Signature

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .policy import TrustPolicy

MAX_SIGNATURES = 64


class Named(Protocol):
    """What the gate needs to know about a descriptor: the name that rules are written for."""

    @property
    def name(self) -> str:
        """The bundle's name."""


T = TypeVar("T", bound=Named)
Status = Literal["verified", "pinned", "unsigned"]
_PROOF = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Why bytes are trusted, for receipts and for people.

    ``principal``, ``key`` (fingerprint) and ``namespace`` are those of the signature that counted, None where
    none did. ``findings`` are notes and warnings: signatures beside it, and that there was none.
    """

    status: Status
    principal: str | None = None
    key: str | None = None
    namespace: str | None = None
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: ``{"status", "principal", "key", "namespace"}``."""
        return {
            "status": self.status,
            "principal": self.principal,
            "key": self.key,
            "namespace": self.namespace,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedDescriptor(Generic[T]):
    """A descriptor that somebody trusted vouches for. Only ``accept`` makes one.

    ``data`` are the bytes that were judged, ``id`` is their digest (the bundle id), ``descriptor`` what they
    say, ``trust`` why they are trusted.
    """

    data: bytes
    descriptor: T
    id: Digest
    trust: Trust
    proof: InitVar[object]

    def __post_init__(self, proof: object) -> None:
        if proof is not _PROOF:
            raise RuntimeError("a TrustedDescriptor is made by envbundle.trust.trusted.accept alone")

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled: what comes back from a file was not judged."""
        raise TypeError("a TrustedDescriptor cannot be copied or pickled")


def accept(
    descriptor_bytes: bytes,
    signatures: Sequence[bytes],
    *,
    policy: TrustPolicy,
    parse: Callable[[bytes], T],
    subject: str = "bundle",
) -> TrustedDescriptor[T]:
    """Return the descriptor if the policy trusts it.

    ``signatures`` are the armored signatures that travel with the descriptor; ``parse`` reads the bytes and
    is called once somebody vouches for them; ``subject`` names the bundle in messages. Raises ``TrustError``
    at the first fault, and whatever ``parse`` raises.
    """
    found = _fitting(descriptor_bytes, signatures, policy.pinned_id, DESCRIPTOR_NAMESPACE, subject)
    trust = _judge(found, policy, policy.principals_for(None), subject)
    descriptor = parse(descriptor_bytes)
    if policy.name_rules is not None:
        named = f"{subject} named {descriptor.name}"
        trust = _judge(found, policy, policy.principals_for(descriptor.name), named)
    return TrustedDescriptor(
        data=descriptor_bytes,
        descriptor=descriptor,
        id=Digest.of(descriptor_bytes),
        trust=trust,
        proof=_PROOF,
    )


def accept_bootstrap(
    data: bytes, signatures: Sequence[bytes], *, policy: TrustPolicy, subject: str = "install.pyz"
) -> Trust:
    """Judge the bootstrap file in its own namespace; ``policy.pinned_id`` is then the file's digest.

    Raises ``TrustError``. Name rules say nothing about it.
    """
    found = _fitting(data, signatures, policy.pinned_id, BOOTSTRAP_NAMESPACE, subject)
    return _judge(found, policy, policy.principals_for(None), subject)


def check_signatures(
    data: bytes,
    signatures: Sequence[bytes],
    *,
    namespace: str = DESCRIPTOR_NAMESPACE,
    subject: str = "bundle",
) -> tuple[Signature, ...]:
    """Return the signatures if each is well-formed, for ``namespace``, and fits ``data``; judge nobody.

    For those who carry a bundle and have no signers configured. Raises ``TrustError``: E-SIG-BAD,
    E-SIG-UNSUPPORTED or E-SIG-NAMESPACE.
    """
    if len(signatures) > MAX_SIGNATURES:
        raise TrustError(
            "E-SIG-BAD", subject, expected=f"at most {MAX_SIGNATURES} signatures", found=str(len(signatures))
        )
    found = []
    for number, armored in enumerate(signatures, 1):
        where = f"signature {number} of {subject}"
        signature = Signature.parse(armored, subject=where)
        signature.verify(data, subject=where)
        if signature.namespace != namespace:
            raise TrustError(
                "E-SIG-NAMESPACE",
                where,
                expected=f"a signature made for {namespace}",
                found=f"one made for {signature.namespace}",
                hint=f"sign with envbundle sign, or ssh-keygen -Y sign -n {namespace}",
            )
        found.append(signature)
    return tuple(found)


def signature_status(error: TrustError) -> Literal["unsigned", "untrusted", "bad"]:
    """Return the word that `verify --json` has for a refusal of ``accept``."""
    if error.code == "E-SIG-MISSING":
        return "unsigned"
    vouched_by_nobody = error.code.startswith("E-SIG-") and error.code != "E-SIG-BAD" and error.findings
    return "untrusted" if vouched_by_nobody else "bad"  # whom the policy refused is in the findings


def _fitting(
    data: bytes, signatures: Sequence[bytes], pinned: Digest | None, namespace: str, subject: str
) -> tuple[Signature, ...]:
    actual = Digest.of(data)
    if pinned is not None and pinned != actual:
        raise TrustError(
            "E-ID-MISMATCH",
            subject,
            expected=str(pinned),
            found=str(actual),
            hint="this is another bundle than the one whose id was given: compare with what pack printed",
        )
    return check_signatures(data, signatures, namespace=namespace, subject=subject)


def _judge(
    found: tuple[Signature, ...], policy: TrustPolicy, principals: tuple[str, ...] | None, subject: str
) -> Trust:
    """Decide for signatures that fit the bytes, and for a pinned id that does."""
    vouched: tuple[Signature, Vouched] | None = None
    refusals: list[tuple[Signature, Refusal]] = []
    for signature in found:
        answer = policy.judge(signature, principals=principals)
        if isinstance(answer, Refusal):
            refusals.append((signature, answer))
        elif vouched is None:
            vouched = (signature, answer)
    pinned = policy.pinned_id is not None
    if vouched is not None:
        signature, answer = vouched
        return Trust(
            status="pinned" if pinned else "verified",
            principal=answer.principal,
            key=signature.key.fingerprint,
            namespace=signature.namespace,
            findings=_beside(refusals, subject),
        )
    if pinned and not policy.signers:
        return Trust(status="pinned", findings=_beside(refusals, subject))
    if refusals:
        raise _refused([refusal for _, refusal in refusals], subject)
    if policy.allow_unsigned and not policy.signers and principals is None:
        return Trust(status="unsigned", findings=(_unsigned(subject),))
    raise TrustError(
        "E-SIG-MISSING",
        subject,
        expected="a signature by a trusted signer" if principals is None else f"one by {_either(principals)}",
        found="no signature",
        hint="sign it (envbundle sign), give its id by hand (--id), or accept that nobody vouches for it "
        "(--allow-unsigned)",
    )


def _either(principals: tuple[str, ...]) -> str:
    return " or ".join(principals) or "nobody: no rule accepts this name"


def _beside(refusals: list[tuple[Signature, Refusal]], subject: str) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            code="N-SIG-OTHER",
            severity="note",
            subject=f"{subject}, signature by {signature.key.fingerprint}",
            found=f"{refusal.code}: {refusal.found}",
            hint="it did not count; what vouches for the bundle is something else",
        )
        for signature, refusal in refusals
    )


def _unsigned(subject: str) -> Finding:
    return Finding(
        code="W-UNSIGNED",
        severity="warning",
        subject=subject,
        expected="a signature",
        found="none",
        hint="accepted because of --allow-unsigned; nobody vouches for what is in it",
    )


def _refused(refusals: list[Refusal], subject: str) -> TrustError:
    first = nearest(tuple(refusals))
    findings = [
        Finding(
            code=refusal.code,
            severity="error",
            subject=subject,
            expected=refusal.expected,
            found=refusal.found,
            hint=refusal.hint,
        )
        for refusal in (first, *(other for other in refusals if other is not first))
    ]
    return TrustError(
        first.code, subject, expected=first.expected, found=first.found, hint=first.hint, findings=findings
    )
