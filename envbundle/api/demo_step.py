"""Running one command line of the demo in a process of its own, as a person would."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from envbundle.host.run import run

if TYPE_CHECKING:
    from collections.abc import Sequence


def step(words: Sequence[str]) -> tuple[int, str]:
    """Run ``envbundle WORDS`` and return its exit status and what it printed (output, then messages)."""
    done = run([sys.executable, "-m", "envbundle", *words])
    return done.status, done.text + done.error_text
