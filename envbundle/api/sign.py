"""``sign``: one more signature on a bundle that is in a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envbundle.bundler.sign import sign_bundle
from envbundle.store.layout import DirectoryStore
from envbundle.trust.keys import fingerprint

from .stores import choose_bundle
from .trust import open_signer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SignAnswer:
    """What was signed: tag, bundle id, the key's fingerprint, how many signatures there are now."""

    tag: str
    id: str
    signed_by: str
    signatures: int

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer."""
        return {"tag": self.tag, "id": self.id, "signed_by": self.signed_by, "signatures": self.signatures}


def sign(
    store: Path, *, target: str | None, key: str, passphrase: Callable[[str], bytes], agent: str | None
) -> SignAnswer:
    """Add a signature by ``key`` to the bundle that ``target`` names; see ``open_signer`` for keys."""
    opened = DirectoryStore(store)
    bundle = choose_bundle(opened, target)
    signer = open_signer(key, passphrase=passphrase, agent=agent)
    done = sign_bundle(opened, bundle.tag, signer, subject=key)
    return SignAnswer(
        tag=done.tag,
        id=str(done.bundle_id),
        signed_by=fingerprint(signer.public_blob),
        signatures=len(done.signatures),
    )
