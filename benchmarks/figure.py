"""One figure: what was measured, beside what, and what it is to reach."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from .measure import median

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .measure import Cost

Kind = Literal["times the CPU", "times faster", "share of the CPU", "MiB", "ms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``value`` is to be at most ``limit``; for ``times faster`` at least.

    ``ours`` and ``theirs`` are medians of processor seconds, ``low`` and ``high`` the range of ``value`` over
    the pairs, ``wall`` the ratio of wall times as for ``value``.
    """

    what: str
    peer: str
    kind: Kind
    value: float
    limit: float
    low: float
    high: float
    runs: int
    ours: float | None = None
    theirs: float | None = None
    wall: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it is reached."""
        return self.value >= self.limit if self.kind == "times faster" else self.value <= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def compared(
    what: str, peer: str, kind: Kind, limit: float, ours: Sequence[Cost], theirs: Sequence[Cost]
) -> Figure:
    """Return the figure of pairs: the median of each pair's ratio."""
    faster = kind == "times faster"

    def ratio(a: float, b: float) -> float:
        return b / a if faster else a / b

    ratios = [ratio(a.cpu, b.cpu) for a, b in zip(ours, theirs, strict=True)]
    return Figure(
        what=what,
        peer=peer,
        kind=kind,
        value=median(ratios),
        limit=limit,
        low=min(ratios),
        high=max(ratios),
        runs=len(ratios),
        ours=median([cost.cpu for cost in ours]),
        theirs=median([cost.cpu for cost in theirs]),
        wall=median([ratio(a.wall, b.wall) for a, b in zip(ours, theirs, strict=True)]),
    )
