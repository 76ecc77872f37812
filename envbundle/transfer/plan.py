"""What a copy has to send: every blob of a bundle, less those the destination has.

"Has" means a final name with the right size, asked in one batch: final names appear only after our own
hash. With ``check`` what is there is hashed again, and what is damaged is sent again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.store.bundle import blob_items, signature_items

if TYPE_CHECKING:
    from envbundle.spec.descriptor import Descriptor
    from envbundle.spec.digest import Digest
    from envbundle.store.bundle import BundleRef
    from envbundle.store.protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """``send`` and ``have`` are (digest, stored size in bytes), in the order of sending.

    ``damaged`` are those of ``send`` that the destination has under their name with other bytes.
    """

    send: tuple[tuple[Digest, int], ...]
    have: tuple[tuple[Digest, int], ...]
    damaged: frozenset[Digest] = frozenset()

    @property
    def send_bytes(self) -> int:
        """The bytes that travel."""
        return sum(size for _, size in self.send)

    @property
    def have_bytes(self) -> int:
        """The bytes that need not travel."""
        return sum(size for _, size in self.have)


def bundle_blobs(ref: BundleRef, descriptor: Descriptor) -> tuple[tuple[Digest, int], ...]:
    """Return (digest, size) of all blobs of a bundle: descriptor and signatures first, then by role."""
    items = (ref.image.config, *signature_items(ref.image), *blob_items(descriptor))
    return tuple({item.digest: item.size for item in items}.items())


def plan_copy(ref: BundleRef, descriptor: Descriptor, destination: Store, *, check: bool = False) -> CopyPlan:
    """Return what ``destination`` lacks of the bundle ``ref``, whose descriptor was judged."""
    blobs = bundle_blobs(ref, descriptor)
    lacking = destination.lacking(blobs)
    there = tuple(item for item in blobs if item[0] not in lacking)
    damaged = frozenset(d for d, _ in there if check and destination.rehash(d) != d)
    return CopyPlan(
        send=tuple(item for item in blobs if item[0] in lacking or item[0] in damaged),
        have=tuple(item for item in there if item[0] not in damaged),
        damaged=damaged,
    )
