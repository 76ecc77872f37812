"""``install`` of the bundle of sgl-kernel 0.3.21, signature and every byte verified, without byte-compiling.

The peer is ``uv pip install --offline`` of the wheel with a cold cache into a virtual environment that is
there: it verifies neither the wheel nor its files.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from .figure import Figure, compared
from .measure import Cost, command, in_turn
from .pack import first_pack
from .place import KERNELS

if TYPE_CHECKING:
    from pathlib import Path

    from .place import Place

PAIRS = 9


def run(place: Place) -> list[Figure]:
    """Measure both in turn, each into new folders."""
    wheel = place.wheel(KERNELS)
    project = place.project("kernels", ["sgl-kernel==0.3.21"], [place.wheels])
    first_pack(place, project)
    ours, theirs = in_turn(PAIRS, partial(install, place), partial(uv, place, wheel))
    place.remove("prefix", "prefix.generations", "venv", "uv-cache")
    return [
        compared(
            "verified `install --no-compile` of sgl-kernel 0.3.21",
            "`uv pip install --offline`, cold cache",
            "times the CPU",
            1.0,
            ours,
            theirs,
        )
    ]


def install(place: Place) -> Cost:
    """Install under a new prefix."""
    place.remove("prefix", "prefix.generations")
    words = [*place.envbundle, "install", str(place.work / "store"), "--prefix", str(place.work / "prefix")]
    words += ["--allowed-signers", str(place.key[1]), "--no-compile", "--no-device"]
    return command(words, env=place.env)


def uv(place: Place, wheel: Path) -> Cost:
    """Install with uv into a new virtual environment."""
    place.remove("venv", "uv-cache")
    venv = place.work / "venv"
    command([place.uv, "venv", "--quiet", "--offline", "--no-config", "--python", sys.executable, str(venv)])
    words = [place.uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--no-config"]
    words += [
        "--cache-dir",
        str(place.work / "uv-cache"),
        "--python",
        str(venv / "bin" / "python"),
        str(wheel),
    ]
    return command(words)
