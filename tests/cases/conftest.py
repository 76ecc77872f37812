from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .kit import Case

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case.make(tmp_path)
