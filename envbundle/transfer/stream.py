"""Bundles through a pipe: a tar archive of the OCI layout that is written and read in one pass.

* Order of writing: ``oci-layout``, then OCI manifest, descriptor and signatures of each bundle, then all
  other blobs once, and ``index.json`` last: an archive that was cut holds no bundle.
* Reading: who vouches is judged as soon as the descriptor is there, before a chunk is kept; blobs that the
  destination has, or that no bundle names, are passed over. Each is hashed before it is kept.
* An archive of another order (``tar cf`` of a store's folder) is read as well: then blobs are kept as they
  come, and judged before the index names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError, FormatError, HostError, IntegrityError
from envbundle.progress import SILENT, Reporter
from envbundle.spec.canonical import canonical
from envbundle.spec.descriptor import ARTIFACT_BUNDLE
from envbundle.spec.digest import Digest
from envbundle.store.blob import check_blob, missing_blob
from envbundle.store.bundle import (
    BundleRef,
    check_bundle,
    check_image,
    commit_bundle,
    find_entry,
    parse_descriptor,
    read_bundle,
    signature_items,
)
from envbundle.store.memory import MemoryStore
from envbundle.store.oci import (
    INDEX_FILE,
    LAYOUT,
    LAYOUT_FILE,
    MAX_INDEX,
    MAX_MANIFEST,
    ImageIndex,
    ImageManifest,
)
from envbundle.store.protocol import MAX_BLOB

from .archive import BLOBS, blob_digest
from .copy import SPARE_BYTES, TASK, CopyResult
from .plan import bundle_blobs
from .tar import END, Member, member_header, padding, read_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from envbundle.spec.descriptor import Descriptor
    from envbundle.store.protocol import Store

#: Documents of an archive that arrive before anybody judged them are kept in memory up to this many bytes.
MAX_HELD = 96 * 1024 * 1024


def send_bundles(
    source: Store,
    tags: Iterable[str],
    stream: BinaryIO,
    *,
    judge: Callable[[BundleRef], Descriptor],
    reporter: Reporter = SILENT,
) -> tuple[CopyResult, ...]:
    """Write the bundles ``tags`` of ``source`` to ``stream`` as one archive; nothing if one is refused.

    Raises as ``copy_bundle``, and ``HostError`` (E-PIPE) where the reader went away.
    """
    index = source.read_index()
    chosen: list[tuple[BundleRef, Descriptor]] = []
    for tag in tags:
        ref = read_bundle(source, tag)
        descriptor = judge(ref)
        check_bundle(ref, descriptor)
        chosen.append((ref, descriptor))
    sent: set[Digest] = set()
    results = []
    blobs = {digest: size for ref, descriptor in chosen for digest, size in bundle_blobs(ref, descriptor)}
    reporter.start(TASK, total=sum(blobs.values()))
    try:
        _write(stream, LAYOUT_FILE, canonical(LAYOUT))
        for ref, _ in chosen:
            image = source.read(ref.manifest, find_entry(source, ref.tag).size)
            for data in (image, ref.descriptor, *ref.signatures):
                if Digest.of(data) not in sent:
                    sent.add(Digest.of(data))
                    _write(stream, BLOBS + Digest.of(data).hex, data)
        for ref, descriptor in chosen:
            count = size_sum = 0
            for digest, size in bundle_blobs(ref, descriptor):
                count, size_sum = count + 1, size_sum + size
                if digest not in sent:
                    sent.add(digest)
                    _write(stream, BLOBS + digest.hex, source.read(digest, size))
                reporter.advance(TASK, size)
            results.append(
                CopyResult(
                    via="archive",
                    tag=ref.tag,
                    bundle=ref.bundle_id,
                    sent_blobs=count,
                    sent_bytes=size_sum,
                    skipped_blobs=0,
                    skipped_bytes=0,
                )
            )
        wanted = {ref.tag for ref, _ in chosen}
        left = ImageIndex(entries=tuple(entry for entry in index.entries if entry.tag in wanted))
        _write(stream, INDEX_FILE, left.to_bytes())
        stream.write(END)
        stream.flush()
    except OSError as fault:
        raise HostError(
            "E-PIPE", "standard output", expected="a reader to the end", found=fault.strerror or str(fault)
        ) from fault
    reporter.finish(TASK)
    return tuple(results)


def _write(stream: BinaryIO, name: str, data: bytes) -> None:
    stream.write(member_header(name, len(data)))
    stream.write(data)
    stream.write(padding(len(data)))


def receive_bundles(
    stream: BinaryIO,
    destination: Store,
    *,
    judge: Callable[[BundleRef], Descriptor],
    wanted: Callable[[Descriptor], bool] = lambda _: True,
    reporter: Reporter = SILENT,
) -> tuple[CopyResult, ...]:
    """Read an archive from ``stream`` and put those of its bundles that are ``wanted`` into ``destination``.

    Raises ``TrustError`` before the first chunk where the archive is in the order of ``send_bundles``,
    ``FormatError`` (E-TAR, E-TAR-CUT), ``IntegrityError``, ``HostError`` (E-SPACE).
    """
    reading = _Reading(destination, judge, wanted, reporter)
    with destination.writing():
        for member, body in _members(stream):
            reading.take(member, body)
        return reading.finish()


def _members(stream: BinaryIO) -> Iterator[tuple[Member, Callable[[], bytes]]]:
    def read(size: int) -> bytes:
        try:
            return stream.read(size)
        except OSError as fault:
            raise HostError("E-PIPE", "standard input", found=fault.strerror or str(fault)) from fault

    yield from read_members(read, "standard input")
    while stream.read(1 << 20):  # to its end, so that the writer does not see a closed pipe
        pass


class _Reading:
    """One pass: the documents seen so far, and what was decided by them."""

    def __init__(
        self,
        destination: Store,
        judge: Callable[[BundleRef], Descriptor],
        wanted: Callable[[Descriptor], bool],
        reporter: Reporter,
    ) -> None:
        self._destination, self._judge, self._wanted, self._reporter = destination, judge, wanted, reporter
        self._heads = MemoryStore("standard input")
        self._held = 0
        self._ordered: bool | None = None  # whether manifests come first, as send_bundles writes them
        self._index: ImageIndex | None = None
        self._judged: dict[Digest, tuple[BundleRef, Descriptor] | None] = {}  # by manifest; None: not wanted
        self._images: dict[Digest, ImageManifest] = {}
        self._kept: dict[Digest, int] = {}
        self._passed: dict[Digest, int] = {}

    def take(self, member: Member, body: Callable[[], bytes]) -> None:
        """Use one member, or pass it over."""
        digest = blob_digest(member.name)
        if digest is not None:
            self._blob(digest, member.size, body)
        elif member.name == INDEX_FILE and member.size <= MAX_INDEX:
            self._index = ImageIndex.from_bytes(body())

    def _blob(self, digest: Digest, size: int, body: Callable[[], bytes]) -> None:
        if size > MAX_BLOB:
            raise FormatError(
                "E-TAR", str(digest), expected=f"at most {MAX_BLOB} bytes", found=f"{size} bytes"
            )
        there = self._destination.has(digest, size)
        if there and size > MAX_MANIFEST:
            self._pass(digest, size)
            return
        data = check_blob(body(), digest, size, "standard input")
        image = _as_bundle(data)
        if self._ordered is None:
            self._ordered = image is not None
        if image is not None:
            self._images[digest] = image
        if image is not None or self._is_head(digest):
            self._held += size
            if self._held > MAX_HELD:
                raise FormatError("E-TAR", str(digest), expected="few documents", found="too many to hold")
            self._heads.put(data)
            self._try_to_judge()
        elif there:
            self._pass(digest, size)
        elif not self._ordered or digest in self._named():  # else of a bundle that nobody wants
            self._destination.put(data)
            self._kept[digest] = size
            self._reporter.advance(TASK, size)

    def _pass(self, digest: Digest, size: int) -> None:
        self._passed[digest] = size
        self._reporter.advance(TASK, size)

    def _is_head(self, digest: Digest) -> bool:
        return any(
            digest == image.config.digest or digest in {item.digest for item in signature_items(image)}
            for image in self._images.values()
        )

    def _complete(self, image: ImageManifest) -> bool:
        items = (image.config, *signature_items(image))
        return not self._heads.lacking((item.digest, item.size) for item in items)

    def _named(self) -> set[Digest]:
        """Return the blobs of all bundles that were judged good."""
        found: set[Digest] = set()
        for judged in self._judged.values():
            if judged is not None:
                found.update(digest for digest, _ in bundle_blobs(*judged))
        return found

    def _try_to_judge(self) -> None:
        for manifest, image in self._images.items():
            if manifest not in self._judged and self._complete(image):
                self._judged[manifest] = self._judge_one(manifest, image)

    def _judge_one(self, manifest: Digest, image: ImageManifest) -> tuple[BundleRef, Descriptor] | None:
        check_image(image, "standard input")
        data = self._heads.read(image.config.digest, image.config.size)
        stated = parse_descriptor(data)  # what it says only serves to choose
        if not self._wanted(stated):
            return None
        ref = BundleRef(
            tag=stated.tag,
            manifest=manifest,
            image=image,
            descriptor=data,
            signatures=tuple(self._heads.read(s.digest, s.size) for s in signature_items(image)),
        )
        descriptor = self._judge(ref)
        check_bundle(ref, descriptor)
        lacking = self._destination.lacking(bundle_blobs(ref, descriptor))
        need = sum(size for digest, size in bundle_blobs(ref, descriptor) if digest in lacking)
        free = self._destination.free()
        if free is not None and free < need + SPARE_BYTES:
            raise HostError(
                "E-SPACE",
                self._destination.name,
                expected=f"{need + SPARE_BYTES} bytes free",
                found=f"{free} bytes free",
                hint="free space there, then run the same command again",
            )
        self._reporter.start(TASK, total=sum(size for _, size in bundle_blobs(ref, descriptor)))
        return ref, descriptor

    def finish(self) -> tuple[CopyResult, ...]:
        """Commit every bundle that the archive's index names; raises where one is not whole."""
        if self._index is None:
            raise FormatError(
                "E-TAR-CUT",
                "standard input",
                expected="index.json",
                found="none",
                hint="nothing was made visible: send it again, what arrived is not kept twice",
            )
        self._late()
        results = []
        for entry in self._index.entries:
            judged = self._judged.get(entry.manifest)
            if judged is None:
                continue
            ref, descriptor = judged
            if entry.tag != ref.tag:
                raise IntegrityError(
                    "E-TAG-MISMATCH", f"tag {entry.tag!r}", expected=ref.tag, found=entry.tag
                )
            commit_bundle(self._destination, descriptor, ref.signatures, keep=True)
            blobs = bundle_blobs(ref, descriptor)
            heads = {ref.bundle_id} | {Digest.of(signature) for signature in ref.signatures}
            sent = [size for digest, size in blobs if digest in self._kept or digest in heads]
            passed = [size for digest, size in blobs if digest in self._passed and digest not in heads]
            results.append(
                CopyResult(
                    via="archive",
                    tag=ref.tag,
                    bundle=ref.bundle_id,
                    sent_blobs=len(sent),
                    sent_bytes=sum(sent),
                    skipped_blobs=len(passed),
                    skipped_bytes=sum(passed),
                )
            )
        self._reporter.finish(TASK)
        return tuple(results)

    def _late(self) -> None:
        """Judge bundles whose descriptor or signatures came before their manifest and were kept as blobs."""
        for manifest, image in self._images.items():
            if manifest in self._judged:
                continue
            for item in (image.config, *signature_items(image)):
                if not self._heads.has(item.digest, item.size):
                    if not self._destination.has(item.digest, item.size):
                        raise missing_blob(item.digest, "standard input")
                    self._heads.put(self._destination.read(item.digest, item.size))
            self._judged[manifest] = self._judge_one(manifest, image)
        if not self._images:
            raise FormatError("E-TAR", "standard input", expected="a bundle", found="none")


def _as_bundle(data: bytes) -> ImageManifest | None:
    """Return the OCI manifest of a bundle in ``data``, or None: most blobs are none."""
    if not data.startswith(b"{") or ARTIFACT_BUNDLE.encode() not in data:
        return None
    try:
        image = ImageManifest.from_bytes(data)
    except EnvbundleError:
        return None
    return image if image.artifact == ARTIFACT_BUNDLE else None
