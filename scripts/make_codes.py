"""Merge docs/codes.d/*.tsv into docs/codes.md and envbundle/schemas/codes.tsv (`envbundle explain`).

Each line of a source is ``CODE<TAB>exit status<TAB>sentence``; ``#`` starts a comment line. The status is
``2 or 3`` where it depends on who wrote what is wrong. A code stands in one source; what several rooms raise
stands in base.tsv, whose line then counts. With ``--check`` nothing is written: exit status 1 where a
file is stale.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "docs" / "codes.d"
TABLE = ROOT / "envbundle" / "schemas" / "codes.tsv"
PAGE = ROOT / "docs" / "codes.md"
CODE = re.compile(r"[EWN]-[A-Z0-9]+(-[A-Z0-9]+)*")
COMMON = "base"
KINDS = {"E": "Errors", "W": "Warnings", "N": "Notes"}
STATUSES = {
    "0": "done",
    "1": "refused by a verdict: the facts say no",
    "2": "usage or manifest: the command line or a document written by a person is wrong",
    "3": "trust or integrity: a signature, a hash, a format",
    "4": "host, network or disk: asking again may help",
    "130": "interrupted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One row: ``status`` is the exit status as text ("3", "2 or 3"); ``room`` the source's name."""

    code: str
    status: str
    sentence: str
    room: str


def read_sources(folder: Path) -> list[Code]:
    """Return all codes, sorted; raises ``ValueError`` naming file and line of the first bad one."""
    seen: dict[str, Code] = {}
    for path in sorted(folder.glob("*.tsv"), key=lambda path: (path.stem != COMMON, path.name)):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            where = f"{path.name}:{number}"
            cells = line.split("\t")
            if len(cells) != 3 or not all(cell.strip() for cell in cells):
                raise ValueError(f"{where}: expected CODE<TAB>exit status<TAB>sentence, found {line!r}")
            code, status, sentence = (cell.strip() for cell in cells)
            if not CODE.fullmatch(code):
                raise ValueError(f"{where}: {code!r} is no code: E-, W- or N- and capital words")
            if not set(status.split(" or ")) <= set(STATUSES) or (code[0] == "E") == (status == "0"):
                raise ValueError(f"{where}: {code} cannot have exit status {status}")
            if code in seen and seen[code].room == COMMON != path.stem:
                continue
            if code in seen:
                raise ValueError(f"{where}: {code} stands in {seen[code].room}.tsv already")
            seen[code] = Code(code=code, status=status, sentence=sentence, room=path.stem)
    return sorted(seen.values(), key=lambda row: ("EWN".index(row.code[0]), row.code))


def table(codes: list[Code]) -> str:
    """Return the data file's text."""
    return "".join(f"{row.code}\t{row.status}\t{row.sentence}\n" for row in codes)


def page(codes: list[Code]) -> str:
    """Return docs/codes.md."""
    lines = [
        "# Codes",
        "",
        "<!-- Written by `make docs` from docs/codes.d/*.tsv: edit those. -->",
        "",
        "Every refusal, warning and note has a stable code; `envbundle explain CODE` prints its row. A",
        "finding in `--json` holds it as `code`. A warning or note never changes the exit status.",
        "",
        "| exit status | means |",
        "|---|---|",
        *(f"| {status} | {meaning} |" for status, meaning in STATUSES.items()),
    ]
    for letter, title in KINDS.items():
        rows = [row for row in codes if row.code[0] == letter]
        if rows:
            lines += ["", f"## {title}", "", "| code | exit | meaning and next step |", "|---|---|---|"]
            lines += [
                f"| `{row.code}` | {row.status} | {row.sentence.replace('|', chr(92) + '|')} |"
                for row in rows
            ]
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    """Write both files, or with ``--check`` name the stale ones."""
    codes = read_sources(SOURCES)
    stale = [
        path
        for path, text in ((TABLE, table(codes)), (PAGE, page(codes)))
        if not path.exists() or path.read_text("utf-8") != text
    ]
    if "--check" in argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run make docs")
        return 1 if stale else 0
    TABLE.write_text(table(codes), "utf-8")
    PAGE.write_text(page(codes), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
