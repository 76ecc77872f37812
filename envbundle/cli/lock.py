"""``envbundle lock``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import defaults
from .main import status_of
from .options import add_manifest, add_targets

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle lock --arch sm_103"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_manifest(parser)
    add_targets(parser)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a lock is stale")
    parser.add_argument(
        "--upgrade", action="store_true", help="forget the versions that the present lock chose"
    )
    parser.add_argument(
        "--upgrade-package",
        action="append",
        default=[],
        metavar="P",
        help="forget the version of this one (repeatable)",
    )
    parser.add_argument("--offline", action="store_true", help="reach no network; cache and find-links only")
    parser.add_argument(
        "--accept-gap",
        action="append",
        default=[],
        metavar="FILE",
        help="accept that FILE (a wheel's member, or DIST:PATH) does not serve the target, and write that "
        "into the manifest (repeatable)",
    )


def execute(args: argparse.Namespace, out: Output) -> int:
    """Lock the chosen targets; a refused one writes nothing, the others are written."""
    from envbundle.api.lock import lock

    answer = lock(
        Path(args.manifest),
        targets=args.targets,
        check=args.check,
        upgrade=args.upgrade,
        upgrade_packages=args.upgrade_package,
        offline=args.offline,
        accept_gap=args.accept_gap,
        cache=defaults.cache_folder(),
        reporter=out.reporter(),
    )
    status = 0
    for name, target in answer.targets.items():
        out.findings(target.findings)
        out.line(
            f"{name}: {target.status}"
            + (f", {target.packages} packages, {target.path}" if target.packages else "")
        )
        if target.error is not None:
            status = max(status, status_of(target.error))
        elif target.status == "stale":
            status = max(status, 1)
    for path in answer.edited:
        out.line(f"edited {path}: the accepted gaps stand there now")
    out.answer(answer.to_dict(), [f for target in answer.targets.values() for f in target.findings])
    return status
