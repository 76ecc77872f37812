"""``envbundle capture``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import defaults
from .output import human_bytes

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle capture /root/venv_sglang -o sglang --arch sm_103 --env-file sglang_env.sh"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("venv", metavar="VENV", help="a virtual environment; it is never written to")
    parser.add_argument(
        "-o", "--out", default=None, metavar="DIR", help="a new folder (default: ./NAME.capture)"
    )
    parser.add_argument(
        "--find-links", action="append", default=[], metavar="D", help="a folder of wheels (repeatable)"
    )
    parser.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="URL",
        help="an index asked before the default one (repeatable)",
    )
    parser.add_argument("--default-index", default=None, metavar="URL", help="stands in for the public index")
    parser.add_argument("--offline", action="store_true", help="reach no network; cache and find-links only")
    parser.add_argument(
        "--as-is",
        action="store_true",
        help="compare with no published wheel: take every byte from the disk",
    )
    parser.add_argument(
        "--arch", action="append", default=[], metavar="A", help="a GPU arch to make a target of (repeatable)"
    )
    parser.add_argument(
        "--env-file",
        action="append",
        default=[],
        metavar="F",
        help="a shell file whose exports become [environment]; it is read, not run (repeatable)",
    )
    parser.add_argument(
        "--path",
        action="append",
        default=[],
        metavar="P",
        help="a file or folder that the target must have too, such as a model (repeatable)",
    )
    parser.add_argument(
        "--pid",
        type=int,
        default=None,
        metavar="N",
        help="a running server: its variables, models, libraries",
    )
    parser.add_argument(
        "--check",
        action="append",
        default=[],
        metavar="MODULE",
        help="import MODULE here, record how that went, and demand it of the target (repeatable)",
    )


def execute(args: argparse.Namespace, out: Output) -> int:
    """Capture and say what is custom."""
    from envbundle.api.capture import capture

    venv = Path(args.venv)
    folder = Path(args.out) if args.out else Path(f"{venv.absolute().name}.capture")
    answer = capture(
        venv,
        out=folder,
        cache=defaults.cache_folder(),
        find_links=args.find_links,
        indexes=args.index,
        default_index=args.default_index,
        offline=args.offline,
        as_is=args.as_is,
        archs=args.arch,
        env_files=args.env_file,
        paths=args.path,
        pid=args.pid,
        checks=args.check,
        reporter=out.reporter(),
    )
    out.findings(answer.findings)
    sizes = answer.value["sizes"]
    out.line(
        f"{len(answer.value['distributions'])} distributions, {human_bytes(sizes['files'])}; "
        f"carried beside published wheels: {human_bytes(sizes['overlays'])} in overlays, "
        f"{human_bytes(sizes['wheels'])} in wheels"
    )
    for line in answer.summary or ("nothing is custom: every file is a published wheel's",):
        out.line(f"  {line}")
    out.line(f"{folder}/envbundle.toml and {folder}/report.md written")
    out.answer(answer.to_dict(), answer.findings)
    return 0
