"""``envbundle sign``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import defaults
from .options import add_target
from .passphrase import ask

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle sign dist --key ~/.ssh/release_ed25519"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("store", metavar="STORE", help="the store that holds the bundle")
    parser.add_argument(
        "--key",
        default=None,
        metavar="K",
        help="ssh private key, or agent:KEY.pub (default: ~/.ssh/id_ed25519)",
    )
    add_target(parser)


def execute(args: argparse.Namespace, out: Output) -> int:
    """Add one signature to a bundle."""
    from envbundle.api.sign import sign

    answer = sign(
        Path(args.store),
        target=args.target,
        key=args.key or str(defaults.signing_key()),
        passphrase=ask,
        agent=defaults.agent_socket(),
    )
    out.line(
        f"{answer.tag}: signed by {answer.signed_by}, {answer.signatures} signature(s) now\n  id  {answer.id}"
    )
    out.answer(answer.to_dict())
    return 0
