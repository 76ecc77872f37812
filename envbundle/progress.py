"""How the library tells that long work goes on: hooks that do nothing unless somebody listens.

The library never prints. ``envbundle.cli`` passes a reporter that draws; scripts may pass their own.
"""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Hooks around a unit of long work. Sizes are bytes unless ``unit`` says otherwise."""

    def start(self, task: str, *, total: int | None = None, unit: str = "bytes") -> None:
        """``task`` (a short verb phrase) begins; ``total`` is None where it is not known."""

    def advance(self, task: str, amount: int = 1) -> None:
        """``amount`` more units of ``task`` are done."""

    def finish(self, task: str) -> None:
        """``task`` is complete."""

    def note(self, text: str) -> None:
        """One line that a person watching would want to see."""


class Silent:
    """The reporter that says nothing."""

    def start(self, task: str, *, total: int | None = None, unit: str = "bytes") -> None:
        """Do nothing."""

    def advance(self, task: str, amount: int = 1) -> None:
        """Do nothing."""

    def finish(self, task: str) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


SILENT: Reporter = Silent()
