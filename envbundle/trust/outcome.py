"""What judging one signature against the policy comes to: somebody vouches, or a reason why nobody does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Vouched:
    """A line accepts a signature. ``principal`` is the name asked for, or the line's own list of names."""

    principal: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a signature that fits the bytes is not trusted; the fields are those of a finding."""

    code: str
    found: str
    expected: str = ""
    hint: str = ""


# How near a refused signature came to being accepted: the nearest is what the person is told first.
_NEARNESS = (
    "E-SIG-UNTRUSTED",
    "E-SIG-UNSUPPORTED",
    "E-SIG-PRINCIPAL",
    "E-SIG-NAMESPACE",
    "E-SIG-NOT-YET",
    "E-SIG-EXPIRED",
    "E-SIG-REVOKED",
)


def nearest(refusals: tuple[Refusal, ...]) -> Refusal:
    """Return the refusal that came nearest to acceptance; the first of equals."""
    return max(refusals, key=lambda refusal: _NEARNESS.index(refusal.code))
