"""``envbundle diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from envbundle.api.diff import Changes

    from .output import Output

EXAMPLE = "envbundle diff /root/venv_sglang pylock.sm_103.toml"
_SHOWN = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    for name in ("first", "second"):
        parser.add_argument(
            name, metavar=name[0].upper(), help="an environment, a lock, a store or a receipt"
        )
    parser.add_argument(
        "--arch",
        "--target",
        dest="targets",
        action="append",
        default=[],
        metavar="T",
        help="which bundle of a store: a target's name, tag or GPU; a second one is the second store's",
    )


def execute(args: argparse.Namespace, out: Output) -> int:
    """Show what differs; exit 1 where something does."""
    from envbundle.api.diff import diff

    named = [*args.targets, *args.targets[:1], None, None]
    if len(args.targets) > 1:
        named = [*args.targets]
    answer = diff(Path(args.first), Path(args.second), targets=(named[0], named[1]))
    for title, changes in (("distributions", answer.distributions), ("files", answer.files)):
        if changes is not None and not changes.empty:
            _show(title, changes, out)
    if answer.equal:
        told = f"{answer.compared} files" if answer.files is not None else "distributions"
        out.line(f"no difference in {told}")
    out.answer(answer.to_dict())
    return 0 if answer.equal else 1


def _show(title: str, changes: Changes, out: Output) -> None:
    rows = [f"+ {name}" for name in changes.added] + [f"- {name}" for name in changes.removed]
    rows += [f"~ {name}" + _how(old, new) for name, old, new in changes.changed]
    out.line(
        f"{title}: {len(changes.added)} added, {len(changes.removed)} removed, {len(changes.changed)} changed"
    )
    shown = rows if out.verbose else rows[:_SHOWN]
    for row in shown:
        out.line(f"  {row}")
    if len(shown) < len(rows):
        out.line(f"  ... and {len(rows) - len(shown)} more (-v shows all)")


def _how(old: str, new: str) -> str:
    if len(old) >= 64 and len(new) >= 64:
        if old.split(maxsplit=1)[0] == new.split(maxsplit=1)[0]:
            return "  (x bit)"
        return f"  {old[:12]} -> {new[:12]}"
    return f"  {old} -> {new}"
