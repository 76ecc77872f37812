"""``envbundle install``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.errors import UserInputError

from . import defaults
from .options import add_target, add_trust, signers_file
from .output import human_bytes

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle install /media/stick/store --arch sm_103 --prefix /opt/env"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "source",
        metavar="SRC",
        nargs="?",
        default=None,
        help="the store that holds the bundle (default: the one that install.pyz stands in)",
    )
    add_target(parser)
    parser.add_argument(
        "--prefix",
        default=None,
        metavar="P",
        help="where the environment goes (default: the manifest's prefix)",
    )
    parser.add_argument(
        "--check", action="store_true", help="preflight only: report everything, write nothing"
    )
    parser.add_argument("--no-device", action="store_true", help="do not look for GPUs on this machine")
    parser.add_argument(
        "--reuse",
        choices=("auto", "copy"),
        default="auto",
        help="how equal files of older generations are reused",
    )
    parser.add_argument("--verify-all", action="store_true", help="hash reused files again")
    parser.add_argument("--no-compile", action="store_true", help="make no bytecode")
    parser.add_argument("--no-checks", action="store_true", help="do not run the manifest's checks")
    parser.add_argument("--run-checks", action="store_true", help="run checks of an unsigned bundle too")
    parser.add_argument(
        "--python", default=None, metavar="PATH", help="the interpreter to use on this machine"
    )
    parser.add_argument(
        "--allow-downgrade", action="store_true", help="accept a lower serial than one accepted before"
    )
    parser.add_argument(
        "--force-arch", action="store_true", help="install though this machine's GPU is another one"
    )
    add_trust(parser)


def execute(args: argparse.Namespace, out: Output) -> int:
    """Install a bundle; the prefix holds the old or the new environment at any moment."""
    from envbundle.api.install import InstallChoice, install
    from envbundle.api.trust import TrustChoice

    around = defaults.store_around()
    if args.source is None and around is None:
        raise UserInputError("E-USAGE", "envbundle install", expected="SRC", found="no store named")
    answer = install(
        Path(args.source or str(around)),
        target=args.target,
        choice=InstallChoice(
            prefix=args.prefix,
            check=args.check,
            no_device=args.no_device,
            reuse=args.reuse,
            verify_all=args.verify_all,
            compile=not args.no_compile,
            checks=not args.no_checks,
            run_checks=args.run_checks,
            python=args.python,
            allow_downgrade=args.allow_downgrade,
            force_arch=args.force_arch,
        ),
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
    if answer.status == "checked":
        out.line(f"{answer.prefix}: preflight passed, nothing was written")
    elif answer.status == "unchanged":
        out.line(
            f"{answer.prefix}: unchanged, {answer.generation} holds this content already and is verified"
        )
    else:
        out.line(
            f"{answer.prefix}: installed {answer.bundle} as {answer.generation}\n"
            f"  written   {human_bytes(answer.written_bytes)}, reused {human_bytes(answer.reused_bytes)}\n"
            f"  signature {answer.signature}\n"
            f"  receipt   {answer.receipt}"
        )
        for check in answer.checks:
            out.line(
                f"  check     {check['name']}: {'ok' if check['ok'] else 'FAILED'} in {check['seconds']} s"
            )
        for user in answer.live_users:
            out.say(f"still running from an older generation: {user}")
    out.answer(answer.to_dict(), answer.findings)
    return 0
