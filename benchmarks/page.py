"""docs/benchmarks.md, out of what was measured."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .figure import Figure
    from .place import Place

INTRODUCTION = """\
# Benchmarks

Written by `make benchmarks`. CPU is user and system time of the whole process tree. Pairs are run in turn
(A B A B) in one run, files in the page cache; the figure is the median of the pairs' ratios, its range in
brackets. Absolute seconds are of the machine below and of what else it did; ratios travel better.
"""
COSTS = """\
## Time

| what | peer | pairs | CPU s | peer's CPU s | figure (range) | to reach | holds | by wall time |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
MEMORY = """\
## Memory

RssAnon summed over the process tree, sampled every 20 ms, the highest sample; uv apart, which solves versions
in a process of its own. One environment of three wheels: sgl-kernel 0.3.21 (1.66 GB in few files),
flashinfer-cubin 0.6.13 (1.9 GB in 16,000 files), and 461 MiB of noise that nothing compresses.

| verb | CPU s | MiB | to reach | holds |
| --- | --- | --- | --- | --- |
"""


def page(figures: Sequence[Figure], machine: Sequence[str]) -> str:
    """Return the page."""
    costs = [figure for figure in figures if figure.kind != "MiB"]
    memory = [figure for figure in figures if figure.kind == "MiB"]
    text = INTRODUCTION + "\n" + "".join(f"- {line}\n" for line in machine) + "\n"
    text += COSTS + "".join(map(_cost, costs))
    if memory:
        text += "\n" + MEMORY + "".join(map(_memory, memory))
    return text


def _cost(figure: Figure) -> str:
    scale = 100 if figure.kind == "share of the CPU" else 1
    unit = {"share of the CPU": " %", "ms": " ms"}.get(figure.kind, "x")
    digits = 2 if figure.kind == "times the CPU" else 1 if scale == 100 else 0

    def show(value: float) -> str:
        return f"{value * scale:.{digits}f}"

    faster = " faster" if figure.kind == "times faster" else ""
    cells = [
        figure.what,
        figure.peer,
        str(figure.runs),
        _seconds(figure.ours),
        _seconds(figure.theirs),
        f"**{show(figure.value)}{unit}**{faster} ({show(figure.low)}-{show(figure.high)})",
        f"{figure.limit * scale:g}{unit}{faster}",
        "yes" if figure.holds else "**no**",
        "-" if figure.wall is None else f"{show(figure.wall)}{unit}",
    ]
    return "| " + " | ".join(cells) + " |\n"


def _memory(figure: Figure) -> str:
    holds = "yes" if figure.holds else "**no**"
    cells = [figure.what, _seconds(figure.ours), f"{figure.value:.0f}", f"{figure.limit:g}", holds]
    return "| " + " | ".join(cells) + " |\n"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 1 else f"{value:.1f}"


def describe_machine(place: Place, load: float) -> list[str]:
    """Return what the figures were measured with: processor, system, programs."""
    info = _fields(Path("/proc/cpuinfo"))
    memory = _fields(Path("/proc/meminfo"))
    cores = len(
        [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("processor")]
    )
    sha = "with" if "sha_ni" in info.get("flags", "") else "without"
    total = int(memory["MemTotal"].split()[0]) / (1 << 20)
    programs = {
        "unzip": ["unzip", "-v"],
        "zstd": ["zstd", "--version"],
        "openssl": ["openssl", "version"],
        "uv": [place.uv, "--version"],
        "cuobjdump": [place.cuobjdump, "--version"],
    }
    versions = [f"{name} {_version(words)}" for name, words in programs.items()]
    processor = f"{info.get('model name', platform.machine())} (family {info.get('cpu family', '?')}"
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}, {_filesystem(place.work)}"
    return [
        f"{cores} cores, {processor}, model {info.get('model', '?')}), {sha} sha_ni, {total:.0f} GiB memory",
        f"{system}; load {load:.1f} when the run began, not all of it ours",
        f"Python {platform.python_version()}; {', '.join(versions)}",
    ]


def _fields(path: Path) -> Mapping[str, str]:
    rows = (line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    fields: dict[str, str] = {}
    for name, value in rows:
        fields.setdefault(name.strip(), value.strip())
    return fields


def _version(words: Sequence[str]) -> str:
    if shutil.which(words[0]) is None:
        return "-"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(r"(?:V|v|\b)([0-9]+\.[0-9]+(?:\.[0-9]+)*)", done.stdout + done.stderr)
    return found[1] if found else "?"


def _filesystem(folder: Path) -> str:
    words = ["df", "--output=fstype", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return (done.stdout.split() or ["an unknown file system"])[-1]
