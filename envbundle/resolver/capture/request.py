"""What capture is asked, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.host.run import Runner, run

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.host.fetch import Fetcher
    from envbundle.spec.manifest import IndexSource, Manifest

    from .report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked.

    ``out`` is the folder to write, ``cache`` envbundle's own. ``find_links`` are folders or URLs; ``indexes``
    are asked before ``default_index`` (None: the one that uv asks). ``as_is`` compares with nothing.
    ``archs`` become targets; ``env_files``, ``paths`` and ``pid`` describe the surroundings; ``checks`` are
    modules to be imported.
    """

    venv: Path
    out: Path
    cache: Path
    fetcher: Fetcher
    runner: Runner = run
    find_links: tuple[str, ...] = ()
    indexes: tuple[IndexSource, ...] = ()
    default_index: str | None = None
    offline: bool = False
    as_is: bool = False
    archs: tuple[str, ...] = ()
    env_files: tuple[Path, ...] = ()
    paths: tuple[str, ...] = ()
    pid: int | None = None
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was written, and the report of it."""

    manifest: Manifest
    report: Report
