"""``ssh://[user@]host[:port]/path``: a store in a folder of a host with ssh and python3 >= 3.8.

* ssh is the user's own: its configuration, jump hosts, keys and known hosts hold. BatchMode is on (nothing
  is ever asked), agent and X11 forwarding are off, host key checking is never touched.
* The remote command is one constant; the path travels inside the protocol, so no shell reads it.
* One connection: more streams are further sessions over it, by the user's ControlPath where there is one,
  else by ours in a private folder. A session that sshd does not allow is done without.
* A first connection that sshd drops before the key exchange (MaxStartups) is tried again, three times.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from envbundle.errors import TransferError, UserInputError
from envbundle.host.run import open_pipe, run

from .channel import Channel, Diagnosis
from .far_end import BOOT
from .far_store import FarStore

if TYPE_CHECKING:
    from .options import TransferOptions

REMOTE_COMMAND = f"python3 -I -c '{BOOT}'"
#: Unix sockets have at most 103 characters on some systems; ssh adds 17 while it makes one.
MAX_CONTROL_PATH = 80
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,200}")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]")
_ADDRESS = re.compile(
    r"(?:(?P<user>[^/]*)@)?(?P<host>\[[^\]/]*\]|[^/:@\[\]]*)(?::(?P<port>[^/]*))?(?P<path>/.*)?", re.DOTALL
)
_DROPPED = re.compile(
    r"(?:kex|ssh)_exchange_identification|Connection (?:closed|reset) by|Exceeded MaxStartups"
)
#: Pattern in what ssh or the shell said, code, hint.
_KINDS: tuple[tuple[str, str, str], ...] = (
    (
        "Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|No .* host key is known",
        "E-SSH-HOST-KEY",
        "run ssh to that host by hand, compare the key over another channel, then copy again",
    ),
    (
        "Permission denied|Too many authentication failures",
        "E-SSH-LOGIN",
        "see that `ssh -o BatchMode=yes` logs in there",
    ),
    (
        "Could not resolve|Connection refused|timed out|No route to host|Network is unreachable",
        "E-SSH-UNREACHABLE",
        "check name, port, network and jump host: `ssh -v` tells more",
    ),
    (
        "Python 3.8 or newer is needed|python3.*not found|not found: python3|python3.*No such file",
        "E-FAR-PYTHON",
        "put a python3 of 3.8 or newer on the PATH that ssh commands have there",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAddress:
    """Where an ``ssh://`` location leads; '' or None: not said. ``path`` may begin with ``~``."""

    host: str
    path: str
    user: str = ""
    port: int | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments that tell ssh where to go."""
        port = ("-p", str(self.port)) if self.port is not None else ()
        return (*port, "--", f"{self.user}@{self.host}" if self.user else self.host)

    @property
    def machine(self) -> str:
        """User, host and port as they stand in a location."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user + '@' if self.user else ''}{host}{'' if self.port is None else f':{self.port}'}"

    def __str__(self) -> str:
        return f"ssh://{self.machine}{'/' if self.path.startswith('~') else ''}{self.path}"


def parse_ssh(text: str) -> SshAddress:
    """Return the address in ``text``, which stands after ``ssh://``; raises ``UserInputError`` (E-LOCATION).

    ``%20`` and the like stand for characters, as in every URL; ``/~/x`` and ``/~user/x`` lie in home folders.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise _refused(text, "another form")
    user, host, port = unquote(match["user"] or ""), match["host"] or "", match["port"]
    path = unquote(match["path"] or "")
    if user and not _USER.fullmatch(user):
        raise _refused(text, f"the user {user!a}")
    if not _HOST.fullmatch(host):
        raise _refused(text, f"the host {host!a}")
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise _refused(text, f"the port {port!a}")
    if path in ("", "/"):
        raise _refused(text, "no folder")
    if "\0" in path:
        raise _refused(text, "a zero byte")
    return SshAddress(
        user=user,
        host=host.strip("[]"),
        port=None if port is None else int(port),
        path=path[1:] if path.startswith("/~") else path,
    )


def is_plain_address(user: str, host: str, port: str) -> bool:
    """Whether the three are of characters that mean nothing to any shell."""
    plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", user) and re.fullmatch(
        r"[A-Za-z0-9_][A-Za-z0-9._:-]*", host
    )
    return bool(plain) and port.isascii() and port.isdecimal()


def _refused(text: str, found: str) -> UserInputError:
    return UserInputError(
        "E-LOCATION",
        ascii(f"ssh://{text}")[1:-1][:200],
        expected="ssh://[user@]host[:port]/path",
        found=found,
    )


def open_ssh(path: str, create: bool, options: TransferOptions) -> FarStore:
    """Return the store at an ``ssh://`` location, ``path`` being what follows the scheme.

    Raises ``TransferError``: E-SSH-UNREACHABLE, E-SSH-LOGIN, E-SSH-HOST-KEY, E-FAR-PYTHON, E-SSH-CUT; and as
    ``FarStore``.
    """
    address = parse_ssh(path)
    connection = SshConnection(address, options)
    try:
        return SshStore(connection, create=create)
    except BaseException:
        connection.close()
        raise


class SshStore(FarStore):
    """A far store that ends its connection when it is closed."""

    def __init__(self, connection: SshConnection, *, create: bool) -> None:
        self._connection = connection
        options = connection.options
        super().__init__(
            connection.channel,
            connection.address.path,
            create=create,
            streams=max(1, options.streams),
            reporter=options.reporter,
        )

    def close(self) -> None:
        """End all channels and the connection."""
        super().close()
        self._connection.close()


class SshConnection:
    """One ssh connection to ``address``, and the sessions over it."""

    def __init__(self, address: SshAddress, options: TransferOptions) -> None:
        self.address, self.options = address, options
        self._folder = ""
        self._shared = options.streams > 1 and self._users_own_master()

    def _users_own_master(self) -> bool:
        """Whether the user's configuration shares connections to this host already."""
        told = run([*self.options.ssh, "-G", *self.address.words], timeout=30.0)
        found = re.search(r"^controlpath (.+)$", told.text, re.MULTILINE)
        return found is not None and found[1] != "none"

    def _words(self, number: int) -> list[str]:
        words = [*self.options.ssh, "-T", "-a", "-x", "-o", "BatchMode=yes"]
        words += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4", "-o", "ConnectTimeout=30"]
        if self.options.streams > 1 and not self._shared:
            if not self._folder:
                self._folder = tempfile.mkdtemp(prefix="envbundle-")
            control = f"{self._folder}/s"
            if number == 0 and len(control) <= MAX_CONTROL_PATH:
                words += [
                    "-o",
                    "ControlMaster=yes",
                    "-o",
                    "ControlPersist=no",
                    "-o",
                    f"ControlPath={control}",
                ]
            elif number > 0:
                # Without the master a session would connect by itself: this makes that fail at once.
                words += [
                    "-o",
                    "ControlMaster=no",
                    "-o",
                    f"ControlPath={control}",
                    "-o",
                    "ProxyCommand=false",
                ]
        return [*words, *self.address.words, REMOTE_COMMAND]

    def channel(self, number: int) -> Channel:
        """Open the ``number``-th session, the first with its connection."""
        wait = 0.5
        while True:
            try:
                return Channel(open_pipe(self._words(number)), str(self.address), self._diagnose)
            except TransferError as fault:
                if number > 0 or wait > 4 or fault.code != "E-SSH-CUT" or not _DROPPED.search(fault.found):
                    raise
            time.sleep(wait)
            wait *= 2

    def _diagnose(self, seen: Diagnosis) -> TransferError:
        return diagnose_ssh(str(self.address), seen)

    def close(self) -> None:
        """Remove what the connection needed on this machine."""
        if self._folder:
            with contextlib.suppress(OSError):
                shutil.rmtree(self._folder)
            self._folder = ""


def diagnose_ssh(label: str, seen: Diagnosis) -> TransferError:
    """Return the error that the end of an ssh session means."""
    text = f"{seen.noise}\n{seen.errors}"
    lines = [_printable(line) for line in text.split("\n") if line.strip()]
    said = "; ".join(lines[-3:])[-400:] or f"ssh ended with status {seen.status}"
    for pattern, code, hint in _KINDS if not seen.answered else ():
        if re.search(pattern, text):
            return TransferError(code, label, expected="a far end that answers", found=said, hint=hint)
    if not seen.answered and seen.status == 127:
        return TransferError("E-FAR-PYTHON", label, expected="python3", found=said, hint=_KINDS[-1][2])
    return TransferError(
        "E-SSH-CUT",
        label,
        expected="a connection to the end",
        found=said,
        hint="run the same command again: it goes on where this one stopped",
    )


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in line.strip())


def ssh_words(text: str | None) -> tuple[str, ...]:
    """Return the program and arguments that ``text`` (``$ENVBUNDLE_SSH``) names; no shell reads it."""
    try:
        words = tuple(shlex.split(text)) if text else ()
    except ValueError as fault:
        raise UserInputError(
            "E-USAGE", "$ENVBUNDLE_SSH", expected="a command line", found=str(fault)
        ) from fault
    return words or ("ssh",)
