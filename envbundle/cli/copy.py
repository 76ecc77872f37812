"""``envbundle copy``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import add_target, add_trust, signers_file
from .output import human_bytes, show_bootstrap

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle copy dist /media/stick/store --arch sm_103"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", metavar="SRC", help="a store: a folder")
    parser.add_argument("destination", metavar="DST", help="a store: a folder, made where none is")
    add_target(parser)
    parser.add_argument("--check", action="store_true", help="hash again what the destination already holds")
    parser.add_argument("--dry-run", action="store_true", help="say what would go; send nothing")
    add_trust(parser)


def execute(args: argparse.Namespace, out: Output) -> int:
    """Copy bundles; run again after a cut, and it goes on."""
    from envbundle.api.copy import copy
    from envbundle.api.trust import TrustChoice

    answer = copy(
        args.source,
        args.destination,
        target=args.target,
        check=args.check,
        dry_run=args.dry_run,
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
    out.line(
        f"{', '.join(answer.tags)}: {verb} {answer.sent_blobs} blobs ({human_bytes(answer.sent_bytes)}), "
        f"{answer.skipped_blobs} ({human_bytes(answer.skipped_bytes)}) were there"
    )
    show_bootstrap(answer.bootstrap, out)
    out.answer(answer.to_dict(), answer.findings)
    return 0
