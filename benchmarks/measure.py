"""What a process tree costs: processor time as the kernel counts it, wall time, anonymous memory.

* Processor time is user and system time of the process and of everything that it waited for (``wait4``).
* Memory is RssAnon, summed over the tree and sampled every 20 ms; processes named in ``apart`` are left out
  (uv is a program of its own). Pages of files that are mapped or cached belong to the kernel, not to anybody.
* Pairs are run in turn, A B A B: a load that comes and goes hits both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of processor time (user and system) and of wall time."""

    cpu: float
    wall: float

    def __add__(self, other: Cost) -> Cost:
        """One after the other."""
        return Cost(self.cpu + other.cpu, self.wall + other.wall)


def command(
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    statuses: Sequence[int] = (0,),
    started: Callable[[int], None] | None = None,
) -> Cost:
    """Run a command to its end and return what it and its children cost.

    ``env`` is added to this process's own. Raises ``RuntimeError`` with what it said where its exit status is
    not among ``statuses``. ``started`` is told the process's id.
    """
    with tempfile.TemporaryFile() as said:
        begin = time.perf_counter()
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        if started is not None:
            started(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in statuses:
            said.seek(0)
            text = said.read().decode("utf-8", "replace")[-2000:]
            raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}: {text}")
    return Cost(usage.ru_utime + usage.ru_stime, wall)


def shell(script: str) -> Cost:
    """Run a pipeline with sh."""
    return command(["sh", "-c", script])


def inside(work: Callable[[], object]) -> Cost:
    """Call ``work`` in this process and return what it cost."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall)


def in_turn(count: int, *works: Callable[[], Cost]) -> list[list[Cost]]:
    """Run all works ``count`` times in turn; returns the costs of each work."""
    costs: list[list[Cost]] = [[] for _ in works]
    for _ in range(count):
        for work, mine in zip(works, costs, strict=True):
            os.sync()  # what the last one left to be written is not this one's load
            mine.append(work())
    return costs


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def most_memory(
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    statuses: Sequence[int] = (0,),
    apart: Sequence[str] = ("uv",),
) -> tuple[int, Cost]:
    """Run a command; returns the highest RssAnon in bytes of its tree that a sample saw, and its cost."""
    ended = threading.Event()
    most = [0]

    def sample(pid: int) -> None:
        while not ended.wait(EVERY):
            most[0] = max(most[0], sum(_anonymous(one, apart) for one in _tree(pid)))

    threads: list[threading.Thread] = []

    def start(pid: int) -> None:
        threads.append(threading.Thread(target=sample, args=(pid,)))
        threads[0].start()

    try:
        cost = command(words, cwd=cwd, env=env, statuses=statuses, started=start)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    return most[0], cost


def _tree(pid: int) -> list[int]:
    """Return a process and all below it; one that ends meanwhile has none."""
    found, position = [pid], 0
    while position < len(found):
        for path in _children(found[position]):
            found += [int(text) for text in path.split()]
        position += 1
    return found


def _children(pid: int) -> list[str]:
    try:
        return [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []


def _anonymous(pid: int, apart: Sequence[str]) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    if values.get("Name", "").strip() in apart:
        return 0
    return int(values.get("RssAnon", "0 kB").split()[0]) * 1024
