"""The transport of folders: a location's path is a path of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.store.layout import DirectoryStore

if TYPE_CHECKING:
    from envbundle.store.protocol import Store

    from .options import TransferOptions


def open_directory(path: str, create: bool, _options: TransferOptions) -> Store:
    """Return the store in the folder ``path`` (``~`` is the home folder); raises ``HostError``."""
    return DirectoryStore(Path(path).expanduser(), create=create)
