"""Buffers to decode chunks into, in bounded memory.

A fresh buffer of 32 MiB costs the kernel 8,192 zeroed pages; over an environment of gigabytes that is as much
processor time as the decoding. So buffers are used again, by whichever thread comes next.
"""

from __future__ import annotations

import threading


class Rooms:
    """Buffers to decode into, used again by whichever thread comes next.

    Buffers, idle ones too, and stored bytes on their way stay within ``budget`` together; a thread that
    wants more than all of it gets it when alone.
    """

    def __init__(self, budget: int) -> None:
        self._budget, self._busy = budget, 0
        self._idle: list[bytearray] = []  # small ones first
        self._change = threading.Condition()

    def take(self, plain: int, stored: int) -> bytearray:
        """Return a buffer of at least ``plain`` bytes; ``stored`` more are counted as in use."""
        with self._change:
            while True:
                fitting = [number for number, room in enumerate(self._idle) if len(room) >= plain > 0]
                room = self._idle.pop(fitting[0]) if fitting else None
                size = plain if room is None else len(room)
                while self._idle and not self._fits(size + stored):
                    self._idle.pop()
                if not self._busy or self._fits(size + stored):
                    self._busy += size + stored
                    return bytearray(size) if room is None else room
                if room is not None:
                    self._idle.append(room)
                self._change.wait()

    def _fits(self, more: int) -> bool:
        return self._busy + more + sum(map(len, self._idle)) <= self._budget

    def give(self, stored: int, room: bytearray | None = None) -> None:
        """Give back what ``take`` counted."""
        with self._change:
            self._busy -= stored
            if room:
                self._busy -= len(room)
                self._idle.append(room)
                self._idle.sort(key=len)
            self._change.notify_all()
