"""``run``: a command inside an installed environment, with the variables of its receipt's bundle."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from envbundle.errors import HostError, IntegrityError
from envbundle.host.files import read_bounded
from envbundle.host.run import find_program, replace_process
from envbundle.installer import generations as gens
from envbundle.installer.layout import DESCRIPTOR
from envbundle.spec.descriptor import MAX_DESCRIPTOR, Descriptor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def run(prefix: Path, words: Sequence[str], *, environment: Mapping[str, str]) -> None:
    """Become ``words`` with the environment's ``bin`` first on PATH; returns only by raising ``HostError``.

    The process belongs to the generation that is live now: PATH and VIRTUAL_ENV name its real path.
    """
    place = gens.managed(prefix)
    name = gens.live_name(place)
    if name is None:
        raise IntegrityError("E-NO-GENERATION", str(prefix), expected="a live generation", found="none")
    live = place.generation(name)
    descriptor = Descriptor.from_bytes(read_bounded(live / DESCRIPTOR, MAX_DESCRIPTOR))
    interpreter = live / "bin" / "python"
    if not os.access(interpreter, os.X_OK):
        raise HostError(
            "E-HOST-PYTHON",
            str(interpreter),
            expected="the environment's own interpreter",
            found=f"{os.path.realpath(interpreter)}, which this user cannot start",
            hint="make it readable for this user, or install with --python PATH",
        )
    scripts = str(live / "bin")
    path = os.pathsep.join([scripts, environment.get("PATH", os.defpath)])
    changed = {**environment, **descriptor.content.environment, "PATH": path, "VIRTUAL_ENV": str(place.path)}
    for variable in ("PYTHONHOME", "PYTHONPATH"):
        changed.pop(variable, None)
    program = words[0] if os.sep in words[0] else find_program(words[0], path) or words[0]
    replace_process([program, *words[1:]], changed)
