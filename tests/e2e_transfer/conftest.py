from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .hosts import Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    folder = tmp_path / "hosts"
    folder.mkdir()
    found = Hosts(folder)
    yield found
    found.stop()
