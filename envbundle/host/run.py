"""Starting processes: the only module of envbundle that does.

* Always an argv list, never a shell; standard input is closed unless bytes are given.
* Output is bounded; a time-out ends the whole process group.
* A program that is not there is a ``HostError`` (E-TOOL-MISSING), so callers can say what needs it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from envbundle.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a process left: its exit status (negative: killed by that signal) and its output."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text; undecodable bytes are replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """Standard error as text; undecodable bytes are replaced."""
        return self.stderr.decode("utf-8", "replace")


class Runner(Protocol):
    """Runs one program to its end."""

    def __call__(
        self,
        argv: Sequence[str | Path],
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float | None = None,
    ) -> Finished:
        """Run ``argv``; see ``run``."""


def run(
    argv: Sequence[str | Path],
    *,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> Finished:
    """Run a program to its end and return what it left; any exit status is returned, none raises.

    ``env`` is the whole environment (None: inherited). ``timeout`` is in seconds. Raises ``HostError``:
    E-TOOL-MISSING if the program cannot be started, E-TIMEOUT if it was ended for running too long.
    """
    words = [str(word) for word in argv]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as fault:
        raise HostError(
            "E-TOOL-MISSING",
            words[0],
            expected="a program that can be started",
            found=fault.strerror or str(fault),
        ) from fault
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired as fault:
        _end_group(process.pid)
        process.communicate()
        raise HostError(
            "E-TIMEOUT", " ".join(words)[:200], expected=f"an end within {timeout:g} s"
        ) from fault
    except BaseException:
        _end_group(process.pid)
        process.communicate()
        raise
    return Finished(status=process.returncode, stdout=out, stderr=err)


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def replace_process(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Become the program ``argv[0]`` (``envbundle run``); returns only by raising ``HostError``."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as fault:
        raise HostError("E-TOOL-MISSING", argv[0], found=fault.strerror or str(fault)) from fault


def find_program(name: str, path: str | None = None) -> str | None:
    """Return the full path of a program on PATH (or on ``path``), or None."""
    return shutil.which(name, path=path)


class Pipe(Protocol):
    """A program that runs on while we write to it and read from it."""

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes of its standard output, fewer only at the end."""

    def readline(self, limit: int) -> bytes:
        """Return a line of at most ``limit`` bytes."""

    def write(self, *parts: bytes) -> None:
        """Write ``parts`` one after the other; raises ``OSError`` where the program went away."""

    def close(self, wait: float = 5.0) -> int | None:
        """Close its input, give it ``wait`` seconds to end, then kill it; return its exit status."""

    @property
    def error_text(self) -> str:
        """The last of what it wrote on standard error."""


class ProcessPipe:
    """A child process (a ``Pipe``), in a session of its own, so that a terminal's signals reach us alone."""

    KEPT = 64 * 1024

    def __init__(self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
        """Start ``argv``; raises ``HostError`` (E-TOOL-MISSING)."""
        words = [str(word) for word in argv]
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if env is None else dict(env),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as fault:
            raise HostError(
                "E-TOOL-MISSING",
                words[0],
                expected="a program that can be started",
                found=fault.strerror or str(fault),
            ) from fault
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise RuntimeError("three pipes were asked for")
        self._stdin, self._stderr = stdin, stderr
        self._stdout = io.BufferedReader(io.FileIO(os.dup(stdout.fileno())), 65536)
        stdout.close()
        self._errors = bytearray()
        self._drain = threading.Thread(target=self._drained, name="envbundle-stderr", daemon=True)
        self._drain.start()
        self._closing = threading.Lock()

    def _drained(self) -> None:
        with self._stderr as stream, contextlib.suppress(OSError, ValueError):
            while block := os.read(stream.fileno(), 8192):
                self._errors += block
                del self._errors[: -self.KEPT]

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def error_text(self) -> str:
        """See ``Pipe.error_text``; undecodable bytes are replaced."""
        return bytes(self._errors).decode("utf-8", "replace")

    def read(self, size: int) -> bytes:
        """See ``Pipe.read``."""
        return self._stdout.read(size)

    def readline(self, limit: int) -> bytes:
        """See ``Pipe.readline``."""
        return self._stdout.readline(limit)

    def write(self, *parts: bytes) -> None:
        """See ``Pipe.write``."""
        fd = self._stdin.fileno()
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[os.write(fd, view) :]

    def close(self, wait: float = 5.0) -> int | None:
        """See ``Pipe.close``."""
        with self._closing:
            process = self._process
            with contextlib.suppress(OSError, ValueError):
                self._stdin.close()
            try:
                process.wait(wait)
            except subprocess.TimeoutExpired:
                _end_group(process.pid)
                process.wait()
            self._drain.join(1.0)
            return process.returncode

    def let_go(self) -> None:
        """Close the output, after whoever reads it has ended; standard error goes with its last writer."""
        with contextlib.suppress(OSError, ValueError):
            self._stdout.close()


def open_pipe(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> ProcessPipe:
    """Start a program to speak with; raises ``HostError`` (E-TOOL-MISSING)."""
    return ProcessPipe(argv, env=env)
