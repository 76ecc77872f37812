"""``lock``: exact, judged artifacts for each target, in ``pylock.<target>.toml`` beside the manifest."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from envbundle.errors import EnvbundleError, UserInputError, VerdictError
from envbundle.host.fetch import HttpFetcher
from envbundle.host.files import atomic_write, host_errors, read_bounded
from envbundle.progress import SILENT, Reporter
from envbundle.resolver.gather import Gatherer
from envbundle.resolver.lock import LockContext, LockOutcome, write_lock
from envbundle.resolver.lock import lock as lock_target
from envbundle.resolver.requirements import read_asked
from envbundle.spec.finding import Finding, findings_of
from envbundle.spec.lock_text import parse_lock
from envbundle.spec.manifest_document import manifest_digest
from envbundle.spec.manifest_edit import accept_gaps

from .settings import MAX_DOCUMENT, OpenManifest, choose_targets, open_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from envbundle.spec.lock import Lock, LockedWheel

Status = Literal["written", "unchanged", "stale", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLock:
    """What became of one target. ``error`` says why it was refused, in the class that gives the status."""

    path: str
    status: Status
    packages: int = 0
    rounds: int = 0
    findings: tuple[Finding, ...] = ()
    error: EnvbundleError | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer of one target."""
        return {
            "path": self.path,
            "status": self.status,
            "packages": self.packages,
            "rounds": self.rounds,
            "findings": [finding.to_dict() for finding in self.findings],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LockAnswer:
    """What became of each target; ``edited`` names the manifest where accepted gaps were written into it."""

    targets: dict[str, TargetLock] = field(default_factory=dict)
    edited: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer."""
        return {"targets": {name: target.to_dict() for name, target in self.targets.items()}}


def lock(
    manifest_path: Path,
    *,
    targets: Sequence[str] = (),
    cache: Path,
    check: bool = False,
    upgrade: bool = False,
    upgrade_packages: Sequence[str] = (),
    offline: bool = False,
    accept_gap: Sequence[str] = (),
    reporter: Reporter = SILENT,
) -> LockAnswer:
    """Lock the targets that ``targets`` names (all without).

    ``check`` writes nothing and calls a lock that would change ``stale``. ``accept_gap`` holds files
    (``DIST:PATH``, or a member's path) whose gaps are written into the manifest as exemptions of those of
    the chosen targets that are refused for them. Raises for what concerns all targets; what concerns one
    is in its answer, and the others are still written.
    """
    opened = open_manifest(manifest_path)
    chosen = [spec.target.name for spec in choose_targets(opened.manifest, targets)]
    how = _How(
        cache=cache,
        offline=offline,
        upgrade=upgrade,
        upgrade_packages=tuple(upgrade_packages),
        check=check,
        reporter=reporter,
    )
    outcomes = {name: how.make(opened, name) for name in chosen}
    edited: tuple[str, ...] = ()
    if accept_gap:
        if check:
            raise UserInputError("E-USAGE", "--accept-gap", found="--check, which writes nothing")
        edited, opened, outcomes = _accept(opened, outcomes, accept_gap, how)
    return LockAnswer(
        targets={name: _finish(opened, name, outcome, check=check) for name, outcome in outcomes.items()},
        edited=edited,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """Everything but the manifest and the target."""

    cache: Path
    offline: bool
    upgrade: bool
    upgrade_packages: tuple[str, ...]
    check: bool
    reporter: Reporter

    def make(self, opened: OpenManifest, target: str) -> LockOutcome | EnvbundleError:
        """Lock one target without writing; what refuses it comes back."""
        try:
            return lock_target(
                opened.manifest,
                target,
                context=LockContext(
                    folder=opened.folder,
                    cache=self.cache,
                    fetcher=HttpFetcher(offline=self.offline),
                    offline=self.offline,
                    previous=previous_lock(opened.lock_path(target)),
                    upgrade=self.upgrade,
                    upgrade_packages=self.upgrade_packages,
                ),
                reporter=self.reporter,
            )
        except EnvbundleError as error:
            return error


def _finish(
    opened: OpenManifest, target: str, outcome: LockOutcome | EnvbundleError, *, check: bool
) -> TargetLock:
    path = opened.lock_path(target)
    if isinstance(outcome, EnvbundleError):
        return TargetLock(path=str(path), status="refused", findings=findings_of(outcome), error=outcome)
    done = write_lock(outcome, path, check=check)
    return TargetLock(
        path=str(path),
        status=done.status,
        packages=done.packages,
        rounds=done.rounds,
        findings=done.findings,
        error=VerdictError.of(done.findings) if done.status == "refused" else None,
    )


def previous_lock(path: Path) -> Lock | None:
    """Return the lock at ``path``; None where there is none, or none that this version can read."""
    if not path.exists():
        return None
    try:
        return parse_lock(read_bounded(path, MAX_DOCUMENT).decode("utf-8"), filename=str(path))
    except (EnvbundleError, UnicodeDecodeError):
        return None


def _accept(
    opened: OpenManifest,
    outcomes: dict[str, LockOutcome | EnvbundleError],
    wanted: Sequence[str],
    how: _How,
) -> tuple[tuple[str, ...], OpenManifest, dict[str, LockOutcome | EnvbundleError]]:
    """Write the named gaps into the manifest and lock those targets again."""
    text, used, again = opened.text, set[str](), []
    for name, outcome in outcomes.items():
        gaps = outcome.gaps if isinstance(outcome, LockOutcome) else ()
        chosen = []
        for gap in gaps:
            names = [word for word in wanted if word in (f"{gap.distribution}:{gap.path}", gap.path)]
            if names:
                used.update(names)
                chosen.append((gap.distribution, gap.path))
        if chosen:
            text = accept_gaps(text, name, chosen, filename=str(opened.path))
            again.append(name)
    unused = [word for word in wanted if word not in used]
    if unused and not all(_exempt_already(outcomes, word) for word in unused):
        there = sorted(
            f"{gap.distribution}:{gap.path}"
            for outcome in outcomes.values()
            if isinstance(outcome, LockOutcome)
            for gap in outcome.gaps
        )
        raise UserInputError(
            "E-GAP-UNKNOWN",
            unused[0],
            expected="a file that a target is refused for: " + (", ".join(there) or "there is none"),
            found="no such gap",
        )
    if text == opened.text:
        return (), opened, outcomes
    atomic_write(opened.path, text.encode("utf-8"))
    opened = replace(open_manifest(opened.path))
    return (
        (str(opened.path),),
        opened,
        {name: how.make(opened, name) if name in again else outcome for name, outcome in outcomes.items()},
    )


def _exempt_already(outcomes: dict[str, LockOutcome | EnvbundleError], word: str) -> bool:
    for outcome in outcomes.values():
        if isinstance(outcome, LockOutcome) and outcome.lock is not None:
            for item in outcome.lock.exemptions:
                if word in (item.path, f"{item.distribution}:{item.path}"):
                    return True
    return False


def lock_is_fresh(opened: OpenManifest, lock: Lock, path: Path) -> None:
    """Raise ``VerdictError`` (E-LOCK-STALE) if ``lock`` was made from another state of the manifest."""
    name = lock.target.name
    spec = opened.manifest.spec(name)
    asked = read_asked(opened.manifest.resolve_for(name), opened.folder, spec.target)
    now = manifest_digest(opened.manifest, name, asked.files)
    if now != lock.manifest:
        raise VerdictError(
            "E-LOCK-STALE",
            str(path),
            expected=f"a lock of the manifest as it is ({now})",
            found=f"one of another state ({lock.manifest})",
            hint=f"run `envbundle lock --arch {name}`",
        )


def wheel_opener(
    opened: OpenManifest, *, cache: Path, offline: bool, reporter: Reporter = SILENT
) -> Callable[[LockedWheel], AbstractContextManager[BinaryIO]]:
    """Return what opens a locked wheel's bytes: cache, its path, find-links folders, its URL."""
    folders = tuple(
        opened.folder / place
        for spec in (opened.manifest.resolve, *(target.resolve for target in opened.manifest.targets))
        for place in spec.find_links
        if "://" not in place
    )
    gatherer = Gatherer(
        cache=cache, fetcher=HttpFetcher(offline=offline), folders=folders, offline=offline, reporter=reporter
    )

    @contextlib.contextmanager
    def open_wheel(wheel: LockedWheel) -> Iterator[BinaryIO]:
        artifact = gatherer.gather_locked(wheel, opened.folder)
        with host_errors(artifact.path), artifact.path.open("rb") as stream:
            yield stream

    return open_wheel
