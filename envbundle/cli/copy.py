"""``envbundle copy``."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from envbundle.errors import UserInputError

from .options import add_target, add_trust, signers_file
from .output import human_bytes, show_bootstrap

if TYPE_CHECKING:
    from envbundle.api.copy import CopyOptions

    from .output import Output

EXAMPLE = "envbundle copy dist /media/stick/store --arch sm_103"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "source", metavar="SRC", help="a store: a folder, file.tar, ssh://host/path, or - for standard input"
    )
    parser.add_argument(
        "destination",
        metavar="DST",
        help="a store, made where none is: a folder, file.tar, ssh://host/path, or -",
    )
    add_target(parser)
    parser.add_argument("--check", action="store_true", help="hash again what the destination already holds")
    parser.add_argument("--dry-run", action="store_true", help="say what would go; send nothing")
    parser.add_argument(
        "--streams", type=int, default=2, metavar="N", help="blobs under way at once (default: 2)"
    )
    parser.add_argument(
        "--limit-rate", type=rate_of, default=None, metavar="R", help="bytes a second: 500k, 20M, 1G"
    )
    add_trust(parser)


def rate_of(text: str) -> float:
    """Return the bytes a second that ``text`` says: a number, then k, M or G (of 1000)."""
    scale = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}.get(text[-1:], 1.0)
    try:
        rate = float(text[:-1] if scale > 1 else text) * scale
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e15:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate: write 500k, 20M or 1G")
    return rate


def transfer_options(args: argparse.Namespace, out: Output) -> CopyOptions:
    """Return what the arguments and the environment say about how bytes travel."""
    from envbundle.api.copy import transfer_options as make

    return make(
        ssh=os.environ.get("ENVBUNDLE_SSH"),
        streams=min(max(1, args.streams), 64),
        rate=args.limit_rate,
        reporter=out.reporter(),
    )


def execute(args: argparse.Namespace, out: Output) -> int:
    """Copy bundles; run again after a cut, and it goes on."""
    from envbundle.api.copy import Pipes, copy
    from envbundle.api.trust import TrustChoice

    piped = args.destination == "-"
    if piped and (args.json or sys.stdout.isatty()):
        raise UserInputError(
            "E-USAGE",
            "copy SRC -",
            expected="standard output led into a file or program, without --json",
            found="--json" if args.json else "a terminal",
        )
    pipes = None
    if piped or args.source == "-":
        pipes = Pipes(source=sys.stdin.buffer, destination=sys.stdout.buffer)
    answer = copy(
        args.source,
        args.destination,
        target=args.target,
        check=args.check,
        dry_run=args.dry_run,
        options=transfer_options(args, out),
        pipes=pipes,
        trust=TrustChoice(
            allowed_signers=signers_file(args.allowed_signers),
            signers=tuple(args.signer),
            revoked=args.revoked,
            bundle_id=args.id,
            allow_unsigned=args.allow_unsigned,
        ),
    )
    out.findings(answer.findings)
    verb = "would send" if args.dry_run else "sent"
    say = out.say if piped else out.line
    say(
        f"{', '.join(answer.tags)}: {verb} {answer.sent_blobs} blobs ({human_bytes(answer.sent_bytes)}), "
        f"{answer.skipped_blobs} ({human_bytes(answer.skipped_bytes)}) were there"
    )
    show_bootstrap(answer.bootstrap, out)
    out.answer(answer.to_dict(), answer.findings)
    return 0
