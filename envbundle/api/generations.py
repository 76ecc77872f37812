"""What stands under a prefix: list, go back, remove, read receipt and log."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from envbundle.errors import IntegrityError
from envbundle.host.processes import users_of
from envbundle.installer import generations as gens
from envbundle.installer import journal
from envbundle.installer.layout import Prefix
from envbundle.store.gc import collect as collect_store
from envbundle.store.layout import DirectoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.spec.receipt import Receipt


def generations(prefix: Path) -> tuple[dict[str, Any], ...]:
    """Return one row per generation, oldest first; raises ``UserInputError`` (E-NOT-A-PREFIX)."""
    return tuple(
        {
            "generation": row.name,
            "current": row.live,
            "name": row.receipt.name,
            "version": row.receipt.version,
            "target": row.receipt.target.name,
            "bundle": str(row.receipt.bundle_id),
            "installed_at": row.receipt.installed_at,
        }
        for row in gens.generations(prefix)
    )


def rollback(prefix: Path, *, to: str | None = None, now: datetime | None = None) -> dict[str, Any]:
    """Make the previous generation (or ``to``) the live one; see ``gens.rollback``."""
    before = next((row.name for row in gens.generations(prefix) if row.live), "")
    done = gens.rollback(prefix, to=to, now=now or datetime.now(timezone.utc))
    users = users_of(Prefix.of(prefix).generation(before)) if before and before != done.name else []
    return {
        "prefix": str(prefix),
        "from": before,
        "generation": done.name,
        "live_users": [f"pid {use.pid}: {use.command}" for use in users],
    }


def collect(place: Path, *, keep: int, dry_run: bool) -> dict[str, Any]:
    """Remove old generations of a prefix, or what no bundle of a store needs."""
    if Prefix.of(place).home.is_dir():
        done = gens.gc(place, keep=keep, dry_run=dry_run)
        return {
            "place": str(place),
            "removed": list(done.removed),
            "kept": dict(done.kept),
            "bytes": done.bytes,
        }
    found = collect_store(DirectoryStore(place), dry_run=dry_run)
    return {
        "place": str(place),
        "removed": [str(digest) for digest in found.blobs] + list(found.leftovers),
        "kept": {},
        "bytes": found.bytes,
    }


def receipt(prefix: Path) -> Receipt:
    """Return the receipt of the live generation; raises ``IntegrityError`` (E-NO-GENERATION) without one."""
    for row in gens.generations(prefix):
        if row.live:
            return row.receipt
    raise IntegrityError("E-NO-GENERATION", str(prefix), expected="a live generation", found="none")


def history(prefix: Path) -> tuple[dict[str, Any], ...]:
    """Return the log's rows, oldest first; raises ``UserInputError`` (E-NOT-A-PREFIX)."""
    return tuple(journal.history(gens.managed(prefix)))
