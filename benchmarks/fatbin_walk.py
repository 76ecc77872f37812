"""Reading two large libraries for their device modules and judging them, against cuobjdump listing them.

In this process, from an mmap: once the sections that NVIDIA's tools write, once every loaded section.
"""

from __future__ import annotations

import mmap
from functools import partial
from typing import TYPE_CHECKING

from envbundle.inspection.coverage import judge_file
from envbundle.inspection.report import DEFAULT_ARCHS
from envbundle.inspection.scan import scan_file

from .figure import Figure, compared
from .measure import command, in_turn, inside
from .place import KERNELS

if TYPE_CHECKING:
    from pathlib import Path

    from .place import Place

FILES = ("sgl_kernel/flash_ops.abi3.so", "sgl_kernel/sm100/common_ops.abi3.so")
PAIRS = 7


def run(place: Place) -> list[Figure]:
    """Measure both files, with and without the other sections."""
    figures = []
    for member in FILES:
        path = place.member(KERNELS, member)
        listing = [place.cuobjdump, "--list-elf", "--list-ptx", str(path)]
        known, every, theirs = in_turn(
            PAIRS,
            partial(inside, partial(judge, path, every_section=False)),
            partial(inside, partial(judge, path, every_section=True)),
            partial(command, listing),
        )
        name = f"{member.rpartition('/')[2].partition('.')[0]} ({path.stat().st_size / 1e6:.0f} MB)"
        peer = "`cuobjdump --list-elf --list-ptx`"
        figures += [
            compared(f"walk and verdicts for 11 GPUs: {name}", peer, "times faster", 50, known, theirs),
            compared(f"the same, every loaded section: {name}", peer, "times faster", 5, every, theirs),
        ]
    return figures


def judge(path: Path, *, every_section: bool) -> None:
    """Read one file and judge it for the usual GPUs."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
        scan = scan_file(path.name, view, size=len(view), every_section=every_section)
        verdicts = {str(arch): judge_file(scan, arch).verdict for arch in DEFAULT_ARCHS}
    if verdicts["sm_90"] != "native" or verdicts["sm_103"] != "none":
        raise RuntimeError(f"{path.name}: {verdicts}")
