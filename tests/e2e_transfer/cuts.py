"""A store of 2 MB, connections that end after a number of bytes, and what must hold at the end."""

from __future__ import annotations

import os
import random
import shutil
import time
from typing import TYPE_CHECKING

from envbundle.errors import TransferError
from envbundle.host.run import ProcessPipe
from envbundle.store.layout import DirectoryStore
from envbundle.transfer.copy import copy_bundle
from envbundle.transfer.far_store import FarStore
from tests.store.builders import noise, put_bundle
from tests.transfer.far import WORDS, channel_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TAG = "demo-1.0-sm_90"
STREAMS = 2


class CutPipe(ProcessPipe):
    """A far end whose connection ends after ``budget`` bytes to it."""

    def __init__(self, budget: int) -> None:
        super().__init__(WORDS)
        self.budget, self.sent = budget, 0

    def write(self, *parts: bytes) -> None:
        for part in parts:
            left = max(0, self.budget - self.sent)
            if len(part) > left:
                super().write(part[:left])
                self.sent += left
                os.kill(self.pid, 9)
                raise BrokenPipeError
            super().write(part)
            self.sent += len(part)


def seeds_within(seconds: float, at_most: int = 200) -> Iterator[int]:
    """Seeds, as many as begin within ``seconds``; all of them where ENVBUNDLE_ALL_SEEDS is set."""
    end = time.monotonic() + seconds
    for seed in range(at_most):
        if time.monotonic() > end and not os.environ.get("ENVBUNDLE_ALL_SEEDS"):
            assert seed >= 5
            return
        yield seed


def make_source(path: Path) -> DirectoryStore:
    store = DirectoryStore(path, create=True)
    files = {f"purelib/f{n}.bin": noise(40_000 + 20_000 * n, n) for n in range(14)}
    put_bundle(store, files=files, piece=120_000)
    return store


def sizes(store: DirectoryStore) -> tuple[int, int]:
    found = [size for _, size in store.blobs()]
    return sum(found), max(found)


def check(destination: DirectoryStore, source: DirectoryStore, seed: int) -> None:
    assert list(destination.blobs()) == list(source.blobs()), f"seed {seed}"
    assert destination.documents() == source.documents(), f"seed {seed}"
    assert all(destination.rehash(digest) == digest for digest, _ in destination.blobs()), f"seed {seed}"


def cut_far_ends(tmp_path: Path, source: DirectoryStore, seeds: Iterable[int]) -> None:
    """Copy once for each seed, over far ends that are killed after some bytes, until a run comes through."""
    total, largest = sizes(source)
    overhead = 30_000  # the far end's source, and heads of frames
    cuts_in_all = done = 0
    for seed in seeds:
        chance = random.Random(seed)
        place = tmp_path / "d"
        sent = cuts = 0
        while True:
            pipe = CutPipe(overhead + int(chance.expovariate(1.0) * total) if cuts < 6 else 10**12)
            try:
                far = FarStore(lambda _, pipe=pipe: channel_of(pipe), str(place), create=True)  # type: ignore[misc]
                try:
                    copy_bundle(source, far, TAG, streams=STREAMS)
                finally:
                    far.close()
                break
            except TransferError:
                cuts += 1
                if (place / "oci-layout").exists() and DirectoryStore(place).tags():
                    check(DirectoryStore(place), source, seed)  # what can be seen is whole
            finally:
                sent += pipe.sent
        cuts_in_all, done = cuts_in_all + cuts, done + 1
        assert sent <= total + (cuts + 1) * (overhead + STREAMS * largest), f"seed {seed}"
        check(DirectoryStore(place), source, seed)
        shutil.rmtree(place)
    assert cuts_in_all > done // 3
