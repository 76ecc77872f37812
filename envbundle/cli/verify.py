"""``envbundle verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .options import add_target, add_trust, signers_file

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle verify /opt/env"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "place", metavar="STORE|PREFIX", help="a store's folder, or the prefix of an environment"
    )
    add_target(parser)
    parser.add_argument("--quick", action="store_true", help="sizes and times only (environments)")
    add_trust(parser)


def execute(args: argparse.Namespace, out: Output) -> int:
    """Check every byte; exit 3 where anything differs."""
    from envbundle.api.trust import TrustChoice
    from envbundle.api.verify import verify

    answer = verify(
        Path(args.place),
        target=args.target,
        quick=args.quick,
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
    for label, paths in (("modified", answer.modified), ("missing", answer.missing), ("extra", answer.extra)):
        for path in paths if out.verbose else paths[:20]:
            out.line(f"{label}: {path}")
        if len(paths) > 20 and not out.verbose:
            out.line(f"{label}: ... and {len(paths) - 20} more (-v shows all)")
    who = f" by {answer.principal}" if answer.principal else ""
    out.line(
        f"{args.place}: {answer.kind}, {'ok' if answer.ok else 'NOT OK'}, {answer.checked} files checked, "
        f"signature {answer.signature}{who}"
    )
    out.answer(answer.to_dict(), answer.findings)
    return 0 if answer.ok else 3
