"""``envbundle pack``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import defaults
from .main import status_of
from .options import add_manifest, add_targets
from .output import human_bytes, show_bootstrap
from .passphrase import ask

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle pack --arch sm_103 --arch sm_90 -o dist --key ~/.ssh/id_ed25519"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_manifest(parser)
    add_targets(parser)
    parser.add_argument(
        "-o", "--output", default=str(defaults.STORE), metavar="STORE", help="the store (default: ./dist)"
    )
    signing = parser.add_mutually_exclusive_group()
    signing.add_argument(
        "--key",
        default=None,
        metavar="K",
        help="ssh private key, or agent:KEY.pub (default: ~/.ssh/id_ed25519)",
    )
    signing.add_argument(
        "--unsigned", action="store_true", help="sign nothing; installs then need --allow-unsigned"
    )
    parser.add_argument("--level", type=int, default=1, metavar="N", help="zstd level (default: 1)")
    parser.add_argument("--offline", action="store_true", help="reach no network; cache and find-links only")
    parser.add_argument(
        "--no-bootstrap", action="store_true", help="put no install.pyz for bare hosts beside the bundles"
    )


def execute(args: argparse.Namespace, out: Output) -> int:
    """Pack the chosen targets into one store."""
    from envbundle.api.pack import pack

    key = None if args.unsigned else (args.key or str(defaults.signing_key()))
    answer = pack(
        Path(args.manifest),
        targets=args.targets,
        store=Path(args.output),
        key=key,
        passphrase=ask,
        level=args.level,
        offline=args.offline,
        bootstrap=not args.no_bootstrap,
        cache=defaults.cache_folder(),
        agent=defaults.agent_socket(),
        reporter=out.reporter(),
    )
    status = 0
    for name, bundle in answer.bundles.items():
        out.findings(bundle.findings)
        if bundle.error is not None:
            status = max(status, status_of(bundle.error))
            out.line(f"{name}: refused")
            continue
        out.line(
            f"{name}: {bundle.tag}\n"
            f"  id          {bundle.id}\n"
            f"  content id  {bundle.content_id}\n"
            f"  layers      {bundle.layers}, {bundle.layers_reused} of them packed before\n"
            f"  chunks      {bundle.chunks}, {human_bytes(bundle.plain_bytes)} as "
            f"{human_bytes(bundle.stored_bytes)}, {human_bytes(bundle.new_bytes)} new in {args.output}\n"
            f"  signed by   {bundle.signed_by or 'nobody'}"
        )
    out.findings(answer.bootstrap.findings)
    show_bootstrap(answer.bootstrap, out)
    found = [f for bundle in answer.bundles.values() for f in bundle.findings]
    out.answer(answer.to_dict(), [*found, *answer.bootstrap.findings])
    return status
