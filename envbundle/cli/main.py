"""The program's entry: choose a command, run it, turn errors into exit statuses. Only here.

Exit statuses: 0 done; 1 refused by a verdict; 2 usage or manifest; 3 trust or integrity; 4 host, network or
disk; 130 interrupted. Only the chosen command's module is imported, so that ``--help`` stays quick.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from envbundle import __version__
from envbundle.errors import (
    EnvbundleError,
    HostError,
    IntegrityError,
    TransferError,
    TrustError,
    UserInputError,
    VerdictError,
)

from .table import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envbundle.spec.finding import Finding

    from .output import Output

STATUSES: tuple[tuple[type[EnvbundleError], int], ...] = (
    (UserInputError, 2),
    (VerdictError, 1),
    (TrustError, 3),
    (IntegrityError, 3),
    (TransferError, 4),
    (HostError, 4),
)
INTERRUPTED = 130


def status_of(error: EnvbundleError) -> int:
    """Return the exit status that an error means."""
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 4)


class _Parser(argparse.ArgumentParser):
    """argparse, whose usage errors leave through the same door as all others."""

    def error(self, message: str) -> NoReturn:
        raise UserInputError("E-USAGE", self.prog, found=message, hint=f"see `{self.prog} --help`")


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="envbundle",
        description="Move a working Python GPU environment to another machine, and prove it on both sides.",
        epilog="`envbundle COMMAND --help` shows a command's options and an example.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"envbundle {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", required=True, parser_class=_Parser
    )
    for name, (module_name, summary) in COMMANDS.items():
        if name != chosen:
            commands.add_parser(name, help=summary, add_help=False)
            continue
        module = importlib.import_module(f"envbundle.cli.{module_name}")
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.configure(sub)
        common = sub.add_argument_group("common options")
        common.add_argument("--json", action="store_true", help="print one JSON object on standard output")
        common.add_argument("-q", "--quiet", action="store_true", help="no warnings, notes and progress")
        common.add_argument("-v", "--verbose", action="store_true", help="say more")
        sub.set_defaults(execute=module.execute)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status; ``argv`` is without the program's name."""
    from .output import Output, abandon, to_stderr

    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    out = Output(json_mode="--json" in words, quiet="-q" in words or "--quiet" in words)
    try:
        _attempt(words, chosen, out)
        out.flush()
    except OSError as fault:
        # What was to be said did not arrive: never 0, and nothing more for the interpreter to flush.
        abandon(sys.stdout)
        if not isinstance(fault, BrokenPipeError):
            to_stderr(f"standard output: {fault.strerror}")
        return out.status or 4
    return out.status


def _attempt(words: Sequence[str], chosen: str | None, out: Output) -> None:
    """Run the command and set ``out.status``; raises ``OSError`` only where its words cannot be written."""
    try:
        args = _parser(chosen).parse_args(words)
        out.verbose = bool(args.verbose)
        out.status = args.execute(args, out)
    except EnvbundleError as error:
        out.status = status_of(error)
        out.failure(error)
    except KeyboardInterrupt:
        out.status = INTERRUPTED
        if not out.json_mode:
            out.say("interrupted; nothing half done was left under a final name")
        out.answer({}, [_interrupted()])
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as fault:
        out.status = 4
        out.failure(
            HostError("E-IO", str(fault.filename or "this machine"), found=fault.strerror or str(fault))
        )
    except SystemExit as end:  # argparse after --help and --version
        out.status = end.code if isinstance(end.code, int) else 0


def _interrupted() -> Finding:
    from envbundle.spec.finding import Finding

    return Finding(
        code="E-INTERRUPTED",
        severity="error",
        subject="envbundle",
        found="an interrupt",
        hint="run the same command again: it goes on",
    )


def _terminated(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def entry() -> NoReturn:
    """The console script; a request to terminate ends it as an interrupt does, with everything cleaned up."""
    signal.signal(signal.SIGTERM, _terminated)
    _fill_streams()
    sys.exit(main())


def _fill_streams() -> None:
    """Open what the caller closed of streams 0 to 2, so that no file of ours gets such a number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
