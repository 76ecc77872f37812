"""``envbundle route``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .output import human_bytes

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle route ssh://ct200/srv/store ssh://b300/srv/store"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", metavar="SRC", help="a store, as copy takes it")
    parser.add_argument("destination", metavar="DST", help="a store, as copy takes it")


def execute(args: argparse.Namespace, out: Output) -> int:
    """Say what is reachable, how fast, and which way `copy` takes; exit 4 where there is none."""
    from envbundle.api.copy import transfer_options
    from envbundle.api.route import route

    options = transfer_options(
        ssh=os.environ.get("ENVBUNDLE_SSH"), streams=1, rate=None, reporter=out.reporter()
    )
    found = route(args.source, args.destination, options=options)
    for leg in found.legs:
        rate = f", {human_bytes(int(leg.rate))}/s" if leg.rate is not None else ""
        state = f"answers in {leg.seconds:.1f} s{rate}" if leg.reachable else f"no: {leg.found}"
        out.line(f"{leg.start} -> {leg.end}: {state}")
    out.line(f"copy goes by {found.via}: {found.why}" if found.via else f"no way: {found.why}")
    out.answer(found.to_dict())
    return 0 if found.via else 4
