"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import defaults

if TYPE_CHECKING:
    import argparse


def add_manifest(parser: argparse.ArgumentParser) -> None:
    """``--manifest``."""
    parser.add_argument(
        "--manifest",
        default=str(defaults.MANIFEST),
        metavar="F",
        help="the manifest (default: ./envbundle.toml)",
    )


def add_targets(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """``--arch``/``--target``, repeatable."""
    parser.add_argument(
        "--arch",
        "--target",
        dest="targets",
        action="append",
        default=[],
        required=required,
        metavar="T",
        help="a target's name, or a GPU arch that one target has (repeatable; default: all)",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """``--arch``/``--target``, one."""
    parser.add_argument(
        "--arch",
        "--target",
        dest="target",
        default=None,
        metavar="T",
        help="which bundle: a target's name, tag or GPU",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The options that say whom to trust."""
    parser.add_argument(
        "--allowed-signers",
        default=None,
        metavar="F",
        help="OpenSSH allowed_signers file (default: $ENVBUNDLE_ALLOWED_SIGNERS, else the user's own)",
    )
    parser.add_argument(
        "--signer", action="append", default=[], metavar="P", help="accept this principal only (repeatable)"
    )
    parser.add_argument(
        "--revoked", default=None, metavar="F", help="public keys or fingerprints that are no longer trusted"
    )
    parser.add_argument(
        "--id", default=None, metavar="ID", help="the bundle's id, had over a channel already trusted"
    )
    parser.add_argument("--allow-unsigned", action="store_true", help="accept a bundle without any signature")


def signers_file(given: str | None) -> Path | None:
    """Return the allowed_signers file to use, if any."""
    return Path(given) if given else defaults.allowed_signers()
