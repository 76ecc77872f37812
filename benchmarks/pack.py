"""``pack`` of sgl-kernel 0.3.21 (1.66 GB unpacked), signed: for the first time, and again.

The first pack is held against ``unzip -p | zstd -1`` plus one sha256 pass over the unpacked bytes, the second
against the first.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .figure import Figure, compared
from .measure import Cost, command, in_turn, shell
from .place import KERNELS

if TYPE_CHECKING:
    from pathlib import Path

    from .place import Place

PAIRS = 5


def run(place: Place) -> list[Figure]:
    """Measure first and second packs in turn with the peer."""
    wheel = place.wheel(KERNELS)
    project = place.project("kernels", ["sgl-kernel==0.3.21"], [place.wheels])
    plain, packed = place.work / "plain", place.work / "plain.zst"
    shell(f"unzip -p '{wheel}' > '{plain}'")
    first, second, peer = in_turn(
        PAIRS,
        partial(first_pack, place, project),
        partial(pack, place, project),
        lambda: (
            shell(f"unzip -p '{wheel}' | zstd -1 -q -f -o '{packed}'")
            + shell(f"openssl dgst -sha256 '{plain}'")
        ),
    )
    place.remove("plain", "plain.zst")
    return [
        compared(
            "first `pack` of sgl-kernel 0.3.21",
            "`unzip -p \\| zstd -1`, and `openssl dgst -sha256`",
            "times the CPU",
            1.2,
            first,
            peer,
        ),
        compared("second `pack` of the same lock", "the first", "share of the CPU", 0.05, second, first),
    ]


def first_pack(place: Place, project: Path) -> Cost:
    """Pack into a new store with nothing remembered."""
    place.remove("store", "cache/layers")
    return pack(place, project)


def pack(place: Place, project: Path) -> Cost:
    """Pack into the store that is there."""
    words = [*place.envbundle, "pack", "--key", str(place.key[0]), "-o", str(place.work / "store")]
    return command(words, cwd=project, env=place.env)
