"""``python -m benchmarks --wheels DIR [--only NAME]... [-o docs/benchmarks.md]``.

What was measured is kept in the work folder, so one figure can be measured again and the page written anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import fatbin_walk, help, inspect_wheel, install, memory, pack  # noqa: A004
from .figure import Figure
from .page import describe_machine, page
from .place import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

BENCHMARKS = {
    "fatbin_walk": fatbin_walk.run,
    "inspect_wheel": inspect_wheel.run,
    "pack": pack.run,
    "install": install.run,
    "help": help.run,
    "memory": memory.run,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks; 1 where a figure does not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--wheels", type=Path, default=Path("build/wheels"), help="a folder of the wheels")
    parser.add_argument("--work", type=Path, default=Path("build/benchmarks"), help="a folder to fill: 15 GB")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="measure this one (repeatable)")
    parser.add_argument("-o", "--output", type=Path, help="write the page")
    args = parser.parse_args(argv)
    place = Place(args.wheels, args.work.absolute())
    place.check()
    kept = place.work / "results.json"
    results = json.loads(kept.read_text()) if args.only and kept.exists() else {}
    results["machine"] = describe_machine(place, os.getloadavg()[0])
    for name in args.only or BENCHMARKS:
        figures = BENCHMARKS[name](place)
        for figure in figures:
            held = "holds" if figure.holds else "DOES NOT HOLD"
            print(
                f"{figure.what}: {figure.value:.3g} {figure.kind}, to reach {figure.limit:g}: {held}",
                flush=True,
            )
        results[name] = [figure.to_dict() for figure in figures]
        kept.write_text(json.dumps(results, indent=1))
    every = [Figure(**row) for name in BENCHMARKS for row in results.get(name, [])]
    if args.output is not None:
        args.output.write_text(page(every, results["machine"]), encoding="utf-8")
    return 0 if all(figure.holds for figure in every) else 1


if __name__ == "__main__":
    sys.exit(main())
