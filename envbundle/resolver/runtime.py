"""What locked distributions compile or fetch at run time, by the table ``jit_rules.toml``.

* A bundled compiler must know the target's GPU: what will be used is named, E-PTXAS and E-NVRTC refuse.
* Programs and headers that are wanted of the host are warnings with the invariants that check them.
* On a target without network, what would be fetched must be brought by a distribution or stand in a folder.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from packaging.version import Version

from envbundle.inspection.cuda import DRIVER_OF_CUDA_MAJOR
from envbundle.spec.finding import Finding

from .jit import JitRule, jit_rules
from .sonames import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from envbundle.spec.compiler import Compiler
    from envbundle.spec.manifest import Invariant
    from envbundle.spec.target import Arch, Target

    from .contents import WheelScan

_C_COMPILERS = ("cc", "gcc", "clang", "g++", "c++")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPromise:
    """What the manifest says of the target: required tools and paths, variables, a bundled interpreter."""

    tools: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)
    own_interpreter: bool = False

    @classmethod
    def of(
        cls, invariants: Iterable[Invariant], environment: Iterable[tuple[str, str]], *, bundled: bool
    ) -> HostPromise:
        """Collect it from a manifest's values."""
        tools, paths = set[str](), set[str]()
        for invariant in invariants:
            values = dict(invariant.fields)
            if invariant.kind == "tool":
                tools.add(str(values.get("tool", "")).rpartition("/")[2])
            elif invariant.kind == "path":
                paths.add(str(values.get("path", "")))
        return cls(
            tools=frozenset(tools),
            paths=frozenset(paths),
            variables=dict(environment),
            own_interpreter=bundled,
        )


def judge_runtime(
    scans: Mapping[str, WheelScan], target: Target, promise: HostPromise
) -> tuple[Finding, ...]:
    """Return the findings about compiling and fetching at run time, for every GPU of the target."""
    work = _Runtime(scans, target, promise)
    return tuple(dict.fromkeys(work.findings()))


class _Runtime:
    """One locked set being judged."""

    def __init__(self, scans: Mapping[str, WheelScan], target: Target, promise: HostPromise) -> None:
        self.scans, self.target, self.promise = scans, target, promise
        self.rules = {name: rule for name in sorted(scans) if (rule := jit_rules().rule(name)) is not None}
        self.compilers: dict[str, list[tuple[str, Compiler]]] = defaultdict(list)
        for name, scan in sorted(scans.items()):
            for file in scan.files:
                if file.compiler is not None:
                    self.compilers[name].append((file.path, file.compiler))

    def findings(self) -> Iterator[Finding]:
        """Yield all findings."""
        if not self.target.gpus:
            return
        for name, rule in self.rules.items():
            yield from self._gpus(name, rule)
            yield from self._ptxas(name, rule)
            yield from self._fetch(name, rule)
        yield from self._nvrtc()
        yield from self._host()
        yield from self._cpu_builds()

    # --- compilers

    def _ptxas(self, name: str, rule: JitRule) -> Iterator[Finding]:
        bundled = [(path, c) for path, c in self.compilers[name] if c.kind == "ptxas"]
        if rule.compiler != "ptxas" or not bundled:
            return
        for gpu in self.target.gpus:
            path, used = self._picked(name, rule, bundled, gpu)
            subject = f"{self._shown(name)} {path}"
            named = [variable for variable in rule.variable if variable in self.promise.variables]
            if used.compiles(gpu.number):
                yield Finding(
                    code="N-COMPILER",
                    severity="note",
                    subject=subject,
                    expected=f"a ptxas that knows {gpu}",
                    found=f"{used.version or 'unknown release'}, up to sm_{used.newest}: used for {gpu}",
                )
            elif named:
                yield Finding(
                    code="N-COMPILER",
                    severity="note",
                    subject=subject,
                    expected=f"a ptxas that knows {gpu}",
                    found=f"{_told(used)}; {named[0]} names another",
                )
            else:
                yield Finding(
                    code="E-PTXAS",
                    severity="error",
                    subject=subject,
                    expected=f"a ptxas that knows {gpu}" + self._since(gpu),
                    found=_told(used),
                    hint=f"take a newer {name}, or set {rule.variable[0] if rule.variable else 'PATH'} in "
                    f'[environment] to a ptxas of the host and demand it by [[invariant]] kind = "tool"',
                )

    def _picked(
        self, name: str, rule: JitRule, bundled: list[tuple[str, Compiler]], gpu: Arch
    ) -> tuple[str, Compiler]:
        """Return the compiler that the release uses for a GPU; of several unknown ones the best."""
        version = Version(self.scans[name].version)
        for pick in rule.picks:
            if gpu.number >= pick.start and pick.versions.contains(version, prereleases=True):
                for path, compiler in bundled:
                    if path.rpartition("/")[2] == pick.file:
                        return path, compiler
        picked = {pick.file for pick in rule.picks}
        plain = [item for item in bundled if item[0].rpartition("/")[2] not in picked] or bundled
        return max(plain, key=lambda item: (item[1].compiles(gpu.number), item[1].newest))

    def _nvrtc(self) -> Iterator[Finding]:
        found = [
            (name, path, compiler)
            for name, each in self.compilers.items()
            for path, compiler in each
            if compiler.kind == "nvrtc" and ".alt." not in path
        ]
        users = [name for name, rule in self.rules.items() if rule.compiler == "nvrtc"]
        needing = [name for name in users if self.rules[name].needed]
        for gpu in self.target.gpus:
            usable = [item for item in found if item[2].compiles(gpu.number)]
            for name, path, compiler in found:
                if compiler.compiles(gpu.number):
                    continue
                refused = bool(needing) and not usable and gpu.number < compiler.oldest
                yield Finding(
                    code="E-NVRTC" if refused else "W-NVRTC",
                    severity="error" if refused else "warning",
                    subject=f"{self._shown(name)} {path}",
                    expected=f"an NVRTC that knows {gpu}" + self._since(gpu),
                    found=_told(compiler),
                    hint=f"{shown(needing or users)} could compile nothing for {gpu}"
                    if refused
                    else f"only its PTX for an older architecture can serve {gpu}, compiled by the driver",
                )

    def _since(self, gpu: Arch) -> str:
        first = dict(jit_rules().toolkit).get(f"sm_{gpu.number}")
        return f" (CUDA {first} or newer)" if first else ""

    # --- the rest of the table

    def _gpus(self, name: str, rule: JitRule) -> Iterator[Finding]:
        for gpu in self.target.gpus:
            if rule.gpus and f"sm_{gpu.number}" not in rule.gpus:
                yield Finding(
                    code="W-JIT-GPU",
                    severity="warning",
                    subject=self._shown(name),
                    expected=f"a GPU that its code accepts: {', '.join(rule.gpus)}",
                    found=str(gpu),
                    hint="it holds no GPU code to judge; its own checks at run time may refuse this GPU",
                )

    def _fetch(self, name: str, rule: JitRule) -> Iterator[Finding]:
        fetch = rule.fetch
        if fetch is None or not self.target.offline:
            return
        gpus = [gpu for gpu in self.target.gpus if not fetch.gpus or f"sm_{gpu.number}" in fetch.gpus]
        if not gpus or fetch.variable in self.promise.variables:
            return
        brought = self.scans.get(fetch.distribution)
        own = self.scans[name].version
        if brought is not None and (not fetch.same_version or _public(brought.version) == _public(own)):
            return
        yield Finding(
            code="E-OFFLINE",
            severity="error",
            subject=self._shown(name),
            expected=f"{fetch.distribution} {_public(own)}, since the target is offline",
            found=f"{fetch.distribution} {brought.version}" if brought else f"no {fetch.distribution}",
            hint=f"it fetches {fetch.what} for {shown(map(str, gpus))} at first use: add "
            f"{fetch.distribution}=={_public(own)}, or name a filled folder by {fetch.variable} in "
            "[environment]",
        )

    def _host(self) -> Iterator[Finding]:
        """One warning for each thing that is wanted of the host and that the manifest does not promise."""
        wanted: dict[str, list[str]] = defaultdict(list)
        for name, rule in self.rules.items():
            if any(one in self.scans for one in rule.instead):
                continue
            for thing in rule.host:
                if not self._has(thing):
                    wanted[thing].append(name)
        for thing, names in sorted(wanted.items()):
            firm = [name for name in names if not self.rules[name].optional]
            if not firm:
                continue
            text, lines = self._description(thing)
            yield Finding(
                code="W-HOST-TOOL",
                severity="warning",
                subject=", ".join(self._shown(name) for name in firm),
                expected=f"{text} on the target",
                found="nothing in the environment or the manifest brings or demands it",
                hint=f"{firm[0]} {self.rules[firm[0]].does}; to have it checked: {lines}",
            )

    def _has(self, thing: str) -> bool:
        match thing:
            case "cc":
                return bool(self.promise.tools & set(_C_COMPILERS)) or "CC" in self.promise.variables
            case "python-headers":
                return self.promise.own_interpreter or any("Python.h" in p for p in self.promise.paths)
            case "ninja":
                return "ninja" in self.scans or "ninja" in self.promise.tools
            case "nvcc":
                return "nvcc" in self.promise.tools or any(
                    compiler.kind == "nvcc" and all(compiler.compiles(gpu.number) for gpu in self.target.gpus)
                    for each in self.compilers.values()
                    for _, compiler in each
                )
            case _:
                return thing in self.promise.tools

    def _description(self, thing: str) -> tuple[str, str]:
        python = self.target.python
        match thing:
            case "cc":
                return "a C compiler", '[[invariant]] kind = "tool" tool = "cc"'
            case "python-headers":
                return (
                    f"Python.h of Python {python}",
                    f'[[invariant]] kind = "path" path = "/usr/include/python{python}/Python.h"',
                )
            case "nvcc":
                first = dict(jit_rules().toolkit)
                versions = [first[key] for gpu in self.target.gpus if (key := f"sm_{gpu.number}") in first]
                least = max(versions, key=Version, default="")
                minimum = f' min = "{least}"' if least else ""
                return (
                    "nvcc" + (f" of CUDA {least} or newer" if least else ""),
                    f'[[invariant]] kind = "tool" tool = "nvcc"{minimum}',
                )
            case _:
                return thing, f'[[invariant]] kind = "tool" tool = "{thing}"'

    def _cpu_builds(self) -> Iterator[Finding]:
        for name, scan in sorted(self.scans.items()):
            if not any(fnmatchcase(name, pattern) for pattern in jit_rules().gpu_distributions):
                continue
            binaries = [file for file in scan.files if file.kind == "elf"]
            if binaries and not any(file.has_gpu_code for file in scan.files):
                yield Finding(
                    code="W-CPU-BUILD",
                    severity="warning",
                    subject=self._shown(name),
                    expected=f"GPU code, for {shown(map(str, self.target.gpus))}",
                    found=f"none in its {len(binaries)} binaries: a CPU build of the same name",
                    hint=f"name the index of the CUDA build in [resolve] from; [package.{name}] coverage = "
                    '"files" makes this an error',
                )

    def _shown(self, name: str) -> str:
        return f"{name} {self.scans[name].version}"


def judge_driver(cuda_majors: Iterable[int], driver: str | None) -> tuple[Finding, ...]:
    """Return E-CUDA-DRIVER where the target's declared driver is too old for a CUDA runtime that is used."""
    newest = max(cuda_majors, default=0)
    least = DRIVER_OF_CUDA_MAJOR.get(newest)
    if driver is None or least is None or int(driver.partition(".")[0]) >= least:
        return ()
    return (
        Finding(
            code="E-CUDA-DRIVER",
            severity="error",
            subject=f"libcudart.so.{newest}",
            expected=f"driver {least} or newer, which CUDA {newest} needs",
            found=f"the target's driver {driver}",
            hint="take builds for an older CUDA, or state the driver that the target will have",
        ),
    )


def _told(compiler: Compiler) -> str:
    release = compiler.version or "an unknown release"
    return f"{release}, which knows sm_{compiler.oldest} to sm_{compiler.newest}"


def _public(version: str) -> str:
    return Version(version).public
