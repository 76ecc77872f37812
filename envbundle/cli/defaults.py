"""Where things are when nobody says: read from the environment here and nowhere deeper."""

from __future__ import annotations

import os
from pathlib import Path

MANIFEST = Path("envbundle.toml")
STORE = Path("dist")


def cache_folder() -> Path:
    """$ENVBUNDLE_CACHE, else the user's cache folder."""
    given = os.environ.get("ENVBUNDLE_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "envbundle"


def signing_key() -> Path:
    """The user's ed25519 ssh key."""
    return Path.home() / ".ssh" / "id_ed25519"


def allowed_signers() -> Path | None:
    """$ENVBUNDLE_ALLOWED_SIGNERS, else the file in the user's configuration folder if it is there."""
    given = os.environ.get("ENVBUNDLE_ALLOWED_SIGNERS")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    path = Path(base) / "envbundle" / "allowed_signers"
    return path if path.is_file() else None


def agent_socket() -> str | None:
    """$SSH_AUTH_SOCK, if an ssh agent is there."""
    return os.environ.get("SSH_AUTH_SOCK") or None
