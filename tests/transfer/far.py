"""Far ends for tests: run here as a child process, with or without a cut on the way."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from envbundle.errors import TransferError
from envbundle.host.run import ProcessPipe, open_pipe
from envbundle.transfer.channel import Channel, Diagnosis
from envbundle.transfer.far_end import BOOT
from envbundle.transfer.far_store import FarStore
from envbundle.transfer.ssh import diagnose_ssh

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WORDS = (sys.executable, "-I", "-c", BOOT)


def local_channel(words: Sequence[str] = WORDS, label: str = "far") -> Channel:
    return channel_of(open_pipe(words), label)


def channel_of(pipe: ProcessPipe, label: str = "far") -> Channel:
    def diagnose(seen: Diagnosis) -> TransferError:
        return diagnose_ssh(label, seen)

    return Channel(pipe, label, diagnose)


def local_store(path: Path | str, *, create: bool = True, streams: int = 1) -> FarStore:
    return FarStore(lambda _: local_channel(), str(path), create=create, streams=streams)
