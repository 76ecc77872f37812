"""A few of the seeds of test_cuts.py that need nothing but python3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cuts import cut_far_ends, make_source

if TYPE_CHECKING:
    from pathlib import Path


def test_a_copy_that_is_cut_goes_on(tmp_path: Path) -> None:
    cut_far_ends(tmp_path, make_source(tmp_path / "source"), range(6))
