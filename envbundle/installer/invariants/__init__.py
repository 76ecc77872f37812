"""What must hold on the target: one file and one line a kind (fields: ``envbundle.spec.invariants``)."""

from __future__ import annotations

from . import driver, env, gpu, library, model, path, space, tool
from .interface import Invariant

INVARIANTS: dict[str, Invariant] = {
    "driver": driver.check,
    "env": env.check,
    "gpu": gpu.check,
    "library": library.check,
    "model": model.check,
    "path": path.check,
    "space": space.check,
    "tool": tool.check,
}

__all__ = ["INVARIANTS", "Invariant"]
