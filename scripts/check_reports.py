"""Judge JUnit reports of pytest: nothing may be skipped, and named suites must have run.

    check_reports.py [--suites FILE] REPORT.xml...

``--suites`` is a text file of ``<report stem> <test package>`` lines (``unit tests.spec``): each package
must have at least one test in that report. The last line printed sums up all reports as pytest does.
Exit status: 0 all passed and complete, 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET  # the reports were written by pytest in this very run
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test of a report. ``outcome`` is passed, failed, error or skipped; ``reason`` is for people."""

    report: str
    package: str
    name: str
    outcome: str
    reason: str
    seconds: float


def read_report(path: Path) -> list[Case]:
    """Return the test cases of one JUnit file."""
    cases = []
    for node in ET.parse(path).getroot().iter("testcase"):
        outcome, reason = "passed", ""
        for child, word in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
            found = node.find(child)
            if found is not None:
                outcome, reason = word, (found.get("message") or "").strip()
        cases.append(
            Case(
                report=path.stem,
                package=node.get("classname", ""),
                name=node.get("name", ""),
                outcome=outcome,
                reason=reason,
                seconds=float(node.get("time", "0")),
            )
        )
    return cases


def read_suites(path: Path) -> list[tuple[str, str]]:
    """Return the (report stem, test package) pairs that must have run; ``#`` starts a comment."""
    pairs = []
    for line in path.read_text("utf-8").splitlines():
        words = line.partition("#")[0].split()
        if words:
            report, package = words
            pairs.append((report, package))
    return pairs


def faults_of(cases: list[Case], suites: list[tuple[str, str]], reports: list[str]) -> list[str]:
    """Return one line per reason why these reports are not good enough."""
    faults = [
        f"{case.outcome}: {case.package}::{case.name} {case.reason[:200]}".rstrip()
        for case in cases
        if case.outcome != "passed"
    ]
    faults += [f"no tests at all in {name}" for name in reports if not any(c.report == name for c in cases)]
    for report, package in suites:
        inside = (c for c in cases if c.report == report and f"{c.package}.".startswith(f"{package}."))
        if report in reports and not any(c.outcome != "skipped" for c in inside):
            faults.append(f"suite did not run: {package} in {report}")
    return faults


def main(argv: list[str]) -> int:
    """Print the faults and pytest's closing line; return the exit status."""
    parser = argparse.ArgumentParser(description="judge pytest's JUnit reports")
    parser.add_argument("--suites", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    args = parser.parse_args(argv)
    cases = [case for path in args.reports for case in read_report(path)]
    suites = read_suites(args.suites) if args.suites else []
    faults = faults_of(cases, suites, [path.stem for path in args.reports])
    for fault in faults:
        print(fault)
    counts = {
        word: sum(c.outcome == word for c in cases) for word in ("failed", "passed", "skipped", "error")
    }
    parts = [f"{n} {word}" for word, n in counts.items() if n] or ["no tests ran"]
    print(f"===== {', '.join(parts)} in {sum(c.seconds for c in cases):.2f}s =====")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
