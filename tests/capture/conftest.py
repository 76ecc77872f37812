from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .builders import Living

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def living() -> Iterator[Living]:
    """A box in a short folder: scripts with a path of over 127 bytes have another first line."""
    with tempfile.TemporaryDirectory(prefix="box-") as folder:
        yield Living.make(Path(folder).resolve() / "box")


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
