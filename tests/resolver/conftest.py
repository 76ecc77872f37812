from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .index_server import Index, serving
from .project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder=folder, cache=tmp_path / "cache")


@pytest.fixture
def index() -> Iterator[Index]:
    with serving() as served:
        yield served
