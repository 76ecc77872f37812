"""Signing by ssh-agent over its Unix socket (draft-ietf-sshm-ssh-agent): the only user of AF_UNIX.

* Two requests are enough: which keys there are, and sign this. RSA keys are asked for SHA-512.
* Every exchange has a deadline for the whole of it, and replies have a bound: an agent that hangs, trickles
  or floods is an error, never a stall. Signing may wait for a person (``ssh-add -c``, a token), hence longer.
* Behind the socket may be OpenSSH's agent, gpg-agent or a forwarded one: who asked checks what it returns.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

from envbundle.errors import HostError, UserInputError

LIST_SECONDS = 10.0
SIGN_SECONDS = 120.0
_MAX_REPLY = 256 * 1024
_MAX_KEYS = 2048
_FAILURE, _LIST, _LISTED, _SIGN, _SIGNED = 5, 11, 12, 13, 14
_RSA_SHA2_512 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSigner:
    """One key that an agent holds; a ``Signer`` of ``envbundle.trust.keys``.

    ``public_blob`` is the public key in wire form, ``comment`` what the agent calls it.
    """

    socket_path: str
    public_blob: bytes
    comment: str = ""
    timeout: float = SIGN_SECONDS

    def sign(self, data: bytes) -> bytes:
        """Return the signature over ``data``: the algorithm's name, then its octets.

        Raises ``HostError`` (E-AGENT): the agent is gone, refuses, or needs more than ``timeout`` seconds.
        """
        rsa = self.public_blob.startswith(_string(b"ssh-rsa"))
        flags = struct.pack(">I", _RSA_SHA2_512 if rsa else 0)
        request = bytes([_SIGN]) + _string(self.public_blob) + _string(data) + flags
        reply = _ask(self.socket_path, request, self.timeout)
        if reply[0] != _SIGNED:
            raise _fault(
                self.socket_path,
                "the agent refused to sign" if reply[0] == _FAILURE else f"a reply of type {reply[0]}",
                "confirm the request where the agent asks, unlock it (ssh-add -X), or check ssh-add -l",
            )
        signature, end = _take_string(reply, 1, self.socket_path)
        if end != len(reply):
            raise _fault(self.socket_path, f"{len(reply) - end} bytes behind the signature")
        return signature


def agent_keys(socket_path: str | None, *, timeout: float = LIST_SECONDS) -> tuple[AgentSigner, ...]:
    """Return the keys that the agent at ``socket_path`` (the value of SSH_AUTH_SOCK) holds, in its order.

    Raises ``HostError`` (E-AGENT) where there is no agent or it does not answer within ``timeout`` seconds.
    """
    if not socket_path:
        raise HostError(
            "E-AGENT",
            "ssh-agent",
            expected="SSH_AUTH_SOCK",
            found="no agent",
            hint='start one (eval "$(ssh-agent)"; ssh-add), or name a key file',
        )
    reply = _ask(socket_path, bytes([_LIST]), timeout)
    if reply[0] != _LISTED or len(reply) < 5:
        raise _fault(socket_path, f"a reply of type {reply[0]} instead of a list of keys")
    (count,) = struct.unpack_from(">I", reply, 1)
    if count > _MAX_KEYS:
        raise _fault(socket_path, f"{count} keys")
    at = 5
    keys = []
    for _ in range(count):
        blob, at = _take_string(reply, at, socket_path)
        comment, at = _take_string(reply, at, socket_path)
        keys.append(
            AgentSigner(socket_path=socket_path, public_blob=blob, comment=comment.decode("utf-8", "replace"))
        )
    if at != len(reply):
        raise _fault(socket_path, f"{len(reply) - at} bytes behind the list of keys")
    return tuple(keys)


def agent_signer(
    socket_path: str | None, public_blob: bytes, *, timeout: float = SIGN_SECONDS
) -> AgentSigner:
    """Return the agent's signer for the key ``public_blob``.

    ``timeout`` bounds each signature, in seconds. Raises ``HostError`` (E-AGENT), or ``UserInputError``
    (E-AGENT-KEY) where the agent does not hold that key.
    """
    keys = agent_keys(socket_path, timeout=min(timeout, LIST_SECONDS))
    for key in keys:
        if key.public_blob == public_blob:
            return AgentSigner(
                socket_path=key.socket_path, public_blob=public_blob, comment=key.comment, timeout=timeout
            )
    raise UserInputError(
        "E-AGENT-KEY",
        "ssh-agent",
        expected="the key that was named",
        found=", ".join(ascii(key.comment) for key in keys[:8]) or "no keys",
        hint="load it: ssh-add FILE",
    )


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _take_string(data: bytes, at: int, where: str) -> tuple[bytes, int]:
    if at + 4 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if at + 4 + size <= len(data):
            return data[at + 4 : at + 4 + size], at + 4 + size
    raise _fault(where, "a reply that ends too early")


def _fault(where: str, found: str, hint: str = "") -> HostError:
    return HostError("E-AGENT", f"ssh-agent at {where}", found=found, hint=hint)


def _ask(socket_path: str, request: bytes, timeout: float) -> bytes:
    """Send one request and return the reply's bytes, at least one."""
    family = getattr(socket, "AF_UNIX", None)
    if family is None:
        raise _fault(socket_path, "a system without Unix sockets", "sign with a key file")
    deadline = time.monotonic() + timeout
    try:
        with socket.socket(family, socket.SOCK_STREAM) as agent:
            agent.settimeout(timeout)
            agent.connect(socket_path)
            agent.sendall(_string(request))
            (size,) = struct.unpack(">I", _receive(agent, 4, deadline, socket_path))
            if not 1 <= size <= _MAX_REPLY:
                raise _fault(socket_path, f"a reply of {size} bytes")
            return _receive(agent, size, deadline, socket_path)
    except TimeoutError:
        hint = "is it waiting for a confirmation?"
        raise _fault(socket_path, f"no answer in {timeout:g} seconds", hint) from None
    except (OSError, ValueError) as fault:  # ValueError: a path with a NUL in it
        raise _fault(socket_path, str(fault), "check SSH_AUTH_SOCK, or name a key file") from None


def _receive(agent: socket.socket, size: int, deadline: float, where: str) -> bytes:
    data = bytearray()
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        agent.settimeout(left)
        piece = agent.recv(size - len(data))
        if not piece:
            raise _fault(where, "a closed connection", "the agent ended, or refused this program")
        data += piece
    return bytes(data)
