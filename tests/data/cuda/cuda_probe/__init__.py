"""Run a kernel, check its numbers, or say which CUDA error kept it from running."""

from __future__ import annotations

import ctypes
from pathlib import Path

COUNT = 1_000_000


def main() -> int:
    """Return 0 for right numbers, 1 for wrong ones, 2 where the kernel did not run."""
    library = ctypes.CDLL(str(Path(__file__).parent / "_probe.so"))
    library.probe_name.restype = ctypes.c_char_p
    numbers = (ctypes.c_int * COUNT)()
    error = library.probe_run(numbers, COUNT)
    if error:
        print(f"kernel did not run: CUDA error {error} ({library.probe_name(error).decode()})")
        return 2
    wrong = sum(1 for i, number in enumerate(numbers) if number != 3 * i + 1)
    print(f"kernel ran on sm_{library.probe_capability()}: {COUNT} numbers, {wrong} wrong, sum {sum(numbers)}")
    return 1 if wrong else 0
