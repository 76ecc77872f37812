"""``envbundle init``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle init my-env"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "folder", nargs="?", default=".", metavar="DIR", help="where envbundle.toml goes (default: here)"
    )


def execute(args: argparse.Namespace, out: Output) -> int:
    """Write a commented manifest; never over one that is there."""
    from envbundle.api.init import init

    path = init(Path(args.folder), python=f"{sys.version_info.major}.{sys.version_info.minor}")
    out.line(f"wrote {path}: edit it, then run `envbundle lock`")
    out.answer({"path": str(path)})
    return 0
