"""What is written beside the generations: the log of who did what, and the highest serials accepted."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from envbundle.errors import FormatError
from envbundle.host.files import atomic_write, host_errors, read_bounded
from envbundle.spec.canonical import canonical

if TYPE_CHECKING:
    from .layout import Prefix


def log(prefix: Prefix, action: str, *, now: datetime, **fields: Any) -> None:
    """Append one line to the prefix's log."""
    row = {"time": stamp(now), "user": _who(), "action": action, **fields}
    line = canonical({key: value for key, value in row.items() if value is not None}) + b"\n"
    path = prefix.home / "log.jsonl"
    with host_errors(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            os.write(fd, line)
            os.fsync(fd)
        finally:
            os.close(fd)


def history(prefix: Prefix) -> list[dict[str, Any]]:
    """Return the log's rows, oldest first; lines that a crash cut are left out."""
    try:
        text = (prefix.home / "log.jsonl").read_text("utf-8", "replace")
    except OSError:
        return []
    rows = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                rows.append(value)
    return rows


def serials(prefix: Prefix) -> dict[str, int]:
    """Return the highest serial accepted, by ``<name>/<target>``; raises ``FormatError`` if it is damaged."""
    path = prefix.home / "serials.json"
    if not path.exists():
        return {}
    try:
        value = json.loads(read_bounded(path, 1 << 20))
        return {str(key): int(number) for key, number in value.items()}
    except (ValueError, TypeError, AttributeError) as fault:
        raise FormatError(
            "E-FORMAT",
            str(path),
            expected="an object of numbers",
            hint="it guards against old bundles: write the highest serials back, or remove it",
        ) from fault


def record_serial(prefix: Prefix, key: str, serial: int) -> None:
    """Remember the highest serial accepted for ``key``."""
    atomic_write(prefix.home / "serials.json", canonical({**serials(prefix), key: serial}) + b"\n")


def stamp(now: datetime) -> str:
    """Return a time in RFC 3339 form, whole seconds UTC."""
    return now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _who() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    behind = os.environ.get("SUDO_USER")
    return f"{name} (sudo by {behind})" if behind else name
