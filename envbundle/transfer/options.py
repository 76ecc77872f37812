"""What a person may say about how bytes travel; transports take what concerns them."""

from __future__ import annotations

from dataclasses import dataclass

from envbundle.progress import SILENT, Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOptions:
    """``ssh`` is the program with its first arguments; ``streams`` at most run at once over one connection.

    ``rate`` limits the bytes a second that a copy sends (None: no limit). ``reporter`` hears notes.
    """

    ssh: tuple[str, ...] = ("ssh",)
    streams: int = 2
    rate: float | None = None
    reporter: Reporter = SILENT


DEFAULTS = TransferOptions()
