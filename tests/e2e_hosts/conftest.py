from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from .hosts import SUITES, Host, deliver, make_roots, pack


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    """The roots, in memory: installing packages onto a disk waits for it hundreds of times."""
    folder = tmp_path_factory.mktemp("hosts")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2g,mode=755", "tmpfs", folder], check=True)
    try:
        made = make_roots(folder)
        store, signers = pack(folder / "packing side")
        for host in made.values():
            deliver(host, store, signers)
        yield made
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(params=SUITES)
def host(request: pytest.FixtureRequest, hosts: dict[str, Host]) -> Host:
    found: Host = hosts[request.param]
    return found
