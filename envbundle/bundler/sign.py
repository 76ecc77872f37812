"""Signing descriptors and making bundles visible: the last steps of packing.

A signature covers the descriptor's bytes, in the SSHSIG namespace ``envbundle``. Blobs come first, the index
entry last (``envbundle.store.bundle``), so that nobody sees a bundle that is not complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.spec.descriptor import Descriptor
from envbundle.store.bundle import add_signature as keep_signature
from envbundle.store.bundle import check_bundle, commit_bundle, read_bundle
from envbundle.trust.sshsig import DESCRIPTOR_NAMESPACE, sign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envbundle.spec.digest import Digest
    from envbundle.store import Store
    from envbundle.trust.keys import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A bundle that can be seen in a store: its tag, its ids, its armored signatures."""

    tag: str
    bundle_id: Digest
    content_id: Digest
    signatures: tuple[bytes, ...]


def sign_descriptor(descriptor: bytes, signer: Signer, *, subject: str = "key") -> bytes:
    """Return an armored signature over a descriptor's bytes; ``subject`` names the key in errors.

    Raises what ``envbundle.trust.sshsig.sign`` raises.
    """
    return sign(descriptor, signer, namespace=DESCRIPTOR_NAMESPACE, subject=subject)


def commit_signed(store: Store, descriptor: Descriptor, signers: Sequence[Signer]) -> Committed:
    """Sign a packed descriptor with every signer (none: unsigned) and make it visible under its tag.

    Everything is signed before anything is visible. Raises ``IntegrityError`` (E-BLOB-MISSING) if a blob
    went away since it was packed, and what signing raises.
    """
    data = descriptor.to_bytes()
    signatures = tuple(sign_descriptor(data, signer) for signer in signers)
    tag = commit_bundle(store, descriptor, signatures)
    return Committed(
        tag=tag, bundle_id=descriptor.bundle_id, content_id=descriptor.content_id, signatures=signatures
    )


def sign_bundle(store: Store, tag: str, signer: Signer, *, subject: str = "key") -> Committed:
    """Add a signature to a bundle that is in a store already, after checking that it is one coherent bundle.

    Who signed before plays no part: whoever adds a signature vouches alone. Raises ``UserInputError``
    (E-NO-BUNDLE), ``IntegrityError`` for a bundle that is not what its descriptor says.
    """
    ref = read_bundle(store, tag)
    descriptor = Descriptor.from_bytes(ref.descriptor)
    check_bundle(ref, descriptor)
    signature = sign_descriptor(ref.descriptor, signer, subject=subject)
    keep_signature(store, tag, signature)
    return Committed(
        tag=tag,
        bundle_id=descriptor.bundle_id,
        content_id=descriptor.content_id,
        signatures=read_bundle(store, tag).signatures,
    )
