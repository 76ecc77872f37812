"""Seeded cuts: whatever ends a copy, the same copy goes on, sends little twice, and ends byte-equal.

Up to 200 seeds each over a far end, a web server and a registry, as many as fit into half a minute (all with
ENVBUNDLE_ALL_SEEDS=1). A seed decides after how many bytes the connection
ends, again and again, until a run comes through.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import HostError, TransferError
from envbundle.host.fetch import Web
from envbundle.store.layout import DirectoryStore
from envbundle.store.verify import verify_store
from envbundle.transfer.copy import copy_bundle
from envbundle.transfer.http import HttpStore
from envbundle.transfer.oci import OciStore
from envbundle.transfer.registry import Registry, parse_reference
from tests.transfer.far import local_store
from tests.transfer.web_server import WebServer

from .cuts import STREAMS, TAG, check, cut_far_ends, make_source, seeds_within, sizes
from .registry import DockerRegistry, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> DirectoryStore:
    return make_source(tmp_path_factory.mktemp("source") / "store")


def test_over_a_far_end(tmp_path: Path, source: DirectoryStore) -> None:
    cut_far_ends(tmp_path, source, seeds_within(30))


def test_over_a_web_server(tmp_path: Path, source: DirectoryStore) -> None:
    server = WebServer(source.path)
    try:
        for seed in seeds_within(25):
            chance = random.Random(seed)
            server.cuts = chance.randrange(40)
            server.asked.clear()
            place = DirectoryStore(tmp_path / "d", create=True)
            while True:
                store = HttpStore(server.url)
                try:
                    copy_bundle(store, place, TAG, streams=STREAMS)
                    break
                except TransferError:
                    assert place.tags() == ()
                finally:
                    store.close()
            check(place, source, seed)
            shutil.rmtree(tmp_path / "d")
    finally:
        server.close()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    registry = DockerRegistry(tmp_path)
    found = Proxy(registry.port)
    yield found
    found.close()
    registry.stop()


def test_over_a_registry(tmp_path: Path, source: DirectoryStore, proxy: Proxy) -> None:
    total, largest = sizes(source)
    for seed in seeds_within(25):
        chance = random.Random(seed)
        reference = parse_reference(f"{proxy.host}/seed{seed}")
        cuts = 0
        proxy.received = 0
        while True:
            proxy.drop_after = int(chance.expovariate(1.0) * total) if cuts < 4 else None
            web = Web()
            store = OciStore(Registry(reference, web), web)
            try:
                copy_bundle(source, store, TAG, streams=STREAMS)
                break
            except TransferError:
                cuts += 1
            finally:
                store.close()
        assert proxy.received <= total + (cuts + 1) * (10_000 + STREAMS * largest), f"seed {seed}"
        proxy.drop_after = None
        web = Web()
        store = OciStore(Registry(reference, web), web)
        pulled = DirectoryStore(tmp_path / "pulled", create=True)
        copy_bundle(store, pulled, TAG, streams=STREAMS)
        store.close()
        check(pulled, source, seed)
        shutil.rmtree(tmp_path / "pulled")


def test_a_full_disk_at_the_destination(tmp_path: Path, source: DirectoryStore) -> None:
    total, _ = sizes(source)
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={total // 2}", "tmpfs", place], check=True)
    try:
        far = local_store(place / "store")
        with pytest.raises(HostError) as caught:
            copy_bundle(source, far, TAG)
        assert caught.value.code == "E-SPACE"  # before a byte goes
        assert list(far.blobs()) == []
        with pytest.raises(HostError) as caught:
            deque((far.put(source.read(digest, size)) for digest, size in source.blobs()), maxlen=0)
        assert caught.value.code == "E-SPACE"  # and when it fills up in between
        assert far.leftovers() == ()
        subprocess.run(["mount", "-o", f"remount,size={total * 2 + (64 << 20)}", place], check=True)
        result = copy_bundle(source, far, TAG)
        assert result.skipped_blobs > 0
        far.close()
        near = DirectoryStore(place / "store")
        assert verify_store(near, workers=1) == []
        assert list(near.blobs()) == list(source.blobs())
    finally:
        subprocess.run(["umount", place], check=True)
