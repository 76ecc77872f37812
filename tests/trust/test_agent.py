"""The agent's protocol, against a socket that answers as told; real agents are in test_against_openssh."""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import HostError, UserInputError
from envbundle.host.agent import AgentSigner, agent_keys, agent_signer
from envbundle.trust.sshsig import Signature, sign
from envbundle.trust.wire import Reader, pack_string

from .builders import MESSAGE, signer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOB = signer().public_blob
LIST = b"\x0c\0\0\0\1" + pack_string(BLOB) + pack_string(b"key of alice")


@contextmanager
def listening(answer: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """Serve ``answer(connection, request)`` for each connection; yield the socket's path."""
    # A socket's path holds about 100 bytes: pytest's own folders may be longer.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        path = str(Path(folder) / "agent")
        server.bind(path)
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                with connection:
                    try:
                        size = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))[0]
                        answer(connection, connection.recv(size, socket.MSG_WAITALL))
                    except (OSError, struct.error):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


def saying(reply: bytes) -> Callable[[socket.socket, bytes], None]:
    """Answer with the frame's raw bytes."""
    return lambda connection, _: connection.sendall(reply)


def frame(reply: bytes) -> bytes:
    return pack_string(reply)


def honest(connection: socket.socket, request: bytes) -> None:
    """Do as ssh-agent does for the one key of alice."""
    if request == b"\x0b":
        connection.sendall(frame(LIST))
        return
    reader = Reader(request)
    assert reader.take(1, "type") == b"\x0d"
    assert reader.string("key") == BLOB
    data = reader.string("data")
    assert reader.uint32("flags") == 0
    reader.done("request")
    connection.sendall(frame(b"\x0e" + pack_string(signer().sign(data))))


def test_an_agent_signs() -> None:
    with listening(honest) as path:
        key = agent_signer(path, BLOB)
        assert key.comment == "key of alice"
        armored = sign(MESSAGE, key, namespace="envbundle")
    Signature.parse(armored).verify(MESSAGE)
    assert armored == sign(MESSAGE, signer(), namespace="envbundle")


def test_rsa_is_asked_for_sha512() -> None:
    seen = []

    def answer(connection: socket.socket, request: bytes) -> None:
        seen.append(request)
        connection.sendall(frame(b"\5"))

    with listening(answer) as path, pytest.raises(HostError):
        AgentSigner(socket_path=path, public_blob=signer("alice", "rsa").public_blob).sign(b"data")
    assert seen[0].endswith(pack_string(b"data") + b"\0\0\0\4")


def test_a_key_that_the_agent_does_not_hold() -> None:
    with listening(honest) as path, pytest.raises(UserInputError) as caught:
        agent_signer(path, signer("bob").public_blob)
    assert caught.value.code == "E-AGENT-KEY"
    assert "key of alice" in caught.value.found


REPLIES = [
    pytest.param(b"", "closed", id="closed at once"),
    pytest.param(b"\0\0", "closed", id="closed in the length"),
    pytest.param(b"\0\0\0\x09\x0c", "closed", id="closed in the reply"),
    pytest.param(frame(b""), "0 bytes", id="empty reply"),
    pytest.param(b"\0\4\0\1", "262145 bytes", id="too big a reply"),
    pytest.param(b"\xff\xff\xff\xff", "4294967295 bytes", id="huge reply"),
]
LISTS = [
    *REPLIES,
    pytest.param(frame(b"\5"), "type 5", id="failure"),
    pytest.param(frame(b"\x0c\0"), "type 12", id="list without count"),
    pytest.param(frame(b"\x0c\0\0\0\1"), "too early", id="key missing"),
    pytest.param(frame(LIST[:-1]), "too early", id="comment cut"),
    pytest.param(frame(LIST + b"\0"), "1 bytes behind", id="trailing byte"),
    pytest.param(frame(b"\x0c\xff\xff\xff\xff"), "4294967295 keys", id="many keys"),
]
SIGNATURES = [
    *REPLIES,
    pytest.param(frame(b"\5"), "refused", id="failure"),
    pytest.param(frame(b"\x0c\0\0\0\0"), "type 12", id="another answer"),
    pytest.param(frame(b"\x0e"), "too early", id="no signature"),
    pytest.param(frame(b"\x0e\0\0\0\xffx"), "too early", id="cut"),
    pytest.param(frame(b"\x0e" + pack_string(b"x") + b"y"), "1 bytes behind", id="trailing byte"),
]


@pytest.mark.parametrize(("reply", "says"), LISTS)
def test_broken_lists(reply: bytes, says: str) -> None:
    with listening(saying(reply)) as path, pytest.raises(HostError) as caught:
        agent_keys(path, timeout=5)
    assert caught.value.code == "E-AGENT"
    assert says in caught.value.found


@pytest.mark.parametrize(("reply", "says"), SIGNATURES)
def test_broken_signatures(reply: bytes, says: str) -> None:
    with listening(saying(reply)) as path, pytest.raises(HostError) as caught:
        AgentSigner(socket_path=path, public_blob=BLOB, timeout=5).sign(b"data")
    assert caught.value.code == "E-AGENT"
    assert says in caught.value.found


def test_a_signature_of_something_else_is_not_handed_out() -> None:
    other = frame(b"\x0e" + pack_string(signer().sign(b"something else")))
    with listening(saying(other)) as path, pytest.raises(HostError, match="E-AGENT"):
        sign(MESSAGE, AgentSigner(socket_path=path, public_blob=BLOB), namespace="envbundle")


def hang(connection: socket.socket, request: bytes) -> None:
    connection.recv(1)


def trickle(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"\0\0\1\0")
    for _ in range(100):
        time.sleep(0.05)
        connection.sendall(b"\x0c")


@pytest.mark.parametrize("answer", [hang, trickle])
def test_an_agent_that_is_slow_is_left_in_time(answer: Callable[[socket.socket, bytes], None]) -> None:
    with listening(answer) as path:
        start = time.monotonic()
        with pytest.raises(HostError, match=r"no answer in 0\.3 seconds"):
            agent_keys(path, timeout=0.3)
        assert time.monotonic() - start < 3


@pytest.mark.parametrize("path", [None, "", "/nonexistent/agent", "/" + "x" * 200, "a\0b", "/"])
def test_no_agent(path: str | None) -> None:
    with pytest.raises(HostError) as caught:
        agent_keys(path)
    assert caught.value.code == "E-AGENT"
