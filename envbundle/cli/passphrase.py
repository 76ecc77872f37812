"""Asking for a key's passphrase: on the terminal, or from $ENVBUNDLE_PASSPHRASE."""

from __future__ import annotations

import getpass
import os
import sys

from envbundle.errors import UserInputError


def ask(key: str) -> bytes:
    """Return the passphrase of ``key``; raises ``UserInputError`` where nobody can be asked."""
    given = os.environ.get("ENVBUNDLE_PASSPHRASE")
    if given is not None:
        return given.encode()
    if not sys.stdin.isatty():
        raise UserInputError(
            "E-KEY-PASSPHRASE",
            key,
            expected="a passphrase",
            found="no terminal to ask on",
            hint="use an agent (--key agent:KEY.pub) or set ENVBUNDLE_PASSPHRASE",
        )
    return getpass.getpass(f"Passphrase for {key}: ").encode()
