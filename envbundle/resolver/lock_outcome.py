"""What locking takes from outside the manifest, how it ends, and how the file is written."""

from __future__ import annotations

import filecmp
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from envbundle import __version__
from envbundle.errors import HostError, UserInputError
from envbundle.host.fetch import Fetcher, HttpFetcher
from envbundle.host.files import atomic_write, host_errors, read_bounded
from envbundle.host.folder import FileSource, Folder
from envbundle.host.run import Runner, run
from envbundle.spec.finding import Finding
from envbundle.spec.lock_text import MAX_LOCK, lock_filename, render_lock

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.spec.descriptor import Exemption
    from envbundle.spec.lock import Lock

    from .solver import Solver

Status = Literal["written", "unchanged", "stale", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockContext:
    """Everything outside the manifest that takes part.

    ``folder`` is the manifest's; ``cache`` envbundle's own cache folder (made if need be). ``previous`` is
    the present lock of the target: its versions stay where they may, unless ``upgrade`` (all) or
    ``upgrade_packages`` (these, whose overlays may also find a moved base). ``default_index`` is asked
    where the manifest names no default one. ``solver`` is None for uv, as found by ``find_uv``.
    """

    folder: Path
    cache: Path
    fetcher: Fetcher = field(default_factory=HttpFetcher)
    runner: Runner = run
    solver: Solver | None = None
    offline: bool = False
    previous: Lock | None = None
    upgrade: bool = False
    upgrade_packages: tuple[str, ...] = ()
    default_index: str | None = None
    tool: str = f"envbundle {__version__}"

    def overlay_source(self, path: str) -> FileSource:
        """Return the reader of an overlay's folder, which must be a real one below the manifest's."""
        place = self.folder / path
        if not place.resolve().is_relative_to(self.folder.resolve()):
            raise UserInputError(
                "E-OVERLAY-LINK", path, expected="a folder beside the manifest", found=str(place.resolve())
            )
        return Folder(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOutcome:
    """How locking one target ended. ``lock`` is None exactly where ``status`` is ``refused``.

    ``gaps`` are files that refuse it and that a person could accept by name; ``built`` are wheels in the
    cache that the lock names as ``built/NAME`` beside itself.
    ``status`` compares with the previous lock: ``unchanged``, or ``stale`` until ``write_lock`` wrote it.
    """

    target: str
    lock: Lock | None
    findings: tuple[Finding, ...]
    rounds: int
    status: Status
    gaps: tuple[Exemption, ...] = ()
    built: tuple[Path, ...] = ()

    @property
    def packages(self) -> int:
        """The number of locked distributions."""
        return len(self.lock.packages) if self.lock is not None else 0


def write_lock(outcome: LockOutcome, path: Path, *, check: bool = False) -> LockOutcome:
    """Write the outcome's lock to ``path`` by rename and return the outcome as it then stands.

    A refused outcome writes nothing. With ``check`` nothing is ever written and a difference is ``stale``.
    Raises ``HostError``.
    """
    if outcome.lock is None:
        return outcome
    text = render_lock(outcome.lock).encode("utf-8")
    try:
        present: bytes | None = read_bounded(path, MAX_LOCK)
    except HostError as fault:
        if fault.code not in ("E-NOT-FOUND", "E-SIZE"):
            raise
        present = None
    if not check:
        _place_built(outcome.built, path.parent / "built")
    if present == text:
        return replace(outcome, status="unchanged")
    if check:
        stale = Finding(
            code="E-LOCK-STALE",
            severity="error",
            subject=path.name,
            expected="the lock of the present manifest",
            found="no lock" if present is None else "another lock",
            hint="run `envbundle lock`",
        )
        return replace(outcome, status="stale", findings=(*outcome.findings, stale))
    atomic_write(path, text)
    return replace(outcome, status="written")


def _place_built(wheels: tuple[Path, ...], folder: Path) -> None:
    """Put built wheels beside the lock: nobody else has their bytes."""
    for wheel in wheels:
        place = folder / wheel.name
        with host_errors(place):
            if place.is_file() and filecmp.cmp(wheel, place, shallow=False):
                continue
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f".{wheel.name}.part"
            shutil.copyfile(wheel, part)
            part.replace(place)


def lock_path(folder: Path, target: str) -> Path:
    """Return where the lock of a target stands beside its manifest."""
    return folder / lock_filename(target)
