"""``envbundle --help``: what every start of the program costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .figure import Figure
from .measure import command, median

if TYPE_CHECKING:
    from .place import Place

RUNS = 15


def run(place: Place) -> list[Figure]:
    """Measure it often: it is short."""
    costs = [command([*place.envbundle, "--help"]) for _ in range(RUNS)]
    spent = [cost.cpu * 1000 for cost in costs]
    return [
        Figure(
            what="`envbundle --help`",
            peer="-",
            kind="ms",
            value=median(spent),
            limit=200,
            low=min(spent),
            high=max(spent),
            runs=RUNS,
            ours=median(spent) / 1000,
        )
    ]
