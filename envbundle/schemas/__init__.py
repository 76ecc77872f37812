"""The published contract: JSON Schemas (draft-07) of every document and answer, and the table of codes."""

from __future__ import annotations

from importlib.resources import files


def codes() -> dict[str, tuple[int, str]]:
    """Return every stable code with its exit status and the sentence that explains it.

    The table is ``codes.tsv`` beside this file; ``make docs`` writes it from docs/codes.d.
    """
    rows = files(__name__).joinpath("codes.tsv").read_text("utf-8").splitlines()
    table = (row.split("\t") for row in rows)
    return {code: (int(status), text) for code, status, text in table}
