"""The virtual environment around the files: what ``python -m venv`` would make, without ensurepip.

* ``bin/python`` is a link to the real interpreter, not to a link that may move; ``pyvenv.cfg`` names its
  folder (the format is that of Python's ``site`` module).
* Everything here is written by envbundle, private to the generation, and its source in the receipt is None.
"""

# ruff: noqa: PTH120 - paths here are text
from __future__ import annotations

import os.path
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.spec.digest import Digest
from envbundle.spec.receipt import InstalledFile

from . import activate, pin
from .layout import PIN_FIRST, PIN_LAST, PIN_MODULE, own_folders, site_packages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from envbundle.host.probe import Interpreter
    from envbundle.host.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """What the environment's own files say.

    ``prefix`` is the absolute path of the prefix as people know it; ``title`` is shown in prompts.
    """

    interpreter: Interpreter
    prefix: str
    title: str
    environment: Mapping[str, str]
    pin_processes: bool = True

    def links(self) -> dict[str, str]:
        """Return the links by path."""
        python = self.interpreter.python
        return {
            "bin/python": self.interpreter.path,
            "bin/python3": "python",
            f"bin/python{python}": "python",
            "lib64": "lib",
        }

    def texts(self) -> dict[str, str]:
        """Return the files by path."""
        site = site_packages(self.interpreter.python)
        found = {"pyvenv.cfg": self._config()}
        found |= activate.scripts(self.prefix, self.title, self.environment)
        if self.pin_processes:
            found |= {
                f"{site}/{PIN_MODULE}": pin.MODULE,
                f"{site}/{PIN_FIRST}": pin.FIRST,
                f"{site}/{PIN_LAST}": pin.LAST,
            }
        return found

    def _config(self) -> str:
        path = self.interpreter.path
        rows = {
            "home": os.path.dirname(path),
            "include-system-site-packages": "false",
            "version": self.interpreter.version,
            "executable": path,
        }
        return "".join(f"{key} = {value}\n" for key, value in rows.items())

    def write(self, tree: Tree) -> Iterator[InstalledFile]:
        """Write links and files into ``tree`` and yield what they are."""
        for folder in own_folders(self.interpreter.python):
            tree.folder(folder)
        for path, link in self.links().items():
            tree.symlink(path, link)
            yield InstalledFile(path=path, type="symlink", link=link, fixer="venv")
        for path, text in self.texts().items():
            yield write_own(tree, path, text.encode(), fixer="venv")


def write_own(tree: Tree, path: str, data: bytes, *, fixer: str, mode: int = 0o644) -> InstalledFile:
    """Write a file that envbundle makes itself and return what it is."""
    written = tree.write(path, data, mode)
    return InstalledFile(
        path=path,
        mode=mode,
        size=written.size,
        sha256=Digest(written.sha256),
        fixer=fixer,
        mtime_ns=written.mtime_ns,
        inode=written.inode,
    )
