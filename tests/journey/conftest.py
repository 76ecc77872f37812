from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .project import Project

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.make(tmp_path / "here")
