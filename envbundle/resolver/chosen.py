"""A distribution that was looked into: what was proposed, its bytes, what they hold, what that is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contents import WheelScan
    from .gather import Artifact
    from .judge import DistributionJudgement
    from .solver import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One distribution as chosen: its wheel's URL as the index said it, its bytes, scan and judgement."""

    candidate: Candidate
    url: str
    artifact: Artifact
    scan: WheelScan
    judgement: DistributionJudgement
