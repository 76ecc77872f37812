"""What preflight and invariants look at: the machine, gathered once, before anything is written."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from envbundle.host import probe

from .generations import state_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.host.probe import Devices, Interpreter
    from envbundle.host.run import Runner

    from .layout import Prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One machine as seen from one prefix.

    ``glibc`` is None on another libc; ``tried`` lists Pythons that were looked at and do not fit;
    ``environment`` is the process's own. ``runner`` starts tools for invariants.
    """

    prefix: Prefix
    state: Literal["absent", "ours", "foreign"]
    devices: Devices
    glibc: str | None
    machine: str
    interpreter: Interpreter | None
    runner: Runner
    environment: Mapping[str, str] = field(default_factory=dict)
    tried: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form for the receipt."""
        return {
            "gpus": [gpu.to_dict() for gpu in self.devices.gpus],
            "driver": self.devices.driver or "",
            "cuda": self.devices.cuda or "",
            "glibc": self.glibc or "",
            "machine": self.machine,
        }


def gather(
    prefix: Prefix, python: str, machine: str, *, interpreter: str | None, runner: Runner
) -> HostFacts:
    """Look at this machine for an environment of Python ``3.N`` on ``machine`` (x86_64 or aarch64).

    ``interpreter`` is the only Python looked at where it is given.
    """
    found, tried = _interpreter(python, machine, interpreter, runner)
    return HostFacts(
        prefix=prefix,
        state=state_of(prefix),
        devices=probe.devices(runner),
        glibc=probe.glibc(),
        machine=probe.machine(),
        interpreter=found,
        tried=tried,
        runner=runner,
        environment=dict(os.environ),
    )


def _interpreter(
    python: str, machine: str, given: str | None, runner: Runner
) -> tuple[Interpreter | None, tuple[str, ...]]:
    tried: list[str] = []
    if given is not None:
        one = probe.ask_interpreter(Path(given), runner)
        candidates = iter([one] if one else [])
        tried.append(f"{given}: {'Python ' + one.version if one else 'is no Python that can be run'}")
    else:
        candidates = probe.interpreters(python, runner)
    for candidate in candidates:
        fits = (
            candidate.python == python and candidate.machine == machine and candidate.libc.startswith("glibc")
        )
        if fits and candidate.abi == "cpython-" + python.replace(".", ""):
            return candidate, ()
        tried.append(
            f"{candidate.path}: {candidate.abi}, {candidate.machine}, {candidate.libc or 'no glibc'}"
        )
    return None, tuple(tried)
