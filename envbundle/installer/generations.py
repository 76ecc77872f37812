"""Generations of one prefix: which there are, which is live, switching, rolling back, collecting.

* The switch is one rename of a symbolic link, after everything it leads to was flushed to the disk.
* All changes are made under one lock per prefix; what a killed run left is removed by the next one.
* The history of what was live is ``log.jsonl``, one JSON object a line; ``rollback`` goes to what was live
  before. It needs no store, key, GPU or space.
"""

# ruff: noqa: PTH104, PTH115, PTH208, PTH211 - links are read and renamed as the system calls do it
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import getpass
import json
import os
import secrets
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from envbundle.errors import FormatError, HostError, UserInputError
from envbundle.host.files import atomic_write, host_error, host_errors, read_bounded, sync_folder
from envbundle.host.tree import remove_tree
from envbundle.spec.canonical import canonical
from envbundle.spec.receipt import Receipt

from .layout import RECEIPT, STAGE, SWITCH, GenerationName, Prefix

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MARK = "envbundle-generations"
_MARK_TEXT = b"This folder belongs to envbundle: see `envbundle generations PREFIX`.\n"
_RECEIPT_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One complete generation. ``live`` is the one that the prefix leads to."""

    name: str
    path: Path
    live: bool
    receipt: Receipt


def state_of(prefix: Prefix) -> Literal["absent", "ours", "foreign"]:
    """Say what stands at the prefix: nothing, a link that envbundle made, or something else."""
    try:
        text = os.readlink(prefix.path)
    except FileNotFoundError:
        text = ""
    except OSError:
        return "foreign"  # a real folder or file
    if text and not (text.startswith(prefix.link) and GenerationName.parse(text.removeprefix(prefix.link))):
        return "foreign"
    if os.path.lexists(prefix.home) and not _is_home(prefix.home):
        return "foreign"
    return "ours" if text else "absent"


def _is_home(path: Path) -> bool:
    """Say whether ``path`` is a folder of generations, or one in the making when its maker was killed."""
    if path.is_symlink() or not path.is_dir():
        return False
    return (path / _MARK).is_file() or all(entry.startswith(f".{_MARK}.") for entry in os.listdir(path))


def live_name(prefix: Prefix) -> str | None:
    """Return the name of the generation that the prefix leads to, None where there is none."""
    if state_of(prefix) != "ours":
        return None
    return os.readlink(prefix.path).removeprefix(prefix.link)


def names(prefix: Prefix) -> list[str]:
    """Return the names of complete generations, oldest first."""
    with contextlib.suppress(FileNotFoundError), host_errors(prefix.home):
        found = [GenerationName.parse(entry) for entry in os.listdir(prefix.home)]
        return [
            str(name)
            for name in sorted(n for n in found if n)
            if (prefix.home / str(name) / RECEIPT).is_file()
        ]
    return []


def read_receipt(path: Path) -> Receipt:
    """Return the receipt of the generation at ``path``; raises ``HostError`` or ``FormatError``."""
    return Receipt.from_bytes(read_bounded(path / RECEIPT, _RECEIPT_LIMIT))


def generations(path: Path | str) -> tuple[Generation, ...]:
    """Return the complete generations of the prefix at ``path``, oldest first.

    Raises ``UserInputError`` (E-NOT-A-PREFIX) where none was installed.
    """
    prefix = managed(path)
    live = live_name(prefix)
    return tuple(
        Generation(name=n, path=prefix.home / n, live=n == live, receipt=read_receipt(prefix.home / n))
        for n in names(prefix)
    )


def managed(path: Path | str) -> Prefix:
    """Return the prefix at ``path`` if envbundle installed it, else raise E-NOT-A-PREFIX."""
    prefix = Prefix.of(path)
    if state_of(prefix) == "foreign" or not (prefix.home / _MARK).is_file():
        raise UserInputError(
            "E-NOT-A-PREFIX",
            str(prefix.path),
            expected="an environment that envbundle installed",
            found="something else" if os.path.lexists(prefix.path) else "nothing",
        )
    return prefix


@contextlib.contextmanager
def locked(prefix: Prefix, *, create: bool = False) -> Iterator[None]:
    """While it is entered nobody else changes this prefix; raises ``HostError`` (E-LOCKED) if somebody does.

    With ``create`` the folder of generations (and the prefix's parents) are made; where it stays without a
    generation, it is removed again at the end.
    """
    made = _make_home(prefix) if create else []
    fd = _take_lock(prefix.home / "lock")
    try:
        yield
    finally:
        if not os.path.lexists(prefix.path) and not names(prefix):
            remove_tree(prefix.home)
            _remove_empty([folder for folder in made if folder != prefix.home])
        os.close(fd)


def _make_home(prefix: Prefix) -> list[Path]:
    """Make the folder of generations, marked as ours; return the folders that were not there."""
    made: list[Path] = []
    try:
        with host_errors(prefix.home):
            for folder in reversed([p for p in (prefix.home, *prefix.home.parents) if not p.exists()]):
                folder.mkdir(mode=0o755)
                made.append(folder)
            if not (prefix.home / _MARK).exists():
                atomic_write(prefix.home / _MARK, _MARK_TEXT, sync=False)
    except HostError:
        _remove_empty(made)
        raise
    return made


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _take_lock(path: Path) -> int:
    with host_errors(path):
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                    return fd
                os.close(fd)  # removed by the run that held it
            except BlockingIOError as fault:
                holder = os.pread(fd, 64, 0).decode("ascii", "replace").strip()
                os.close(fd)
                raise HostError(
                    "E-LOCKED",
                    str(path.parent),
                    expected="nobody else at work on this prefix",
                    found=f"process {holder}" if holder else "another process",
                    hint="wait for it to end, then run again",
                ) from fault
            except OSError:
                os.close(fd)
                raise


def clean(prefix: Prefix) -> list[str]:
    """Remove what killed runs left: stages, half generations, temporary links. Call it under the lock."""
    removed: list[str] = []
    complete = set(names(prefix))
    with host_errors(prefix.home):
        for entry in sorted(os.listdir(prefix.home)):
            path = prefix.home / entry
            if entry.startswith(SWITCH) and path.is_symlink():
                path.unlink()
            elif entry.startswith(STAGE) or (GenerationName.parse(entry) and entry not in complete):
                remove_tree(path)
            else:
                continue
            removed.append(entry)
    return removed


def next_name(prefix: Prefix, content_id: Any) -> GenerationName:
    """Return the name of the next generation: one more than any there is or the log knows of."""
    used = [name for entry in os.listdir(prefix.home) if (name := GenerationName.parse(entry))]
    used += [
        name for row in history(prefix) if (name := GenerationName.parse(str(row.get("generation", ""))))
    ]
    return GenerationName.of(1 + max((name.seq for name in used), default=0), content_id)


def switch(prefix: Prefix, name: str, action: str, *, now: datetime, **more: Any) -> None:
    """Make generation ``name`` the live one, in one step, and log it. Call it under the lock."""
    before = live_name(prefix)
    generation = prefix.generation(name)
    _flush(generation)
    temporary = prefix.home / f"{SWITCH}{secrets.token_hex(6)}"
    with host_errors(prefix.path):
        os.symlink(f"{prefix.link}{name}", temporary)
        try:
            os.rename(temporary, prefix.path)
        except OSError:
            temporary.unlink()
            raise
        sync_folder(prefix.path.parent)
    log(prefix, action, now=now, **{"from": before, "generation": name, **more})


def _flush(path: Path) -> None:
    """Flush the file system that holds ``path`` (syncfs), or all of them where that cannot be asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not hasattr(libc, "syncfs"):
            os.sync()
        elif libc.syncfs(fd) != 0:
            raise host_error(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())), path)
    finally:
        os.close(fd)


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


def previous(prefix: Prefix) -> str | None:
    """Return the generation that was live before the live one and still is there, or None."""
    there = names(prefix)
    live = live_name(prefix)
    stack: list[str] = []
    for row in history(prefix):
        name = row.get("generation")
        if row.get("action") == "rollback" and name in stack:
            del stack[len(stack) - 1 - stack[::-1].index(name) + 1 :]
        elif row.get("action") in ("install", "rollback") and isinstance(name, str):
            stack.append(name)
    if live in stack:
        del stack[len(stack) - 1 - stack[::-1].index(live) :]
        before = [name for name in stack if name in there and name != live]
        return before[-1] if before else None
    older = [name for name in there if live is None or name < live]  # the log is lost
    return older[-1] if older else None


def rollback(path: Path | str, *, to: str | None = None, now: datetime) -> Generation:
    """Make the generation that was live before (or ``to``) the live one again and return it.

    Raises ``UserInputError``: E-NOT-A-PREFIX, E-NO-GENERATION; ``HostError`` (E-LOCKED).
    """
    prefix = managed(path)
    with locked(prefix):
        target = to or previous(prefix)
        there = names(prefix)
        if target is None or target not in there:
            raise UserInputError(
                "E-NO-GENERATION",
                str(prefix.path),
                expected=f"generation {to}" if to else "a generation that was live before",
                found=", ".join(there) or "none",
            )
        receipt = read_receipt(prefix.home / target)
        if target != live_name(prefix):
            switch(prefix, target, "rollback", now=now, content_id=str(receipt.content_id))
        return Generation(name=target, path=prefix.home / target, live=True, receipt=receipt)


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
