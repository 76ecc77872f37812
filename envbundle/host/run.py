"""Starting processes: the only module of envbundle that does.

* Always an argv list, never a shell; standard input is closed unless bytes are given.
* Output is bounded; a time-out ends the whole process group.
* A program that is not there is a ``HostError`` (E-TOOL-MISSING), so callers can say what needs it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
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
