"""``[[check]]``: imports and programs run in the new generation before it goes live.

* They see the bundle's ``[environment]``, a home and a temporary folder of their own, a plain PATH with the
  generation first, and of the caller's variables only those that lead to the GPU.
* The network is cut off unless the check says otherwise; which way was used stands in the receipt.
* Python writes no bytecode meanwhile: what a check leaves in the generation would be drift.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.errors import HostError, VerdictError
from envbundle.spec.finding import Finding
from envbundle.spec.receipt import CheckResult

from .isolation import isolation_here, launcher
from .layout import STAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from envbundle.host.run import Runner

    from .isolation import Isolation

_KEPT = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "LD_LIBRARY_PATH")
_IMPORT = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
_OUTPUT = 4000


def run_checks(
    generation: Path, checks: Sequence[Mapping[str, Any]], environment: Mapping[str, str], *, runner: Runner
) -> tuple[CheckResult, ...]:
    """Run ``checks`` (the content's own JSON form) in ``generation`` and return what each gave.

    Raises ``HostError`` (E-NO-ISOLATION) before the first one runs if a check wants the network denied and
    this machine can do it in no way. A failing check is a result, see ``require_passed``.
    """
    denied = [check for check in checks if check.get("network", "denied") != "allowed"]
    python = generation / "bin" / "python"
    way: Isolation = isolation_here(python, runner) if denied else "none"
    if denied and way == "none":
        raise HostError(
            "E-NO-ISOLATION",
            "checks",
            expected="a network namespace or a seccomp filter",
            found="this system grants neither",
            hint='allow user namespaces, set network = "allowed" for the check, or install with --no-checks',
        )
    results = []
    with tempfile.TemporaryDirectory(prefix=f"{STAGE}check-", dir=_scratch(generation)) as folder:
        for check in checks:
            allowed = check.get("network", "denied") == "allowed"
            results.append(
                _run(generation, check, environment, Path(folder), None if allowed else way, runner)
            )
    return tuple(results)


def _scratch(generation: Path) -> str:
    """Return where a check's own folder goes: the usual place, else beside the generation."""
    try:
        return tempfile.gettempdir()  # paths of sockets are short there
    except FileNotFoundError:
        return str(generation.parent)


def _run(
    generation: Path,
    check: Mapping[str, Any],
    environment: Mapping[str, str],
    folder: Path,
    way: Isolation | None,
    runner: Runner,
) -> CheckResult:
    python = str(generation / "bin" / "python")
    imports = [str(name) for name in check.get("import", ())]
    argv = [python, "-c", _IMPORT, *imports] if imports else [str(word) for word in check.get("run", ())]
    name = check_name(check)
    timeout = float(check.get("timeout", 300))
    started = time.monotonic()
    try:
        finished = runner(
            [*launcher(python, way or "open"), *argv],
            env=_variables(generation, environment, folder),
            cwd=folder,
            timeout=timeout,
        )
        ok = finished.status == 0
        output = (finished.stdout + finished.stderr).decode("utf-8", "replace")
        if not ok and not output.strip():
            output = f"ended with status {finished.status}"
    except HostError as fault:
        ok, output = (
            False,
            f"{fault.code}: " + (f"expected {fault.expected}" if fault.expected else fault.found),
        )
    return CheckResult(
        name=name,
        ok=ok,
        seconds=math.ceil(time.monotonic() - started),
        isolation=way or "none",
        output=output[-_OUTPUT:],
    )


def check_name(check: Mapping[str, Any]) -> str:
    """Return how a check is called in reports."""
    if check.get("import"):
        return "import " + ", ".join(map(str, check["import"]))
    return "run " + " ".join(map(str, check.get("run", ())))


def _variables(generation: Path, environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        "LANG": "C.UTF-8",
        **kept,
        **environment,
        "PATH": f"{generation}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "VIRTUAL_ENV": str(generation),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def require_passed(results: Sequence[CheckResult]) -> None:
    """Raise ``VerdictError`` (E-CHECK) with one finding per failed check."""
    findings = [
        Finding(
            code="E-CHECK",
            severity="error",
            subject=result.name,
            expected="exit status 0",
            found=(result.output.strip().splitlines() or ["no output"])[-1][:300],
            hint="the environment that was there is untouched; --no-checks installs without them",
        )
        for result in results
        if not result.ok
    ]
    if findings:
        raise VerdictError.of(findings)
