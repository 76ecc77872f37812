"""Verifying a store: every byte of it is either hashed against a name or compared with its one meaning.

* Blobs are hashed against their names, decoded to their plain digests, and the files of every layer are
  hashed out of them. Blobs that nothing names are hashed too.
* ``oci-layout`` and ``index.json`` have no hash. They must be written as a program writes them (ours or
  another's), hold no field or annotation that we do not understand, and agree with what they point to: a
  tag with its descriptor's, a size and a type with the manifest's.
* Faults are findings; verification goes on to the end. Signatures are judged by ``envbundle.trust``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from envbundle.errors import IntegrityError
from envbundle.progress import SILENT, Reporter
from envbundle.spec.descriptor import ARTIFACT_BUNDLE
from envbundle.spec.finding import Finding, findings_of

from .bundle import check_bundle, find_entry, parse_descriptor, read_bundle, read_image
from .files import check_files
from .oci import (
    INDEX_FILE,
    LAYOUT,
    LAYOUT_FILE,
    MAX_INDEX,
    MEDIA_MANIFEST,
    REF_NAME,
    TITLE,
    ImageIndex,
    parse_document,
    plainly_written,
)
from .read import read_ahead, read_layer, read_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envbundle.spec.descriptor import Descriptor, LayerRef
    from envbundle.spec.digest import Digest

    from .oci import ImageManifest, TagEntry
    from .protocol import Store

TASK = "verify"
MAX_WORKERS = 3


def verify_store(
    store: Store, tag: str | None = None, reporter: Reporter = SILENT, *, workers: int | None = None
) -> list[Finding]:
    """Return what is wrong (errors) or superfluous (warnings) in ``store``, or in the bundle ``tag`` of it.

    ``workers`` threads decode (None: the CPUs of this process, at most 3: 300 MiB are enough); memory is
    bounded by (``workers`` + 1) x 64 MiB. With a ``tag`` the rest of the store is left alone, its index is
    not. Raises ``UserInputError`` (E-NO-BUNDLE) for a tag that is not there, and ``HostError``.
    """
    check = _Verification(store, reporter, workers or min(MAX_WORKERS, usable_cpus()))
    index = check.index()
    if index is None:
        return check.findings
    entries = index.entries if tag is None else tuple(e for e in index.entries if e.tag == tag)
    if tag is not None and not entries:
        find_entry(store, tag)
    reporter.start(TASK, total=sum(size for _, size in store.blobs()) if tag is None else None)
    for entry in entries:
        check.entry(entry)
    if tag is None:
        check.rest()
    reporter.finish(TASK)
    return check.findings


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Verification:
    """One run: what was found so far, and what need not be looked at again."""

    def __init__(self, store: Store, reporter: Reporter, workers: int) -> None:
        self.store, self.reporter, self.workers = store, reporter, workers
        self.findings: list[Finding] = []
        self._hashed: set[Digest] = set()
        self._reached: set[Digest] = set()
        self._layers: set[tuple[Digest, frozenset[tuple[Digest, Digest]]]] = set()
        self._titles: dict[str, Digest] = {}

    def _error(self, code: str, subject: str, expected: str, found: str, hint: str = "") -> None:
        self.findings.append(
            Finding(code=code, severity="error", subject=subject, expected=expected, found=found, hint=hint)
        )

    def _extra(self, names: Iterable[str], what: str) -> None:
        held = list(names)
        if held:
            self.findings.append(
                Finding(
                    code="W-STORE-EXTRA",
                    severity="warning",
                    subject=", ".join(held[:5]) + (f" and {len(held) - 5} more" if len(held) > 5 else ""),
                    expected="nothing but what the tags of the store reach",
                    found=what,
                    hint="`envbundle gc STORE` frees blobs and leftovers; other files are yours to move away",
                )
            )

    def _caught(self, fault: IntegrityError) -> None:
        for finding in findings_of(fault):
            if finding not in self.findings:
                self.findings.append(finding)

    def index(self) -> ImageIndex | None:
        """Judge the two documents that no hash covers; return the index, or None where it cannot be read."""
        try:
            documents = self.store.documents()
            index = self.store.read_index()
        except IntegrityError as fault:
            self._caught(fault)
            return None
        codes = {LAYOUT_FILE: "E-STORE-LAYOUT", INDEX_FILE: "E-STORE-INDEX"}
        for name, data in documents:
            value = parse_document(data, name, codes[name], MAX_INDEX)
            if not plainly_written(data, value):
                self._error(
                    codes[name], name, "JSON as a program writes it", "white space or escapes of no writer"
                )
            if name == LAYOUT_FILE and value != LAYOUT:
                self._error(codes[name], name, str(LAYOUT), str(value)[:200])
        for name in index.unknown:
            self._error("E-STORE-INDEX", name, "a field that envbundle understands", "another one")
        tags = [entry.tag for entry in index.entries]
        for tag in sorted({tag for tag in tags if tags.count(tag) > 1}):
            self._error("E-STORE-INDEX", f"tag {tag!r}", "one entry", f"{tags.count(tag)} entries")
        return index

    def entry(self, entry: TagEntry) -> None:
        """Judge one entry of the index and all it names."""
        where = entry.tag or str(entry.manifest)
        if not entry.tag:
            self._error("E-STORE-INDEX", where, "a tag", "none", "copy the bundle again with its tag")
        for key in sorted(entry.annotations):
            self._error("E-STORE-INDEX", f"{where}: annotation {key!r}", "none but the tag", "another one")
        if entry.media != MEDIA_MANIFEST:
            self._error("E-STORE-INDEX", f"{where}: mediaType", MEDIA_MANIFEST, repr(entry.media[:100]))
            return
        try:
            image = read_image(self.store, entry)
            self._hashed.add(entry.manifest)
            self._reached.update((entry.manifest, *(item.digest for item in image.items())))
            if entry.artifact not in ("", image.artifact):
                self._error(
                    "E-STORE-INDEX",
                    f"{where}: artifactType",
                    repr(image.artifact),
                    repr(entry.artifact[:100]),
                )
            if image.artifact == ARTIFACT_BUNDLE and entry.tag:
                self._bundle(entry.tag)
            else:
                self._artifact(image, entry.tag)
        except IntegrityError as fault:
            self._caught(fault)

    def _artifact(self, image: ImageManifest, tag: str) -> None:
        """Judge an artifact that is no bundle: its blobs, and the files beside the layout that it names."""
        stated = image.annotations.get(REF_NAME)
        if stated is None:
            self._extra([tag], "an artifact of another program: its blobs are checked, its tag cannot be")
        elif stated != tag:
            self._error("E-TAG-MISMATCH", f"tag {tag!r}", repr(stated[:200]), f"an artifact tagged {tag!r}")
        for item in image.items():
            self._caught_in(item.digest, item.size)
            if TITLE in item.annotations:
                self._titles[item.annotations[TITLE]] = item.digest

    def _caught_in(self, digest: Digest, size: int) -> None:
        if digest in self._hashed:
            return
        self._hashed.add(digest)
        try:
            if not self.store.has(digest, size):
                self.store.read(digest, size)
            self._hash(digest, size)
        except IntegrityError as fault:
            self._caught(fault)

    def _hash(self, digest: Digest, size: int) -> None:
        found = self.store.rehash(digest)
        if found != digest:
            self._error(
                "E-BLOB-HASH", f"blob in {self.store.name}", str(digest), str(found), "copy the bundle again"
            )
        self.reporter.advance(TASK, size)

    def _bundle(self, tag: str) -> None:
        ref = read_bundle(self.store, tag)
        self._extra((f"{tag}: {name}" for name in ref.image.unknown), "a field that envbundle does not know")
        descriptor = parse_descriptor(ref.descriptor)
        check_bundle(ref, descriptor)
        used = {descriptor.content.lock, descriptor.manifest}
        for plain in sorted(used):
            self._plain(descriptor, plain)
        for layer in descriptor.content.layers:
            used.add(layer.list)
            used.update(self._layer(descriptor, layer))
        for _ in self._chunks(descriptor, sorted(set(descriptor.blobs) - used)):
            pass
        self._hashed.update(item.digest for item in ref.image.items())

    def _plain(self, descriptor: Descriptor, plain: Digest) -> None:
        try:
            data = read_plain(self.store, descriptor, plain)
        except IntegrityError as fault:
            self._caught(fault)
        else:
            self.reporter.advance(TASK, len(data))

    def _layer(self, descriptor: Descriptor, ref: LayerRef) -> set[Digest]:
        """Judge one layer and return the plain digests of its chunks."""
        try:
            layer = read_layer(self.store, descriptor, ref)
        except IntegrityError as fault:
            self._caught(fault)
            return set()
        chunks = {digest for digest, _ in layer.chunks}
        known = (ref.list, frozenset((digest, descriptor.blobs[digest].blob) for digest in chunks))
        if known not in self._layers:
            self._layers.add(known)
            self.findings += check_files(layer, lambda asked: self._chunks(descriptor, asked))
        return chunks

    def _chunks(self, descriptor: Descriptor, asked: Iterable[Digest]) -> Iterator[tuple[Digest, bytes]]:
        """Yield the chunks that can be read; each that cannot becomes a finding."""
        left = list(asked)
        while left:
            done = 0
            try:
                for digest, data in read_ahead(self.store, descriptor, left, workers=self.workers):
                    done += 1
                    self.reporter.advance(TASK, descriptor.blobs[digest].size)
                    yield digest, data
            except IntegrityError as fault:
                self._caught(fault)
                left = left[done + 1 :]
            else:
                return

    def _beside(self) -> Iterator[str]:
        """Judge files beside the layout that an artifact names, and yield the others."""
        for name in self.store.extras():
            if name not in self._titles:
                yield name
                continue
            found = self.store.rehash_extra(name)
            if found != self._titles[name]:
                self._error("E-STORE-FILE", f"{self.store.name}/{name}", str(self._titles[name]), str(found))

    def rest(self) -> None:
        """Judge what no tag reaches."""
        dead = []
        for digest, size in self.store.blobs():
            if digest not in self._hashed:
                self._hash(digest, size)
            if digest not in self._reached:
                dead.append(f"blobs/sha256/{digest.hex}")
        self._extra(dead, "a blob that no tag reaches")
        self._extra(self._beside(), "no part of an OCI image layout")
        self._extra(self.store.leftovers(), "left by a run that was interrupted")
