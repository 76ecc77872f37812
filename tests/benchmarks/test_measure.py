"""What the benchmarks measure with: processor time of a whole tree, memory, ratios the right way round."""

from __future__ import annotations

import sys

import pytest

from benchmarks.figure import Figure, compared
from benchmarks.measure import Cost, command, in_turn, inside, most_memory, shell
from benchmarks.page import page

BUSY = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"


def test_time_of_children_is_counted() -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}], check=True)"
    assert command([sys.executable, "-c", nested]).cpu >= 0.2
    assert shell(f"'{sys.executable}' -c '{BUSY}' | cat").cpu >= 0.2


def test_sleeping_costs_no_processor() -> None:
    cost = command(["sleep", "0.3"])
    assert cost.wall >= 0.3 > cost.cpu


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match=r"ended with 3: .*no such"):
        command(["sh", "-c", "echo no such >&2; exit 3"])
    assert command(["sh", "-c", "exit 3"], statuses=(3,)).wall > 0


def test_memory_is_that_of_the_tree_without_what_is_apart() -> None:
    held = "import time; data = bytearray(b'x') * (64 << 20); time.sleep(0.3)"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {held!r}], check=True)"
    most, _ = most_memory([sys.executable, "-c", nested])
    assert 64 << 20 < most < 160 << 20
    # The kernel's name of a process is that of its file, at most 15 bytes of it.
    name = sys.executable.rpartition("/")[2]
    apart, _ = most_memory([sys.executable, "-c", held], apart=(name, "python", "python3"))
    assert apart < 16 << 20


def test_works_are_run_in_turn() -> None:
    order: list[str] = []

    def work(name: str) -> Cost:
        return inside(lambda: order.append(name))

    first, second = in_turn(3, lambda: work("a"), lambda: work("b"))
    assert order == ["a", "b"] * 3
    assert len(first) == len(second) == 3


def test_ratios_are_of_pairs_and_limits_the_right_way_round() -> None:
    ours = [Cost(1.0, 1.0), Cost(2.0, 2.0), Cost(9.0, 9.0)]
    theirs = [Cost(2.0, 4.0), Cost(4.0, 8.0), Cost(9.0, 9.0)]
    times = compared("x", "y", "times the CPU", 0.6, ours, theirs)
    assert (times.value, times.low, times.high, times.wall) == (0.5, 0.5, 1.0, 0.25)
    assert times.holds
    faster = compared("x", "y", "times faster", 2.5, ours, theirs)
    assert (faster.value, faster.low, faster.high, faster.holds) == (2.0, 1.0, 2.0, False)


def test_the_page_says_what_does_not_hold() -> None:
    good = compared("good", "p", "share of the CPU", 0.05, [Cost(0.4, 1)], [Cost(10.0, 1)])
    bad = Figure(
        what="bad", peer="-", kind="MiB", value=301.0, limit=300.0, low=301.0, high=301.0, runs=1, ours=1.0
    )
    text = page([good, bad], ["a machine"])
    assert "| good | p | 1 | 0.400 | 10.0 | **4.0 %** (4.0-4.0) | 5 % | yes |" in text
    assert "| bad | 1.0 | 301 | 300 | **no** |" in text
