"""``ssh://`` with a real sshd: quoting, sessions, host keys, talking shells, kills, and a relay of three machines."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from envbundle.errors import TransferError
from envbundle.progress import Silent
from envbundle.store.bundle import read_bundle
from envbundle.store.layout import DirectoryStore
from envbundle.store.verify import verify_store
from envbundle.transfer.channel import Channel
from envbundle.transfer.copy import copy_bundle
from envbundle.transfer.location import open_location, opened, parse_location
from envbundle.transfer.ssh import REMOTE_COMMAND, SshStore
from tests.store.builders import noise, put_bundle
from tests.store.conformance import StoreConformance
from tests.transfer.far import local_channel

from .hosts import ENVBUNDLE, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envbundle.spec.digest import Digest
    from envbundle.store.protocol import Store

pytestmark = pytest.mark.e2e
MIB = 1024 * 1024
TAG = "demo-1.0-sm_90"


class Listening(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path_factory.mktemp("hosts"))
    hosts.add("far")
    # The user's own shared connection: every store below is one more session of it.
    hosts.configure(
        more=f"Host far\n ControlMaster auto\n ControlPath {hosts.folder}/m\n ControlPersist 30\n"
    )
    yield hosts
    # After ControlPersist the shared connection has ended by itself: then there is nothing to end.
    subprocess.run([*hosts.ssh, "-O", "exit", "far"], check=False, capture_output=True)
    hosts.stop()


class TestSshStore(StoreConformance):
    @pytest.fixture
    def store(self, shared: Hosts, tmp_path: Path) -> Iterator[Store]:
        where = parse_location(f"ssh://far{tmp_path}/store")
        with opened(open_location(where, create=True, options=shared.options())) as store:
            yield store

    def damage(self, store: Store, digest: Digest, data: bytes) -> None:
        assert isinstance(store, SshStore)
        (Path(store.root) / "blobs" / "sha256" / digest.hex).write_bytes(data)


def bundle(path: Path, mebibytes: int = 1, pieces: int = 8) -> DirectoryStore:
    store = DirectoryStore(path, create=True)
    files = {f"purelib/f{n}.bin": noise(mebibytes * MIB // pieces, n) for n in range(pieces)}
    put_bundle(store, files=files, signatures=(), piece=8 * MIB if mebibytes > 100 else MIB)
    return store


@pytest.mark.parametrize("name", ["a b", "it's", "$(touch p)", 'x"y'])
def test_paths_reach_the_other_host_as_they_are(hosts: Hosts, tmp_path: Path, name: str) -> None:
    hosts.add("far")
    (tmp_path / "there").mkdir()
    where = parse_location(f"ssh://far{tmp_path}/there/{name}")
    with opened(open_location(where, create=True, options=hosts.options())) as store:
        store.put(b"x")
    assert [p.name for p in (tmp_path / "there").iterdir()] == [name]
    assert not (Path.home() / "p").exists()


@pytest.mark.parametrize("shell", ["sh", "bash", "fish", "zsh"])
def test_every_login_shell_runs_the_command(tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    assert program is not None
    channel: Channel = local_channel((program, "-c", REMOTE_COMMAND))
    channel.call("open", path=str(tmp_path / "a b"), create=True)
    channel.close()
    assert (tmp_path / "a b" / "index.json").is_file()


def test_a_talking_login_shell(hosts: Hosts, tmp_path: Path) -> None:
    hosts.add("far", extra='ForceCommand echo hello; echo there >&2; eval "$SSH_ORIGINAL_COMMAND"')
    heard = Listening()
    where = parse_location(f"ssh://far{tmp_path}/store")
    with opened(open_location(where, create=True, options=hosts.options(reporter=heard))) as store:
        put_bundle(store)
    assert verify_store(DirectoryStore(tmp_path / "store"), workers=1) == []
    assert any("hello" in note for note in heard.notes)


def test_few_sessions_and_startups_are_enough(hosts: Hosts, tmp_path: Path) -> None:
    hosts.add("far", extra="MaxSessions 2\nMaxStartups 2:100:2")
    source = bundle(tmp_path / "source", 24, 48)
    heard = Listening()
    where = parse_location(f"ssh://far{tmp_path}/store")
    with opened(
        open_location(where, create=True, options=hosts.options(streams=16, reporter=heard))
    ) as store:
        copy_bundle(source, store, TAG, streams=32)
        assert isinstance(store, SshStore)
        assert store.channels <= 2
    assert verify_store(DirectoryStore(tmp_path / "store"), workers=1) == []


@pytest.mark.parametrize("more", ["", "jump"])
def test_a_wrong_host_key_stops_with_the_hosts_name(hosts: Hosts, tmp_path: Path, more: str) -> None:
    first, second = hosts.add("first"), hosts.add("second")
    wrong = second.known.split()[0] + " " + " ".join(first.known.split()[1:]) + "\n"
    hosts.configure(first.known + wrong, "Host second\n ProxyJump first\n" if more else "")
    with pytest.raises(TransferError) as caught:
        open_location(parse_location(f"ssh://second{tmp_path}/x"), create=True, options=hosts.options())
    assert caught.value.code == "E-SSH-HOST-KEY"
    assert caught.value.subject.startswith("ssh://second")
    assert not (tmp_path / "x").exists()


def test_no_agent_reaches_the_other_host(hosts: Hosts, tmp_path: Path) -> None:
    hosts.add("far", extra=f'ForceCommand env > {tmp_path}/env; eval "$SSH_ORIGINAL_COMMAND"')
    hosts.configure(more="Host *\n ForwardAgent yes\n")
    started = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    socket, pid = (started.split(f"{name}=")[1].split(";")[0] for name in ("SSH_AUTH_SOCK", "SSH_AGENT_PID"))
    try:
        bundle(tmp_path / "s")
        command = [ENVBUNDLE, "copy", str(tmp_path / "s"), f"ssh://far{tmp_path}/d", "-q", "--allow-unsigned"]
        env = {**os.environ, "SSH_AUTH_SOCK": socket, "ENVBUNDLE_SSH": " ".join(hosts.ssh)}
        subprocess.run(command, env=env, check=True)
    finally:
        os.kill(int(pid), signal.SIGTERM)
    assert "SSH_CONNECTION" in (tmp_path / "env").read_text()
    assert "SSH_AUTH_SOCK" not in (tmp_path / "env").read_text()


def test_the_ends_faults_are_told_apart(hosts: Hosts, tmp_path: Path) -> None:
    hosts.add("near")
    bundle(tmp_path / "s")
    env = {**os.environ, "ENVBUNDLE_SSH": " ".join(hosts.ssh)}
    for source, destination, named in (
        (f"ssh://near{tmp_path}/absent", f"ssh://near{tmp_path}/d", f"ssh://near{tmp_path}/absent"),
        (f"ssh://near{tmp_path}/s", "ssh://127.0.0.1:1/d", "ssh://127.0.0.1:1/d"),
    ):
        done = subprocess.run(
            [ENVBUNDLE, "copy", source, destination], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 4
        assert named in done.stderr


def test_route_tells_which_ways_there_are(hosts: Hosts, tmp_path: Path) -> None:
    hosts.add("a")
    hosts.add("b", extra="ForceCommand /bin/false")
    env = {**os.environ, "ENVBUNDLE_SSH": " ".join(hosts.ssh)}

    def route(destination: str) -> tuple[int, dict[str, Any]]:
        words = [ENVBUNDLE, "route", f"ssh://a{tmp_path}/x", destination, "--json"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    status, found = route(f"ssh://a{tmp_path}/y")
    assert (status, found["via"]) == (0, "relay")
    legs = {(leg["from"], leg["to"]): leg for leg in found["legs"]}
    assert legs["a", "here"]["rate"] > 100_000
    assert not legs["a", "a"]["reachable"]  # the host has no key of its own for itself
    status, found = route(f"ssh://b{tmp_path}/y")
    assert (status, found["via"]) == (4, "")
    assert "b:" in found["why"]
    status, found = route(str(tmp_path))
    assert (status, found["via"], len(found["legs"])) == (0, "ssh", 1)


@contextlib.contextmanager
def three_machines(folder: Path) -> Iterator[tuple[Hosts, tuple[str, ...]]]:
    """Namespaces A, relay and B with a link from the relay to each, and no way between A and B."""
    names = {side: f"eb{os.getpid()}{side}" for side in ("a", "r", "b")}

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    hosts = Hosts(folder)
    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for number, side in ((1, "a"), (2, "b")):
            ip(
                "link",
                "add",
                f"v{side}",
                "netns",
                names["r"],
                "type",
                "veth",
                "peer",
                "name",
                "v0",
                "netns",
                names[side],
            )
            for where, device, end in ((names["r"], f"v{side}", 1), (names[side], "v0", 2)):
                ip("-n", where, "addr", "add", f"10.99.{number}.{end}/24", "dev", device)
                ip("-n", where, "link", "set", device, "up")
            inside = ("ip", "netns", "exec", names[side])
            hosts.add(side, address=f"10.99.{number}.2", port=2022, inside=inside)
        yield hosts, ("ip", "netns", "exec", names["r"])
    finally:
        hosts.stop()
        for name in names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False)


def test_a_relay_between_machines_without_a_route(tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    bundle(tmp_path / "a", 200, 20)
    with three_machines(tmp_path / "hosts") as (hosts, relay):
        a = hosts.sshds[0]
        reach = [*a.inside, "ping", "-c1", "-W1", "10.99.2.2"]
        assert (
            shutil.which("ping") is None
            or subprocess.run(reach, capture_output=True, check=False).returncode != 0
        )
        before = disk_used(tmp_path / "hosts")
        measure = (
            "import resource,subprocess,sys;r=subprocess.run(sys.argv[1:]).returncode;"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss);sys.exit(r)"
        )
        copy = [
            ENVBUNDLE,
            "copy",
            f"ssh://a{tmp_path}/a",
            f"ssh://b{tmp_path}/b",
            "--json",
            "--allow-unsigned",
        ]
        env = {**os.environ, "ENVBUNDLE_SSH": " ".join(hosts.ssh), "TMPDIR": str(tmp_path / "hosts")}
        done = subprocess.run(
            [*relay, sys.executable, "-c", measure, *copy],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert '"via": "relay"' in done.stdout
        assert int(done.stdout.splitlines()[-1]) < 200 * 1024
        assert disk_used(tmp_path / "hosts") - before < 100_000
    near = DirectoryStore(tmp_path / "b")
    assert verify_store(near, workers=2) == []
    assert read_bundle(near, TAG) == read_bundle(DirectoryStore(tmp_path / "a"), TAG)


def disk_used(folder: Path) -> int:
    return sum(p.lstat().st_blocks * 512 for p in folder.rglob("*"))


def test_killed_at_random_moments_it_goes_on(hosts: Hosts, tmp_path: Path) -> None:
    """As many seeds as fit into half a minute: one process of the relay is killed, then the same command goes on."""
    hosts.add("a")
    hosts.add("b")
    source = bundle(tmp_path / "a", 24, 24)
    total = sum(size for _, size in source.blobs())
    env = {**os.environ, "ENVBUNDLE_SSH": " ".join(hosts.ssh)}
    command = [
        ENVBUNDLE,
        "copy",
        f"ssh://a{tmp_path}/a",
        f"ssh://b{tmp_path}/b",
        "--json",
        "--limit-rate",
        "30M",
    ]
    end, seed = time.monotonic() + 30, 0
    while time.monotonic() < end and seed < 20:
        seed += 1
        chance = random.Random(seed)
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        running = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(chance.uniform(0.3, 1.6))
        family = [running.pid, *descendants(running.pid)]
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(family), signal.SIGKILL)
        running.communicate()
        if running.returncode != 0:
            there = DirectoryStore(tmp_path / "b", create=True)
            assert there.tags() == (), f"seed {seed}: a half copy is installable"
            assert all(there.rehash(digest) == digest for digest, _ in there.blobs())
            subprocess.run(command, env=env, check=True, capture_output=True)
        done = DirectoryStore(tmp_path / "b")
        assert list(done.blobs()) == list(source.blobs()), f"seed {seed}"
        assert done.documents() == source.documents()
    assert seed >= 3
    assert total > 20_000_000


def descendants(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found += [int(status.parent.name), *descendants(int(status.parent.name))]
    return found
