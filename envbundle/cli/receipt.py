"""``envbundle receipt``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle receipt /opt/env > r.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("prefix", metavar="PREFIX", help="the prefix of an installed environment")


def execute(args: argparse.Namespace, out: Output) -> int:
    """Print the receipt as JSON, in either mode: it is a document."""
    from envbundle.api.generations import receipt

    value = receipt(Path(args.prefix)).to_dict()
    if out.json_mode:
        out.answer(value)
    else:
        out.line(json.dumps(value, indent=1, ensure_ascii=False))
    return 0
