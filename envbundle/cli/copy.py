"""``envbundle copy``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from envbundle.errors import UserInputError

from .options import add_target, add_trust, signers_file
from .output import human_bytes, show_bootstrap

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle copy dist /media/stick/store --arch sm_103"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", metavar="SRC", help="a store: a folder, file.tar, or - for standard input")
    parser.add_argument(
        "destination",
        metavar="DST",
        help="a store, made where none is: a folder, file.tar, or - for standard output",
    )
    add_target(parser)
    parser.add_argument("--check", action="store_true", help="hash again what the destination already holds")
    parser.add_argument("--dry-run", action="store_true", help="say what would go; send nothing")
    add_trust(parser)


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
    answer = copy(
        args.source,
        args.destination,
        target=args.target,
        check=args.check,
        dry_run=args.dry_run,
        pipes=Pipes(source=sys.stdin.buffer, destination=sys.stdout.buffer),
        trust=TrustChoice(
            allowed_signers=signers_file(args.allowed_signers),
            signers=tuple(args.signer),
            revoked=args.revoked,
            bundle_id=args.id,
            allow_unsigned=args.allow_unsigned,
        ),
        reporter=out.reporter(),
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
