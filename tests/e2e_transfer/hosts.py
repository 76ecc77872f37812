"""Real parts on loopback or in network namespaces: sshd, and the client's configuration for it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from envbundle.transfer.options import TransferOptions

ENVBUNDLE = str(Path(sys.executable).with_name("envbundle"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(address: str, port: int, seconds: float = 20.0, inside: tuple[str, ...] = ()) -> None:
    end = time.monotonic() + seconds
    script = f"import socket;socket.create_connection(({address!r},{port}),1)"
    while subprocess.run(
        [*inside, sys.executable, "-c", script], capture_output=True, check=False
    ).returncode:
        assert time.monotonic() < end, f"nothing listens on {address}:{port}"
        time.sleep(0.1)


@dataclass
class Sshd:
    """One sshd with keys of its own; ``name`` is a host in the client's configuration."""

    folder: Path
    name: str
    port: int = field(default_factory=free_port)
    address: str = "127.0.0.1"
    inside: tuple[str, ...] = ()
    extra: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self, user_key: Path) -> None:
        here = self.folder / self.name
        here.mkdir()
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(here / "host")]
        subprocess.run(keygen, check=True)
        (here / "sshd.conf").write_text(
            f"Port {self.port}\nListenAddress {self.address}\nHostKey {here}/host\nPidFile none\n"
            f"AuthorizedKeysFile {user_key}.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            f"PermitRootLogin yes\nPrintMotd no\n{self.extra}\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
        assert program is not None
        self.process = subprocess.Popen(
            [*self.inside, program, "-D", "-f", here / "sshd.conf", "-E", here / "log"],
            stderr=subprocess.DEVNULL,
        )
        wait_for(self.address, self.port, inside=self.inside)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    @property
    def known(self) -> str:
        key = " ".join((self.folder / self.name / "host.pub").read_text().split()[:2])
        return f"[{self.address}]:{self.port} {key}\n"


@dataclass
class Hosts:
    """Several sshds and one client configuration, written by ``configure``."""

    folder: Path
    sshds: list[Sshd] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = self.folder / "user"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)

    def add(self, name: str, **settings: object) -> Sshd:
        sshd = Sshd(self.folder, name, **settings)  # type: ignore[arg-type]
        sshd.start(self.key)
        self.sshds.append(sshd)
        self.configure()
        return sshd

    def configure(self, known: str | None = None, more: str = "") -> None:
        (self.folder / "known").write_text(
            known if known is not None else "".join(s.known for s in self.sshds)
        )
        blocks = "".join(f"Host {s.name}\n HostName {s.address}\n Port {s.port}\n" for s in self.sshds)
        (self.folder / "config").write_text(
            f"{more}{blocks}Host *\n IdentityFile {self.key}\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {self.folder}/known\n GlobalKnownHostsFile /dev/null\n"
        )

    @property
    def ssh(self) -> tuple[str, ...]:
        return ("ssh", "-F", str(self.folder / "config"))

    def options(self, **settings: object) -> TransferOptions:
        return TransferOptions(ssh=self.ssh, **settings)  # type: ignore[arg-type]

    def stop(self) -> None:
        for sshd in self.sshds:
            sshd.stop()
