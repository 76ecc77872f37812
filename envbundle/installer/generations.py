"""Generations of one prefix: which there are, which is live, switching, rolling back, collecting.

* The switch is one rename of a symbolic link, after everything it leads to was flushed to the disk.
* All changes are made under one lock per prefix; what a killed run left is removed by the next one.
* The history of what was live is ``log.jsonl``, one JSON object a line; ``rollback`` goes to what was live
  before. It needs no store, key, GPU or space.
"""

# ruff: noqa: PTH104, PTH115, PTH208, PTH211 - links are read and renamed as the system calls do it
from __future__ import annotations

import ctypes
import os
import secrets
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from envbundle.errors import UserInputError
from envbundle.host.files import host_error, host_errors, read_bounded, sync_folder
from envbundle.host.processes import users_of
from envbundle.host.tree import Tree, remove_tree
from envbundle.spec.receipt import Receipt

from .journal import history, log
from .layout import PIN_MODULE, RECEIPT, STAGE, SWITCH, GenerationName, Prefix
from .locking import MARK, is_home, locked, names

if TYPE_CHECKING:
    from pathlib import Path

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
    if os.path.lexists(prefix.home) and not is_home(prefix.home):
        return "foreign"
    return "ours" if text else "absent"


def live_name(prefix: Prefix) -> str | None:
    """Return the name of the generation that the prefix leads to, None where there is none."""
    if state_of(prefix) != "ours":
        return None
    return os.readlink(prefix.path).removeprefix(prefix.link)


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
    if state_of(prefix) == "foreign" or not (prefix.home / MARK).is_file():
        raise UserInputError(
            "E-NOT-A-PREFIX",
            str(prefix.path),
            expected="an environment that envbundle installed",
            found="something else" if os.path.lexists(prefix.path) else "nothing",
        )
    return prefix


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
        before = live_name(prefix)
        if target != before:
            detail = f"{receipt.name} {receipt.version} {receipt.target.name}"
            switch(prefix, target, "rollback", now=now, detail=detail, content_id=str(receipt.content_id))
        return Generation(name=target, path=prefix.home / target, live=True, receipt=receipt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was removed, why the others were kept, and the bytes that only the removed ones held."""

    removed: tuple[str, ...]
    kept: dict[str, str]
    bytes: int


def gc(path: Path | str, *, keep: int = 2, dry_run: bool = False, now: datetime | None = None) -> Collected:
    """Remove old generations: never the live one, the one before it, the newest ``keep``, or one in use.

    In use is what a readable /proc names: open, mapped, a working directory, or the program itself. ``now``
    is for the log (None: the clock's). Raises ``UserInputError`` (E-NOT-A-PREFIX), ``HostError`` (E-LOCKED).
    """
    prefix = managed(path)
    with locked(prefix):
        there = names(prefix)
        newest = set(there[-keep:]) if keep > 0 else set()
        live, before = live_name(prefix), previous(prefix)
        kept: dict[str, str] = {}
        removed: list[str] = []
        for name in there:
            why = (
                "live"
                if name == live
                else "previous"
                if name == before
                else "recent"
                if name in newest
                else ""
            )
            why = why or _in_use(prefix, name)
            if why:
                kept[name] = why
            else:
                removed.append(name)
        freed = sum(_own_bytes(prefix.generation(name)) for name in removed)
        if not dry_run:
            for name in removed:
                remove_generation(prefix, name)
                log(prefix, "gc", now=now or datetime.now(timezone.utc), generation=name)
            clean(prefix)
        return Collected(removed=tuple(removed), kept=kept, bytes=freed)


def remove_generation(prefix: Prefix, name: str) -> None:
    """Remove a generation: its receipt first, so that half of it is never taken for a whole one."""
    path = prefix.generation(name)
    with host_errors(path):
        (path / RECEIPT).unlink()
    remove_tree(path)


def _in_use(prefix: Prefix, name: str) -> str:
    path = prefix.generation(name)
    pinned = any(path.glob(f"lib/python3.*/site-packages/{PIN_MODULE}"))
    users = users_of(path, also=() if pinned else (prefix.path,))
    return f"in use by process {users[0].pid}" if users else ""


def _own_bytes(path: Path) -> int:
    """Return the bytes of files that have no other name; what is shared by links stays where it is."""
    with Tree(path) as tree:
        return sum(status.st_size for _, status in tree.walk() if status.st_nlink == 1)


__all__ = [
    "Collected",
    "Generation",
    "clean",
    "gc",
    "generations",
    "history",
    "live_name",
    "locked",
    "log",
    "managed",
    "names",
    "next_name",
    "previous",
    "read_receipt",
    "remove_generation",
    "rollback",
    "state_of",
    "switch",
]
