"""``copy``: one bundle from one store to another, checked on the way.

1. Read descriptor and signatures at the source; somebody judges them; the OCI manifest must hold exactly
   what the descriptor names.
2. Ask the destination what it lacks, in one batch, and whether that fits.
3. Send that: each blob is hashed in memory before a byte of it is written, at most ``streams`` at a time.
4. Write the index entry, last. A copy that is cut before is no bundle at the destination.

Resume is running it again: there is no state but the blobs under their final names.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envbundle.errors import HostError
from envbundle.progress import SILENT, Reporter
from envbundle.store.bundle import BundleRef, check_bundle, commit_bundle, parse_descriptor, read_bundle

from .plan import CopyPlan, plan_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from envbundle.spec.descriptor import Descriptor
    from envbundle.spec.digest import Digest
    from envbundle.store.protocol import Store

TASK = "copy"
#: Left free at the destination beyond the blobs: folders, index, and what others write meanwhile.
SPARE_BYTES = 16 * 1024 * 1024
#: Blobs under way at once have at most this many bytes together: a relay needs little memory.
MAX_IN_FLIGHT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """What a copy did, or with ``dry_run`` would do. ``via`` is the way the bytes went."""

    via: str
    tag: str
    bundle: Digest
    sent_blobs: int
    sent_bytes: int
    skipped_blobs: int
    skipped_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the part of the ``copy --json`` answer that the transfer knows."""
        return {
            "via": self.via,
            "tag": self.tag,
            "bundle": str(self.bundle),
            "sent": {"blobs": self.sent_blobs, "bytes": self.sent_bytes},
            "skipped": {"blobs": self.skipped_blobs, "bytes": self.skipped_bytes},
        }


def parse_unjudged(ref: BundleRef) -> Descriptor:
    """Return a bundle's descriptor for its integrity alone: nobody vouches for it."""
    return parse_descriptor(ref.descriptor)


def copy_bundle(
    source: Store,
    destination: Store,
    tag: str,
    *,
    judge: Callable[[BundleRef], Descriptor] = parse_unjudged,
    check: bool = False,
    dry_run: bool = False,
    streams: int = 2,
    rate: float | None = None,
    via: str = "dir",
    reporter: Reporter = SILENT,
) -> CopyResult:
    """Copy the bundle ``tag``; see the module for the order of steps.

    ``judge`` returns the descriptor of the bundle it is given or raises ``TrustError``; where signers are
    known on this machine it asks ``envbundle.trust``. ``check`` hashes what the destination has already.
    ``streams`` blobs are under way at once, of 64 MiB together; ``rate`` limits the bytes a second.
    Raises ``UserInputError`` (E-NO-BUNDLE), ``TrustError``, ``IntegrityError``, ``HostError`` (E-SPACE).
    Signatures that the destination has of the same descriptor are kept.
    """
    ref = read_bundle(source, tag)
    descriptor = judge(ref)
    check_bundle(ref, descriptor)
    with contextlib.nullcontext() if dry_run else destination.writing():
        plan = plan_copy(ref, descriptor, destination, check=check)
        _check_space(plan, destination)
        if not dry_run:
            reporter.start(TASK, total=plan.send_bytes)
            _send(plan, source, destination, streams, reporter, Pace(rate))
            commit_bundle(destination, descriptor, ref.signatures, keep=True)
            reporter.finish(TASK)
    return CopyResult(
        via=via,
        tag=tag,
        bundle=ref.bundle_id,
        sent_blobs=len(plan.send),
        sent_bytes=plan.send_bytes,
        skipped_blobs=len(plan.have),
        skipped_bytes=plan.have_bytes,
    )


def _check_space(plan: CopyPlan, destination: Store) -> None:
    free = destination.free()
    if plan.send and free is not None and free < plan.send_bytes + SPARE_BYTES:
        raise HostError(
            "E-SPACE",
            destination.name,
            expected=f"{plan.send_bytes + SPARE_BYTES} bytes free",
            found=f"{free} bytes free",
            hint="free space there, or `envbundle gc` the store, then run the same command again",
        )


def _send(
    plan: CopyPlan, source: Store, destination: Store, streams: int, reporter: Reporter, pace: Pace
) -> None:
    room = _Room(MAX_IN_FLIGHT)
    take = getattr(destination, "take_from", None)  # some places have the bytes nearby
    keep = getattr(destination, "put_checked", None)  # spares hashing here what was hashed when it was read

    def send(digest: Digest, size: int) -> None:
        if take is not None and digest not in plan.damaged and take(source, digest):
            reporter.advance(TASK, size)
            return
        with room.taken(size):
            data = source.read(digest, size)
            if digest in plan.damaged:
                destination.remove(digest)
            pace.wait_for(size)
            if keep is None:
                destination.put(data)
            else:
                keep(digest, data)
        reporter.advance(TASK, size)

    with ThreadPoolExecutor(max(1, streams), thread_name_prefix="envbundle-copy") as pool:
        sending = [pool.submit(send, digest, size) for digest, size in plan.send]
        try:
            wait(sending, return_when=FIRST_EXCEPTION)
        finally:
            for future in sending:
                future.cancel()
    for future in sending:
        if not future.cancelled():
            future.result()


class _Room:
    """Bounds the bytes that are in memory at once; a blob larger than the bound goes alone."""

    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Hold room for ``size`` bytes."""
        share = min(size, self._limit)
        with self._changed:
            self._changed.wait_for(lambda: self._left >= share)
            self._left -= share
        try:
            yield
        finally:
            with self._changed:
                self._left += share
                self._changed.notify_all()


class Pace:
    """Lets at most ``rate`` bytes a second go (None: as many as go), over the whole run."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._next = 0.0
        self._lock = threading.Lock()

    def wait_for(self, size: int) -> None:
        """Return when ``size`` more bytes may begin."""
        if self._rate is None:
            return
        with self._lock:
            begin = max(self._next, time.monotonic())
            self._next = begin + size / self._rate
        time.sleep(max(0.0, begin - time.monotonic()))
