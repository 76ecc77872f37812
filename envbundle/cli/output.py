"""What a person or a program sees: results on standard output, all else on standard error.

* ``--json``: exactly one object on standard output, with ``findings``, also where the command failed.
* Progress is drawn on standard error, only on a terminal; colours follow NO_COLOR.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from envbundle.spec.finding import Finding, findings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envbundle.api.bootstrap_trust import BootstrapAnswer
    from envbundle.errors import EnvbundleError
    from envbundle.progress import Reporter

_COLOURS = {"error": "31", "warning": "33", "note": "36"}


class Output:
    """Where a command's words go."""

    def __init__(self, *, json_mode: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        """``json_mode`` prints one object; ``quiet`` drops all but errors and results."""
        self.json_mode, self.quiet, self.verbose = json_mode, quiet, verbose
        self.status = 0  # the exit status so far
        self._printed_json = False

    def line(self, text: str = "") -> None:
        """One line of a result, for people; nothing in JSON mode."""
        if not self.json_mode:
            print(text)

    def say(self, text: str) -> None:
        """One line about what goes on, on standard error; nothing when quiet."""
        if not self.quiet:
            to_stderr(text)

    def answer(self, value: dict[str, Any], findings: Iterable[Finding] = ()) -> None:
        """The command's JSON object; printed in JSON mode alone. ``findings`` are added to it."""
        if self.json_mode and not self._printed_json:
            self._printed_json = True
            print(json.dumps({**value, "findings": [f.to_dict() for f in findings]}, ensure_ascii=False))

    def findings(self, findings: Iterable[Finding]) -> None:
        """Findings for people, on standard error, grouped: equal code and facts are one paragraph."""
        if self.json_mode:
            return
        groups: dict[tuple[str, str, str, str, str], list[Finding]] = {}
        for f in findings:
            if f.severity == "error" or not self.quiet:
                groups.setdefault((f.severity, f.code, f.expected, f.found, f.hint), []).append(f)
        order = {"error": 2, "warning": 1, "note": 0}
        for (severity, code, expected, found, hint), members in sorted(
            groups.items(), key=lambda item: order.get(item[0][0], 0)
        ):
            self._paragraph(severity, code, expected, found, hint, members)

    def _paragraph(
        self, severity: str, code: str, expected: str, found: str, hint: str, members: list[Finding]
    ) -> None:
        shown = members if self.verbose else members[:4]
        head = f"{severity} {code}"
        if sys.stderr.isatty() and not _no_color():
            head = f"\x1b[{_COLOURS[severity]}m{head}\x1b[0m"
        for f in shown:
            where = f" at byte {f.offset}" if f.offset is not None else ""
            to_stderr(f"{head}: {f.subject}{where}")
        if len(shown) < len(members):
            to_stderr(f"  ... and {len(members) - len(shown)} more (-v shows all)")
        for label, text in (("found", found), ("expected", expected), ("hint", hint)):
            if text:
                to_stderr(f"  {label}: " + text.replace("\n", "\n    "))

    def failure(self, error: EnvbundleError) -> None:
        """The end of a command that failed: its findings, in either form."""
        found = findings_of(error)
        self.answer({}, found)
        self.findings(found)
        self.flush()

    def flush(self) -> None:
        """Hand everything to the reader; a reader that went away shows here."""
        sys.stdout.flush()

    def reporter(self) -> Reporter:
        """The reporter that draws progress, or one that only notes."""
        if self.quiet or self.json_mode or not sys.stderr.isatty():
            return Notes(self)
        return Bars(self)


def to_stderr(text: str, end: str = "\n") -> None:
    """Print on standard error; that nobody can read it changes nothing about what was done."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        abandon(sys.stderr)


def abandon(stream: TextIO) -> None:
    """Point a stream that cannot be written at nothing, so that the interpreter's last flush stays silent."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


class Notes:
    """A reporter without drawing: notes become lines when verbose."""

    def __init__(self, output: Output) -> None:
        """Speak through ``output``."""
        self._output = output

    def start(self, task: str, *, total: int | None = None, unit: str = "bytes") -> None:
        """Say nothing."""

    def advance(self, task: str, amount: int = 1) -> None:
        """Say nothing."""

    def finish(self, task: str) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Show the line when verbose."""
        if self._output.verbose and not self._output.json_mode:
            self._output.say(text)


class Bars(Notes):
    """One redrawn line on a terminal: task, amount, rate and time left; plain ANSI, nothing to import."""

    def __init__(self, output: Output) -> None:
        """Speak through ``output``."""
        super().__init__(output)
        self._tasks: dict[str, tuple[float, int | None, str]] = {}
        self._done: dict[str, int] = {}
        self._drawn = 0.0

    def start(self, task: str, *, total: int | None = None, unit: str = "bytes") -> None:
        """Begin the line of ``task``."""
        self._tasks[task] = (time.monotonic(), total, unit)
        self._done[task] = 0
        self._draw(task, force=True)

    def advance(self, task: str, amount: int = 1) -> None:
        """Redraw at most ten times a second."""
        self._done[task] = self._done.get(task, 0) + amount
        self._draw(task)

    def finish(self, task: str) -> None:
        """Clear the line."""
        self._tasks.pop(task, None)
        to_stderr("\r\x1b[K", end="")

    def note(self, text: str) -> None:
        """A line above the progress."""
        if self._output.verbose:
            to_stderr(f"\r\x1b[K{text}")

    def _draw(self, task: str, *, force: bool = False) -> None:
        now = time.monotonic()
        if task not in self._tasks or (not force and now - self._drawn < 0.1):
            return
        self._drawn = now
        began, total, unit = self._tasks[task]
        done, seconds = self._done[task], max(now - began, 1e-6)
        text = f"{task}: {_amount(done, unit)}"
        if total:
            text += f" of {_amount(total, unit)} ({100 * done // max(total, 1)} %)"
        if done and seconds > 1:
            text += f", {_amount(int(done / seconds), unit)}/s"
            if total and total > done:
                text += f", {int((total - done) * seconds / done)} s left"
        to_stderr(f"\r\x1b[K{text[:110]}", end="")


def _amount(count: int, unit: str) -> str:
    return human_bytes(count) if unit == "bytes" else f"{count} {unit}"


def human_bytes(count: int) -> str:
    """Return a byte count as people read it (1 kB = 1,000 bytes)."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{count} B"


def show_bootstrap(answer: BootstrapAnswer, out: Output) -> None:
    """Say what ``install.pyz`` a store has; nothing where it has none."""
    if answer.sha256:
        served = f", for Python {', '.join(answer.pythons)}" if answer.pythons else ""
        out.line(
            f"install.pyz: sha256:{answer.sha256}\n"
            f"  {human_bytes(answer.size)}{served}; check it by hand before it runs (docs/bare-hosts.md)"
        )


def _no_color() -> bool:
    return bool(os.environ.get("NO_COLOR"))
