"""``capture``: a living environment becomes a manifest, overlays and the wheels that exist nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.errors import UserInputError
from envbundle.host.fetch import HttpFetcher
from envbundle.progress import SILENT, Reporter
from envbundle.resolver.capture.request import Request
from envbundle.resolver.capture.run import capture as capture_environment
from envbundle.spec.manifest import IndexSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envbundle.spec.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureAnswer:
    """What was captured: ``value`` is the JSON answer without findings, ``summary`` says what is custom."""

    value: dict[str, Any]
    summary: tuple[str, ...]
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer."""
        return dict(self.value)


def capture(
    venv: Path,
    *,
    out: Path,
    cache: Path,
    find_links: Sequence[str] = (),
    indexes: Sequence[str] = (),
    default_index: str | None = None,
    offline: bool = False,
    as_is: bool = False,
    archs: Sequence[str] = (),
    env_files: Sequence[str] = (),
    paths: Sequence[str] = (),
    pid: int | None = None,
    checks: Sequence[str] = (),
    reporter: Reporter = SILENT,
) -> CaptureAnswer:
    """Capture the environment at ``venv`` into the folder ``out``, which must not be there yet.

    ``cache`` is envbundle's own. ``find_links`` and ``indexes`` (URLs) are asked before ``default_index``
    (None: the one that uv asks). ``offline`` reaches no network; ``as_is`` compares with nothing. ``archs``
    become targets. ``env_files``, ``paths`` and ``pid`` (a running server) describe the surroundings;
    ``checks`` are modules that the source is asked to import. Raises what
    ``envbundle.resolver.capture.run.capture`` does.
    """
    outcome = capture_environment(
        Request(
            venv=venv,
            out=out,
            cache=cache,
            fetcher=HttpFetcher(offline=offline),
            find_links=tuple(find_links),
            indexes=tuple(_index(number, url) for number, url in enumerate(indexes, 1)),
            default_index=default_index,
            offline=offline,
            as_is=as_is,
            archs=tuple(archs),
            env_files=tuple(map(Path, env_files)),
            paths=tuple(paths),
            pid=pid,
            checks=tuple(checks),
        ),
        reporter,
    )
    report = outcome.report
    return CaptureAnswer(value=report.to_dict(), summary=tuple(report.summary()), findings=report.findings)


def _index(number: int, url: str) -> IndexSource:
    if "://" not in url:
        raise UserInputError(
            "E-VALUE", f"--index {url}", expected="an https, http or file URL", found=repr(url)
        )
    return IndexSource(name=f"index-{number}", url=url)
