"""Bundled GPU compilers, read from their bytes and never run: release and targets.

* The release stands in the banner that ``--version`` prints (``release 12.9, V12.9.86``).
* Targets are the names that the program compares its ``--gpu-name`` with: whole strings ``sm_103a`` in ptxas
  and nvcc, ``-arch=compute_103a`` in NVRTC, whose ``sm_`` strings are of another table.
* ptxas names targets that it only knows to refuse; ``Compiler.compiles`` cuts them off by the release.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envbundle.spec.compiler import Compiler

if TYPE_CHECKING:
    from envbundle.spec.compiler import CompilerKind

    from .source import Source

_NAMES: tuple[tuple[re.Pattern[str], CompilerKind], ...] = (
    (re.compile(r"ptxas(?:-[a-z0-9]+)?"), "ptxas"),
    (re.compile(r"nvcc(?:\.bin)?"), "nvcc"),
    (re.compile(r"libnvrtc(?:\.alt)?\.so(?:\.[0-9.]+)?"), "nvrtc"),
    (re.compile(r"libnvrtc-[0-9a-f]+\.so(?:\.[0-9.]+)?"), "nvrtc"),
    (re.compile(r"libnvJitLink\.so(?:\.[0-9.]+)?"), "nvjitlink"),
)
_RELEASE = re.compile(rb"release [0-9]{1,3}\.[0-9]{1,3}, V([0-9]{1,3}(?:\.[0-9]{1,6}){1,3})")
_SM = re.compile(rb"\0(?:sm|compute)_([0-9]{2,3}[af]?)(?=\0)")
_NVRTC = re.compile(rb"-arch=compute_([0-9]{2,3}[af]?)(?=\0)")
_WINDOW, _OVERLAP = 1 << 20, 64


def compiler_kind(name: str) -> CompilerKind | None:
    """Return what compiler a file's name says it is; None for any other file."""
    base = name.rpartition("/")[2]
    return next((kind for pattern, kind in _NAMES if pattern.fullmatch(base)), None)


def read_compiler(name: str, source: Source) -> Compiler | None:
    """Return the compiler that the file is, None where its name is none or its bytes say nothing."""
    kind = compiler_kind(name)
    if kind is None:
        return None
    version, targets, tail = "", set[str](), b""
    pattern = _NVRTC if kind == "nvrtc" else _SM
    for at in range(0, source.size, _WINDOW):
        window = tail + source.read(at, _WINDOW)
        if not version and (release := _RELEASE.search(window)):
            version = release[1].decode()
        targets.update(match[1].decode() for match in pattern.finditer(window))
        tail = window[-_OVERLAP:]
    if not version and not targets:
        return None
    return Compiler(kind=kind, version=version, targets=tuple(sorted(targets, key=_rank)))


def _rank(target: str) -> tuple[int, str]:
    return int(target.rstrip("af")), target
