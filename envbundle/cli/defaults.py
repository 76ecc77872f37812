"""Where things are when nobody says: read from the environment here and nowhere deeper."""

from __future__ import annotations

import os
import sys
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


def own_archive() -> Path | None:
    """The file that this program runs out of (``install.pyz``), None where it is installed as a package."""
    found = getattr(getattr(sys.modules.get("__main__"), "__loader__", None), "archive", None)
    return Path(found).absolute() if isinstance(found, str) else None


def store_around() -> Path | None:
    """The store that ``install.pyz`` stands in, while it runs out of one."""
    archive = own_archive()
    if archive is None or not (archive.parent / "oci-layout").is_file():
        return None
    return archive.parent
