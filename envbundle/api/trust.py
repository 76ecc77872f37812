"""From what a person says about trust to a policy, and from a key's name to a signer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError, UserInputError
from envbundle.host.files import read_bounded
from envbundle.spec.digest import Digest
from envbundle.trust.policy import TrustPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from envbundle.trust.keys import Signer

MAX_SIGNERS = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustChoice:
    """What the person says: files are outside the bundle, ``bundle_id`` came over a trusted channel."""

    allowed_signers: Path | None = None
    signers: tuple[str, ...] = ()
    revoked: str | None = None
    bundle_id: str | None = None
    allow_unsigned: bool = False

    @property
    def says_whom(self) -> bool:
        """Whether anything was said that a signature or an id can be judged by."""
        return self.allowed_signers is not None or self.bundle_id is not None or bool(self.signers)


def policy_of(choice: TrustChoice, now: datetime | None = None) -> TrustPolicy:
    """Read the files that ``choice`` names; raises ``UserInputError`` or ``HostError`` where one is faulty.

    ``now`` is an aware time (default: the clock's).
    """
    from envbundle.trust.allowed_signers import AllowedSigners
    from envbundle.trust.revocation import RevocationList

    signers: tuple[AllowedSigners, ...] = ()
    if choice.allowed_signers is not None:
        path = choice.allowed_signers
        signers = (AllowedSigners.parse(read_bounded(path, MAX_SIGNERS), source=str(path)),)
    revoked: tuple[RevocationList, ...] = ()
    if choice.revoked is not None:
        data = read_bounded(Path(choice.revoked), MAX_SIGNERS)
        revoked = (RevocationList.parse(data, source=choice.revoked),)
    pinned = None
    if choice.bundle_id is not None:
        try:
            pinned = Digest.parse(choice.bundle_id)
        except EnvbundleError as fault:
            raise UserInputError(
                "E-USAGE", "--id", expected="sha256:<64 hex digits>", found=choice.bundle_id
            ) from fault
    return TrustPolicy(
        now=now or datetime.now(timezone.utc),
        allowed_signers=signers,
        signers=choice.signers,
        allow_unsigned=choice.allow_unsigned,
        pinned_id=pinned,
        revoked=revoked,
    )


def open_signer(key: str, *, passphrase: Callable[[str], bytes], agent: str | None) -> Signer:
    """Return the signer that ``key`` names: a private key's file, or ``agent:KEY.pub`` for an ssh agent.

    ``passphrase`` is asked with the key's name only where the key is encrypted. Raises ``UserInputError``.
    """
    if key.startswith("agent:"):
        from envbundle.host.agent import agent_signer
        from envbundle.trust.keys import PublicKey

        public = Path(key.removeprefix("agent:")).expanduser()
        text = read_bounded(public, 64 * 1024).decode("utf-8", "replace")
        return agent_signer(agent, PublicKey.parse(text).blob)
    from envbundle.trust.key_files import read_private_key

    path = Path(key).expanduser()
    if not path.exists():
        raise UserInputError(
            "E-KEY-MISSING",
            str(path),
            found="no such file",
            hint="name an ssh private key (--key), make one (ssh-keygen -t ed25519), or pack --unsigned",
        )
    return read_private_key(read_bounded(path, 64 * 1024), lambda: passphrase(str(path)), source=str(path))
