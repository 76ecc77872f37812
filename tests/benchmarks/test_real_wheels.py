"""The page of real wheels is written by a program: what it reads of cuobjdump, and what counts as explained."""

from __future__ import annotations

from collections import Counter

import pytest
import real_wheels

# As cuobjdump 13.5 prints it for a file with two entries, abridged by repeating none.
LISTING = """\

Fatbin elf code:
================
arch = sm_90a
code version = [1,7]
host = linux
compile_size = 64bit

Fatbin ptx code:
================
arch = sm_90
code version = [8,8]
host = linux
compile_size = 64bit
"""
FILE = {
    "entries": [
        {"kind": "sass", "arch": "sm_90a", "isa": None, "section": ".nv_fatbin", "modules": 1},
        {"kind": "ptx", "arch": "compute_90", "isa": "8.8", "section": "__nv_relfatbin", "modules": 1},
    ],
    "modules": {"total": 2, "empty": 0},
}


def compared(listing: str, said: str = "", **more: object) -> real_wheels.Compared:
    words = ["sh", "-c", f"cat <<'EOF'\n{listing}\nEOF\necho '{said}' >&2", "sh"]
    _, text, error = real_wheels.run(words)
    return real_wheels.compared("lib.so", {**FILE, **more}, text, error)


def test_equal_lists_agree() -> None:
    one = compared(LISTING)
    assert one.theirs == Counter({("sass", "sm_90a"): 1, ("ptx", "compute_90 (8.8)"): 1})
    assert one.agrees


@pytest.mark.parametrize(
    ("listing", "section"),
    [
        (LISTING.replace("sm_90a", "sm_90"), ".nv_fatbin"),
        (LISTING + LISTING, ".nv_fatbin"),
        (LISTING.partition("\nFatbin ptx")[0], ".nv_fatbin"),
        (LISTING, ".rodata"),
    ],
    ids=["suffix", "twice", "one less", "another section"],
)
def test_whatever_differs_does_not_agree(listing: str, section: str) -> None:
    entries = [{**FILE["entries"][0], "section": section}, FILE["entries"][1]]  # type: ignore[index]
    assert not compared(listing, entries=entries).agrees


def test_only_giving_up_half_way_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(real_wheels.EXPLAINED, ("demo", "lib.so"), "gives up")
    half = LISTING.partition("\nFatbin ptx")[0]
    assert real_wheels.explanation("demo", compared(half, "fatal: Invalid ELF")) == "gives up"
    assert real_wheels.explanation("demo", compared(half)) is None, "it said nothing"
    other = half.replace("sm_90a", "sm_80")
    assert real_wheels.explanation("demo", compared(other, "fatal: Invalid ELF")) is None, (
        "it saw another entry"
    )
    assert real_wheels.explanation("another", compared(half, "fatal: Invalid ELF")) is None


@pytest.mark.parametrize(
    ("row", "cell"),
    [
        ({"verdict": "native", "native": 3, "jit": 0, "missing": 0}, "native"),
        ({"verdict": "partial", "native": 3, "jit": 1, "missing": 6}, "4 of 10"),
        ({"verdict": "none", "native": 0, "jit": 0, "missing": 6}, "none"),
        ({"verdict": "no-gpu-code", "native": 0, "jit": 0, "missing": 0}, "-"),
    ],
    ids=["native", "partial", "none", "no code"],
)
def test_cells_of_the_tables(row: dict[str, object], cell: str) -> None:
    assert real_wheels.cell(row) == cell
