"""What the person and the site say about trust; all of it from outside the bundle that is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import TrustError, UserInputError

from .allowed_signers import AllowedSigners
from .name_rules import NameRules, plain_name_fault
from .outcome import Refusal, Vouched

if TYPE_CHECKING:
    from datetime import datetime

    from envbundle.spec.digest import Digest

    from .revocation import RevocationList
    from .sshsig import Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustPolicy:
    """Who and what is trusted.

    ``now`` is an aware time, what validity is judged at. ``allowed_signers`` says whose keys are trusted;
    ``signers``, where not empty, narrows that to these principals (plain names). ``allow_unsigned`` lets pass
    what has no signature at all, never what has a bad or untrusted one. ``pinned_id`` is a digest of the very
    bytes that somebody carried here over a channel already trusted. ``name_rules`` is the site's policy file.
    """

    now: datetime
    allowed_signers: tuple[AllowedSigners, ...] = ()
    signers: tuple[str, ...] = ()
    allow_unsigned: bool = False
    pinned_id: Digest | None = None
    revoked: tuple[RevocationList, ...] = ()
    name_rules: NameRules | None = None

    def __post_init__(self) -> None:
        if self.now.tzinfo is None:
            raise RuntimeError("TrustPolicy.now has no time zone")
        for name in self.signers:
            fault = plain_name_fault(name)
            if fault:
                raise UserInputError(
                    "E-SIGNER-NAME",
                    repr(name),
                    expected="one principal's plain name",
                    found=fault,
                    hint="name each signer by itself, as in --signer alice@example.org",
                )

    def principals_for(self, bundle_name: str | None) -> tuple[str, ...] | None:
        """Return who may vouch for a bundle of this name, None for whoever is allowed.

        ``bundle_name`` is None where there is no name yet: then only ``signers`` narrow.
        """
        if self.name_rules is None or bundle_name is None:
            return self.signers or None
        named = self.name_rules.principals_for(bundle_name)
        return tuple(name for name in named if not self.signers or name in self.signers)

    def judge(self, signature: Signature, *, principals: tuple[str, ...] | None) -> Vouched | Refusal:
        """Say whether a signature that was found valid over the bytes is by somebody who is trusted."""
        key = signature.key
        if any(revoked.revokes(key.blob) for revoked in self.revoked):
            return Refusal(
                code="E-SIG-REVOKED",
                found=f"a signature by a revoked key, {key.fingerprint}",
                hint="have the bundle signed with another key (envbundle sign adds a signature)",
            )
        every = AllowedSigners(tuple(line for signers in self.allowed_signers for line in signers.lines))
        return every.judge(key, namespace=signature.namespace, now=self.now, principals=principals)


def check_serial(
    found: int | None, highest_accepted: int | None, *, allow_downgrade: bool = False, subject: str = "bundle"
) -> int | None:
    """Return the highest serial accepted from now on, for one bundle name, target and prefix.

    ``found`` is the descriptor's serial, None where it has none: once a serial was accepted, that counts as
    lower than any, or an old bundle could come back. Raises ``TrustError`` (E-DOWNGRADE). A downgrade that is
    allowed does not lower the mark.
    """
    if highest_accepted is None:
        return found
    if (found is None or found < highest_accepted) and not allow_downgrade:
        raise TrustError(
            "E-DOWNGRADE",
            subject,
            expected=f"serial {highest_accepted} or higher",
            found="no serial" if found is None else f"serial {found}",
            hint="install the newer bundle, roll back (envbundle rollback), or insist with --allow-downgrade",
        )
    return max(found or 0, highest_accepted)
