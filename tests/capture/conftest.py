from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .builders import Living

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def living(tmp_path: Path) -> Living:
    return Living.make(tmp_path / "box")


@pytest.fixture
def sglang(living: Living) -> Living:
    """An environment with one package of several files, as published."""
    files = {
        f"sglang/{name}.py": f"NAME = {name!r}\nVALUE = 1\n"
        for name in ("__init__", "a", "b", "c", "d", "e", "f")
    }
    living.wheel("sglang", "0.5", files, entry_points={"console_scripts": {"sglang": "sglang.a:main"}})
    living.wheel("other", "2.0")
    living.new_venv()
    living.install("sglang", "other")
    return living
