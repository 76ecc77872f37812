"""``plan``: one screen from a lock, with nothing fetched and nothing written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envbundle.errors import VerdictError
from envbundle.host.files import read_bounded
from envbundle.spec.lock_text import parse_lock

from .lock import lock_is_fresh
from .settings import MAX_DOCUMENT, choose_targets, open_manifest

if TYPE_CHECKING:
    from pathlib import Path


def plan(manifest_path: Path, *, target: str | None) -> dict[str, Any]:
    """Return what the lock of ``target`` (or the manifest's only one) brings and was judged on.

    Raises ``VerdictError`` (E-LOCK-MISSING); ``status`` is ``fresh`` or ``stale``.
    """
    opened = open_manifest(manifest_path)
    spec = choose_targets(opened.manifest, [target] if target else [])[0]
    path = opened.lock_path(spec.target.name)
    if not path.exists():
        raise VerdictError(
            "E-LOCK-MISSING",
            str(path),
            found="no lock",
            hint=f"run `envbundle lock --arch {spec.target.name}`",
        )
    lock = parse_lock(read_bounded(path, MAX_DOCUMENT).decode("utf-8", "replace"), filename=str(path))
    status = "fresh"
    try:
        lock_is_fresh(opened, lock, path)
    except VerdictError:
        status = "stale"
    evidence = {item.distribution: item for item in lock.coverage}
    rows = []
    for package in lock.packages:
        held = evidence.get(package.name)
        rows.append(
            {
                "distribution": package.name,
                "version": package.version,
                "origin": package.origin,
                "size": package.wheel.size,
                "sha256": package.wheel.sha256.hex,
                "verdicts": {gpu: _told(counts) for gpu, counts in held.counts} if held else {},
                "files": len(held.files) if held else 0,
            }
        )
    return {
        "lock": str(path),
        "status": status,
        "target": lock.target.to_dict(),
        "packages": rows,
        "overlays": [
            {
                "distribution": overlay.distribution,
                "base": overlay.base_version,
                "replaces": sum(file.replaces is not None for file in overlay.files),
                "adds": sum(file.replaces is None for file in overlay.files),
                "removes": len(overlay.removes),
            }
            for overlay in lock.overlays
        ],
        "contested": [{"path": item.path, "winner": item.winner} for item in lock.contested],
        "exemptions": [item.to_dict() for item in lock.exemptions],
        "requires": dict(lock.requires),
    }


def _told(counts: Any) -> str:
    served = counts.native + counts.jit
    total = served + counts.missing
    return (
        f"{counts.verdict} {served}/{total}" if counts.verdict in ("partial", "none") else str(counts.verdict)
    )
