"""``inspect`` of whole wheels of about 500 MB, against ``unzip -p`` of them into nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .figure import Figure, compared
from .measure import command, in_turn
from .place import CUBINS, KERNELS

if TYPE_CHECKING:
    from .place import Place

PAIRS = 5


def run(place: Place) -> list[Figure]:
    """Measure a wheel of few large libraries, and one of 16,000 cubins."""
    figures = []
    for name in (KERNELS, CUBINS):
        wheel = place.wheel(name)
        ours, theirs = in_turn(
            PAIRS,
            partial(command, [*place.envbundle, "inspect", "--json", str(wheel)]),
            partial(command, ["unzip", "-p", str(wheel)]),
        )
        title = name.replace("_", "-", 1).replace("-0", " 0")
        what = f"`inspect` of {title} ({wheel.stat().st_size / 1e6:.0f} MB)"
        figures.append(compared(what, "`unzip -p`", "times the CPU", 1.3, ours, theirs))
    return figures
