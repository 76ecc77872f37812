"""One connection to a far end: requests out, answers in, by number.

* The far end's source is the first thing sent; a random marker line tells its first byte from what a
  talking login shell printed before. That noise is kept for ``-v`` and for errors.
* Several threads may have requests under way at once; the far end answers in order.
* What ends the connection ends every request under way with the same error, made by ``diagnose``.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from envbundle.errors import EnvbundleError, FormatError, HostError, IntegrityError, TransferError
from envbundle.host.files import host_error

from . import far_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from envbundle.host.run import ProcessPipe

MAX_NOISE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is known when a connection ends: exit status, standard error, noise, whether it ever answered."""

    status: int | None
    errors: str
    noise: str
    answered: bool


class Channel:
    """A running far end. ``label`` names it in messages; ``diagnose`` makes the error of its end."""

    def __init__(self, pipe: ProcessPipe, label: str, diagnose: Callable[[Diagnosis], TransferError]) -> None:
        """Send the far end and wait for its marker; raises what ``diagnose`` returns."""
        self.label = label
        self._pipe, self._diagnose = pipe, diagnose
        self._writing, self._lock = threading.Lock(), threading.Lock()
        self._waiting: dict[int, Future[tuple[dict[str, Any], bytes]]] = {}
        self._number = 0
        self._ended: EnvbundleError | None = None
        self.noise = ""
        self.busy = 0
        try:
            self.far = self._start()
        except BaseException:
            self._pipe.close(0.0)
            self._pipe.let_go()
            raise
        self._reader = threading.Thread(target=self._read, name=f"envbundle-{label}", daemon=True)
        self._reader.start()

    def _start(self) -> dict[str, Any]:
        source = far_end_source()
        marker = secrets.token_hex(16).encode()
        with contextlib.suppress(OSError):  # why it went away is found below
            self._pipe.write(b"%d\n" % len(source), source, marker + b"\n")
        noise = bytearray()
        while (line := self._pipe.readline(65536)) != marker + b"\n":
            noise += line
            if not line or len(noise) > MAX_NOISE:
                self.noise = noise.decode("utf-8", "replace")
                raise self._end(answered=False)
        self.noise = noise.decode("utf-8", "replace").strip()
        try:
            frame = far_end.read_frame(self._pipe.read)
        except far_end.FrameError as fault:
            raise self._end(answered=False) from fault
        if frame is None:
            raise self._end(answered=False)
        if frame[1].get("protocol") != far_end.PROTOCOL:
            raise TransferError(
                "E-FAR-PROTOCOL", self.label, expected=str(far_end.PROTOCOL), found=str(frame[1])
            )
        return frame[1]

    def _end(self, *, answered: bool) -> TransferError:
        status = self._pipe.close(2.0)
        return self._diagnose(
            Diagnosis(status=status, errors=self._pipe.error_text, noise=self.noise, answered=answered)
        )

    def call(self, op: str, body: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Return head and body of a request's answer; raises the far end's refusal, or the end's error."""
        future: Future[tuple[dict[str, Any], bytes]] = Future()
        with self._lock:
            if self._ended is not None:
                raise _again(self._ended)
            self._number += 1
            number = self._number
            self._waiting[number] = future
            self.busy += 1
        try:
            head = far_end.pack_frame(far_end.REQUEST, number, {"op": op, **fields}, len(body))
            with contextlib.suppress(OSError, ValueError), self._writing:  # the reader finds out why
                self._pipe.write(head, body)
            try:
                return future.result()
            except EnvbundleError as fault:
                raise _again(fault) from None
        finally:
            with self._lock:
                self.busy -= 1
                self._waiting.pop(number, None)

    def _read(self) -> None:
        fault: EnvbundleError
        try:
            while (frame := far_end.read_frame(self._pipe.read)) is not None:
                prefix, head, body = frame
                del frame
                with self._lock:
                    future = self._waiting.pop(prefix.number, None)
                if future is not None and prefix.kind == far_end.FAULT:
                    future.set_exception(self._refusal(head))
                elif future is not None:
                    future.set_result((head, body))
                del future, body
            fault = self._end(answered=True)
        except far_end.FrameError as damage:
            ended = self._end(answered=True)
            fault = TransferError(
                "E-FAR-PROTOCOL",
                self.label,
                expected="whole frames",
                found=f"{damage}; {ended.found}"[:400],
                hint="the connection was cut or damaged: run the same command again, it goes on",
            )
        except (OSError, ValueError):
            fault = self._end(answered=True)
        with self._lock:
            self._ended = self._ended or fault
            waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            future.set_exception(fault)

    def _refusal(self, head: dict[str, Any]) -> EnvbundleError:
        def text(name: str) -> str:
            return "".join(c if c.isprintable() else "?" for c in str(head.get(name, "")))[:400]

        subject = f"{self.label}: {text('subject')}"
        if head.get("kind") == "os":
            number = head.get("errno")
            return host_error(OSError(number if isinstance(number, int) else 0, text("found")), subject)
        kinds = {"integrity": IntegrityError, "format": FormatError}
        kind = kinds.get(text("kind"), HostError)
        return kind(text("code") or "E-FAR-PROTOCOL", subject, expected=text("expected"), found=text("found"))

    def close(self) -> None:
        """End the far end; nothing may be under way."""
        with self._lock:
            self._ended = self._ended or TransferError("E-SSH-CUT", self.label, found="closed from here")
        self._pipe.close()
        self._reader.join(10.0)
        self._pipe.let_go()


def far_end_source() -> bytes:
    """Return the source of the far end, as it is sent."""
    return resources.files("envbundle.transfer").joinpath("far_end.py").read_bytes()


def _again(fault: EnvbundleError) -> EnvbundleError:
    """Return an error like ``fault``: one object is not raised in two threads."""
    return type(fault)(fault.code, fault.subject, expected=fault.expected, found=fault.found, hint=fault.hint)
