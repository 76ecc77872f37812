"""``envbundle explain CODE``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from envbundle.errors import UserInputError

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle explain E-ARCH-NONE"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("code", nargs="?", help="a code as findings print it; all of them without")


def execute(args: argparse.Namespace, out: Output) -> int:
    """Print what a code means and what to do next."""
    from envbundle.schemas import codes

    table = codes()
    if args.code is None:
        for code, (_, text) in sorted(table.items()):
            out.line(f"{code:22} {text}")
        out.answer(
            {
                "codes": {
                    code: {"exit": status, "text": text} for code, (status, text) in sorted(table.items())
                }
            }
        )
        return 0
    code = args.code.upper()
    if code not in table:
        near = difflib.get_close_matches(code, table, n=3)
        raise UserInputError(
            "E-USAGE",
            args.code,
            found="no such code",
            hint=f"did you mean {', '.join(near)}?" if near else "",
        )
    status, text = table[code]
    out.line(f"{code} (exit status {status})\n\n{text}")
    out.answer({"codes": {code: {"exit": status, "text": text}}})
    return 0
