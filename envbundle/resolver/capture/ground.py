"""The machine and the interpreter that an environment stands on, asked before any file of it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envbundle.errors import UserInputError
from envbundle.host.probe import Devices, ask_interpreter, devices
from envbundle.host.probe import glibc as host_glibc
from envbundle.host.probe import machine as host_machine

from .inventory import python_of, read_config, require_environment
from .manifest_of import Machinery
from .notices import interpreter_notices
from .published import Machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from envbundle.host.probe import Interpreter
    from envbundle.host.run import Finished, Runner
    from envbundle.spec.finding import Finding

    from .inventory import Inventory
    from .receipts import Own


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The machine and the environment, before any file of it is looked into."""

    python: str
    interpreter: Interpreter | None
    machinery: Machinery
    config: Mapping[str, str]

    @property
    def machine(self) -> Machine:
        """What wheels must fit."""
        return Machine(python=self.python, machine=self.machinery.machine, glibc=self.machinery.glibc)


def look_around(venv: Path, runner: Runner) -> tuple[Ground, tuple[Finding, ...]]:
    """Return what the environment stands on, and what is odd about it.

    Raises ``UserInputError`` (E-NOT-A-VENV, E-NOT-GLIBC), ``VerdictError`` (E-CONDA).
    """
    require_environment(venv)
    python = python_of(venv)
    config = read_config(str(venv))
    interpreter = ask_interpreter(venv / "bin" / "python", _quiet(runner))
    ground = Ground(
        python=python,
        interpreter=interpreter,
        machinery=_machinery(python, config, interpreter, devices(runner)),
        config=config,
    )
    return ground, tuple(interpreter_notices(venv, config, interpreter, python))


def told(ground: Ground, inventory: Inventory, own: Own | None) -> dict[str, Any]:
    """Return the environment's row of facts for the report."""
    interpreter = ground.interpreter
    return {
        "prefix": inventory.given,
        "real_path": inventory.root,
        "interpreter": interpreter.path if interpreter is not None else "",
        "home": ground.config.get("home", ""),
        "python": ground.machinery.version,
        "abi": interpreter.abi if interpreter is not None else "",
        "machine": ground.machinery.machine,
        "glibc": ground.machinery.glibc,
        "gpus": ", ".join(ground.machinery.gpus),
        "driver": ground.machinery.driver or "",
        "bundle": str(own.receipt.bundle_id) if own is not None else "",
    }


def _quiet(runner: Runner) -> Runner:
    """Return a runner that starts Python without site and without writing bytecode."""

    def quiet(argv: Sequence[str | Path], **how: Any) -> Finished:
        return runner([argv[0], "-B", "-S", *argv[1:]], **how)

    return quiet


def _machinery(
    python: str, config: Mapping[str, str], interpreter: Interpreter | None, gpus: Devices
) -> Machinery:
    libc = interpreter.libc if interpreter is not None else f"glibc {host_glibc() or ''}"
    name, _, version = libc.partition(" ")
    if name != "glibc" or not version:
        raise UserInputError(
            "E-NOT-GLIBC", "the environment's interpreter", expected="one for glibc", found=libc or "unknown"
        )
    said = config.get("version_info", config.get("version", python))
    return Machinery(
        python=python,
        machine=_plain_machine(interpreter.machine if interpreter is not None else host_machine()),
        glibc=".".join(version.split(".")[:2]),
        version=interpreter.version if interpreter is not None else ".".join(said.split(".")[:3]),
        gpus=tuple(dict.fromkeys(str(gpu.arch) for gpu in gpus.gpus)),
        driver=gpus.driver,
    )


def _plain_machine(name: str) -> str:
    return {"amd64": "x86_64", "AMD64": "x86_64", "arm64": "aarch64"}.get(name, name)
