"""Asking this machine what it is: GPUs, driver, glibc, interpreters, space.

* GPUs are asked of ``nvidia-smi`` (its CSV form; its header says up to which CUDA the driver goes). That it
  is absent, fails or lists nothing is an answer, not an error.
* An interpreter is asked itself, with ``-I``, so that nobody's environment variables or user site take part.
  What counts is the real path of the base executable, never a link or a virtual environment's python.
* Nothing is written.
"""

# ruff: noqa: PTH111, PTH118, PTH207, PTH208 - names are looked up by the hundred; text is cheaper than Path
from __future__ import annotations

import glob
import json
import os
import platform
import re
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.errors import FormatError, HostError
from envbundle.spec.target import Arch

from .files import host_error
from .run import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .run import Runner

_QUERY = ("index", "name", "uuid", "compute_cap", "driver_version", "memory.total", "mig.mode.current")
_CAPABILITY = re.compile(r"([1-9][0-9]?)\.([0-9])")
_CUDA_VERSION = re.compile(r"CUDA Version:\s*([0-9]{1,2}\.[0-9]{1,2})")
_DRIVER_MODULE = re.compile(r"(?:Kernel Module|x86_64|aarch64)\s+([0-9]{3,4}(?:\.[0-9]{1,4}){1,2})\b")
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as the driver names it.

    ``capability`` is ``9.0``; ``memory`` as printed; ``mig`` says whether it is split.
    """

    index: int
    name: str
    uuid: str
    capability: str
    memory: str = ""
    mig: bool = False

    @property
    def arch(self) -> Arch:
        """The architecture of the compute capability, ``sm_103`` for 10.3."""
        major, minor = self.capability.split(".")
        return Arch.sm(10 * int(major) + int(minor))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form for receipts and reports."""
        return {"index": self.index, "name": self.name, "capability": self.capability, "mig": self.mig}


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """What the driver says; ``driver`` and ``cuda`` (the newest it runs) are None where nobody could tell.

    ``reason`` says why no GPU is listed.
    """

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python on this machine. ``path`` is the real path of its base executable.

    ``version`` is ``3.12.3``; ``python`` is ``3.12``; ``abi`` as in ``cpython-312`` (with ``t`` for a
    free-threaded build); ``cache_tag`` what it puts into names of bytecode files; ``machine`` as of uname;
    ``libc`` as ``glibc 2.39`` ('' where it is not glibc); ``prefix`` its base prefix; ``include`` the folder
    of Python.h, '' where there is none.
    """

    path: str
    version: str
    abi: str
    machine: str
    libc: str
    prefix: str
    cache_tag: str
    include: str = ""

    @property
    def python(self) -> str:
        """``3.N``."""
        return ".".join(self.version.split(".")[:2])

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form for receipts."""
        return {
            "path": self.path,
            "version": self.version,
            "abi": self.abi,
            "machine": self.machine,
            "libc": self.libc,
            "prefix": self.prefix,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Free space of the file system that a path is or would be on.

    ``free`` is in bytes; ``inodes`` is None where the file system has no such limit. ``writable`` says
    whether this user may make something in ``path``, the nearest part that is there.
    """

    path: str
    free: int
    inodes: int | None
    device: int
    read_only: bool = False
    noexec: bool = False
    writable: bool = True


def devices(runner: Runner) -> Devices:
    """Return the GPUs, the driver and the newest CUDA it runs; see the module."""
    program = find_program("nvidia-smi")
    if program is None:
        return Devices(driver=_kernel_driver(), reason="nvidia-smi is not there")
    try:
        listed = runner(
            [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"], timeout=_TIMEOUT
        )
        header = runner([program], timeout=_TIMEOUT)
    except HostError as fault:
        return Devices(driver=_kernel_driver(), reason=f"nvidia-smi: {fault.found or fault.code}")
    if listed.status:
        said = (listed.text + listed.error_text).strip().splitlines()
        return Devices(
            driver=_kernel_driver(), reason=said[0][:200] if said else f"nvidia-smi ended {listed.status}"
        )
    gpus, driver = read_gpus(listed.text)
    return Devices(
        gpus=gpus,
        driver=driver or _kernel_driver(),
        cuda=read_cuda_version(header.text),
        reason="" if gpus else "nvidia-smi lists no GPU",
    )


def read_gpus(text: str) -> tuple[tuple[Gpu, ...], str | None]:
    """Read ``nvidia-smi --query-gpu=... --format=csv,noheader``; return the GPUs and the driver's version.

    Columns are those of the module's query. Lines that do not fit (a GPU that fell off the bus prints text)
    are left out. A GPU's name holds no comma.
    """
    gpus: list[Gpu] = []
    driver: str | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_QUERY) or not cells[0].isdecimal() or not _CAPABILITY.fullmatch(cells[3]):
            continue
        driver = cells[4] if re.fullmatch(r"[0-9]+(\.[0-9]+){1,2}", cells[4]) else driver
        gpu = Gpu(
            index=int(cells[0]),
            name=cells[1],
            uuid=cells[2],
            capability=cells[3],
            memory=cells[5],
            mig=cells[6] == "Enabled",
        )
        gpus.append(gpu)
    return tuple(gpus), driver


def read_cuda_version(text: str) -> str | None:
    """Return ``13.0`` of the header that ``nvidia-smi`` prints, or None."""
    match = _CUDA_VERSION.search(text)
    return match[1] if match else None


def _kernel_driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = _DRIVER_MODULE.search(text)
    return match[1] if match else None


def glibc() -> str | None:
    """Return the version of this system's glibc (``2.39``), or None where it is another libc."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        text = ""
    name, _, version = text.partition(" ")
    return version if name == "glibc" and version else None


def machine() -> str:
    """Return ``x86_64`` or ``aarch64`` (or whatever the kernel calls it)."""
    found = platform.machine()
    return {"amd64": "x86_64", "AMD64": "x86_64", "arm64": "aarch64"}.get(found, found)


_ASK = """\
import json, os, platform, sys, sysconfig
base = getattr(sys, "_base_executable", None) or sys.executable
tag = sys.implementation.cache_tag or ""
places = {"installed_base": sys.base_prefix, "base": sys.base_prefix}
include = sysconfig.get_path("include", vars=places) or ""
print(json.dumps({
    "path": os.path.realpath(base),
    "version": "%d.%d.%d" % sys.version_info[:3],
    "name": sys.implementation.name,
    "abi": tag + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") and not tag.endswith("t") else ""),
    "machine": platform.machine(),
    "libc": " ".join(platform.libc_ver()).strip(),
    "prefix": sys.base_prefix,
    "cache_tag": tag,
    "include": include if os.path.exists(os.path.join(include, "Python.h")) else "",
}))
"""


def ask_interpreter(path: str | Path, runner: Runner) -> Interpreter | None:
    """Return what the Python at ``path`` says of itself, or None if it cannot be run or is no CPython 3."""
    try:
        answer = runner([path, "-I", "-c", _ASK], timeout=_TIMEOUT)
        value = json.loads(answer.text) if answer.status == 0 else None
    except (HostError, ValueError):
        return None
    if not isinstance(value, dict) or value.get("name") != "cpython":
        return None
    keys = ("path", "version", "abi", "machine", "libc", "prefix", "cache_tag", "include")
    if not all(isinstance(value.get(key), str) for key in keys):
        return None
    return Interpreter(**{key: value[key] for key in keys})


def interpreters(python: str, runner: Runner) -> Iterator[Interpreter]:
    """Yield the Pythons ``3.N`` of this machine, each real executable once, in order of preference.

    Looked at: this very interpreter's base, ``python3.N`` and ``python3`` on PATH, then the usual places of
    distributions, pyenv, uv and conda.
    """
    seen: set[str] = set()
    asked: set[str] = set()
    for candidate in _candidates(python):
        real = os.path.realpath(candidate)
        if real in asked or not os.access(candidate, os.X_OK):
            continue
        asked.add(real)
        found = ask_interpreter(candidate, runner)
        if found is not None and found.python == python and found.path not in seen:
            seen.add(found.path)
            yield found


def _candidates(python: str) -> Iterator[str]:
    if ".".join(map(str, sys.version_info[:2])) == python:
        yield getattr(sys, "_base_executable", None) or sys.executable
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if folder:
            yield os.path.join(folder, f"python{python}")
    for folder in ("/usr/bin", "/usr/local/bin", "/opt/python/bin"):
        yield os.path.join(folder, f"python{python}")
    home = os.path.expanduser("~")
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    roots = [
        os.path.join(
            glob.escape(os.environ.get("PYENV_ROOT") or os.path.join(home, ".pyenv")), f"versions/{python}.*"
        ),
        os.path.join(glob.escape(data), f"uv/python/cpython-{python}.*"),
        f"/opt/python*{python}*",
        "/opt/*conda*",
    ]
    for pattern in roots:
        for root in sorted(glob.glob(pattern), reverse=True):
            yield os.path.join(root, "bin", f"python{python}")
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if folder:
            yield os.path.join(folder, "python3")


def volume(path: Path) -> Volume:
    """Return what an ordinary user has free where ``path`` is, or would be; raises ``HostError``."""
    place = existing(path)
    try:
        status = os.statvfs(place)
        device = place.stat().st_dev
    except OSError as fault:
        raise host_error(fault, place) from fault
    return Volume(
        path=str(place),
        free=status.f_bavail * status.f_frsize,
        inodes=status.f_favail if status.f_files else None,
        device=device,
        read_only=bool(status.f_flag & os.ST_RDONLY),
        noexec=bool(status.f_flag & os.ST_NOEXEC),
        writable=os.access(place, os.W_OK | os.X_OK),
    )


def existing(path: Path) -> Path:
    """Return the nearest part of ``path`` that is there (links followed)."""
    for place in (path, *path.parents):
        if place.exists():
            return place
    return Path("/")


def folds_case(folder: Path) -> bool:
    """Say whether ``folder`` takes names that differ by case for one, as far as looking can tell."""
    place = existing(folder)
    try:
        names = [name for name in os.listdir(place) if name.swapcase() != name][:8]
        pairs = [(place / name, place / name.swapcase()) for name in names]
    except OSError:
        pairs = []
    if place.name.swapcase() != place.name:
        pairs.append((place, place.with_name(place.name.swapcase())))
    for one, other in pairs:
        try:
            if os.path.samestat(one.lstat(), other.lstat()):
                return True
        except OSError:  # noqa: PERF203 - a few names
            continue
    return False


def fold(path: str) -> str:
    """Return the name that a case-insensitive, normalising file system would take ``path`` for."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def twins(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of paths (folders included) that would be one on such a file system, sorted."""
    first: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for path in paths:
        end = len(path)
        while end > 0:
            part = path[:end]
            folded = fold(part)
            known = first.setdefault(folded, part)
            if known == part and end != len(path):
                break  # the folder, and so its parents, were seen before
            if known != part:
                pairs.append((known, part))
            end = part.rfind("/")
    return sorted(set(pairs))


def read_version(text: str) -> tuple[int, ...]:
    """Return a dotted version as numbers, for comparing drivers, glibc and CUDA; raises ``FormatError``."""
    try:
        return tuple(int(part) for part in text.split("."))
    except ValueError as fault:
        raise FormatError(
            "E-FORMAT", "version", expected="numbers and dots", found=repr(text[:40])
        ) from fault
