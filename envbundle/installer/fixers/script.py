"""Scripts that a distribution carries: their first line leads to the new interpreter, the rest stays.

``#!python`` and interpreters of the environment's old prefixes are rewritten; ``/usr/bin/env`` and others are
left, with a warning where a carriage return or an old path would keep them from running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.installer.shebang import can_quote, is_inside, read_shebang, start_with
from envbundle.spec.finding import Finding

from .interface import Fixed

if TYPE_CHECKING:
    from .interface import Place, Subject


def fix(subject: Subject, place: Place) -> Fixed:
    """Return the script with its interpreter at ``place``, or as it was where that is right."""
    found = read_shebang(subject.data)
    if found is None:
        return Fixed(data=subject.data)
    ours = found.interpreter == "python" or is_inside(found.interpreter, place.old_prefixes)
    if not ours:
        if found.crlf:
            return Fixed(
                data=subject.data,
                findings=(
                    Finding(
                        code="W-SHEBANG-CRLF",
                        severity="warning",
                        subject=subject.path,
                        expected="a first line that ends with a line feed alone",
                        found=f"{found.interpreter} and a carriage return, which belongs to the name",
                        hint="start it with the interpreter by hand, or have it repaired where it was packed",
                    ),
                ),
            )
        return Fixed(data=subject.data)
    if not can_quote(found.argument):
        return Fixed(
            data=subject.data,
            findings=(
                Finding(
                    code="W-SHEBANG-ARGUMENT",
                    severity="warning",
                    subject=subject.path,
                    expected="an interpreter argument without quotes",
                    found=ascii(found.argument)[:200],
                    hint="the script was left as packed; start it with the interpreter by hand",
                ),
            ),
        )
    data = start_with(place.interpreter, subject.data[found.head :], found.argument)
    if not found.crlf:
        return Fixed(data=data)
    note = Finding(
        code="N-SHEBANG-CRLF",
        severity="note",
        subject=subject.path,
        found="a first line that ended with a carriage return; it was replaced",
    )
    return Fixed(data=data, findings=(note,))
