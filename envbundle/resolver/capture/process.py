"""A running server, read through /proc: variables, command line, libraries, model and cache folders.

Nothing is stopped, traced or written. What this user may not read is an error that says so.
"""

# ruff: noqa: PTH112, PTH115, PTH118, PTH120, PTH208 - /proc is read as text
from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.errors import HostError, UserInputError
from envbundle.host.files import host_error
from envbundle.inspection.elf import ElfError, read_header
from envbundle.inspection.linkage import read_needs
from envbundle.inspection.source import StreamSource

from .variables import Variables, keep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MODEL_OPTIONS = ("--model-path", "--model", "--model-dir", "--tokenizer-path", "--draft-model-path")
_WEIGHTS = (".safetensors", ".gguf", ".bin.index.json", ".safetensors.index.json")
_CACHES = re.compile(r".*(_CACHE|_CACHE_DIR|_CACHE_PATH|_CACHE_ROOT|CACHE_HOME|_WORKSPACE_BASE)")
_SYSTEM = re.compile(
    r"ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv|nsl|crypt|gcc_s|stdc\+\+|anl|nss_[a-z]+|z|bz2|lzma|ffi"
    r"|expat|uuid|ssl|crypto|sqlite3|readline|ncursesw?|tinfow?|panelw?|mvec|python3[^/]*)[.-].*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as it runs.

    ``inside`` are mapped files of the environment, below the prefix; ``outside`` are sonames of libraries of
    the host that a plain Linux does not have; ``models`` and ``caches`` are folders; ``modules`` are what
    its command line runs with ``-m``.
    """

    pid: int
    argv: tuple[str, ...]
    variables: Variables
    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    uses_environment: bool = True


def read_process(pid: int, prefixes: Sequence[str], base_prefix: str) -> Process:
    """Read process ``pid``.

    ``prefixes`` are paths of the environment, ``base_prefix`` the interpreter's own. Raises
    ``UserInputError`` (E-NO-PROCESS), ``HostError``.
    """
    base = f"/proc/{pid}"
    if not os.path.isdir(base):
        raise UserInputError("E-NO-PROCESS", f"--pid {pid}", expected="a running process", found="none")
    values = dict(_pairs(_read(f"{base}/environ")))
    argv = tuple(word.decode("utf-8", "replace") for word in _read(f"{base}/cmdline").split(b"\0") if word)
    mapped = list(dict.fromkeys(_mapped(_read(f"{base}/maps"))))
    inside = [inner for path in mapped if (inner := _below(path, prefixes)) is not None]
    hosts = [p for p in mapped if _below(p, prefixes) is None and not p.startswith(base_prefix + "/")]
    opened = [*mapped, *_open_files(base)]
    uses = bool(inside) or any(_below(word, prefixes) is not None for word in argv[:1])
    cwd = _link(f"{base}/cwd")
    return Process(
        pid=pid,
        argv=argv,
        variables=keep(values),
        inside=tuple(sorted(set(inside))),
        outside=tuple(sorted(set(_sonames(hosts)))),
        models=tuple(dict.fromkeys([*_argued(argv, cwd), *_weights(opened)])),
        caches=tuple(
            dict.fromkeys(v for k, v in sorted(values.items()) if _CACHES.fullmatch(k) and v.startswith("/"))
        ),
        modules=tuple(b for a, b in pairwise(argv) if a == "-m"),
        uses_environment=uses,
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as fault:
        raise host_error(fault, path) from fault


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _pairs(data: bytes) -> Iterator[tuple[str, str]]:
    for row in data.split(b"\0"):
        name, equals, value = row.decode("utf-8", "surrogateescape").partition("=")
        if equals:
            yield name, value


def _mapped(data: bytes) -> Iterator[str]:
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/") and not fields[5].startswith(("/dev/", "/memfd:")):
            yield fields[5].removesuffix(" (deleted)")


def _below(path: str, prefixes: Sequence[str]) -> str | None:
    return next((path[len(p) + 1 :] for p in prefixes if path.startswith(p + "/")), None)


def _open_files(base: str) -> Iterator[str]:
    try:
        names = os.listdir(f"{base}/fd")
    except OSError:
        return
    for name in names:
        target = _link(f"{base}/fd/{name}")
        if target.startswith("/"):
            yield target


def _sonames(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        name = path.rpartition("/")[2]
        if ".so" not in name or _SYSTEM.fullmatch(name):
            continue
        try:
            with Path(path).open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                source = StreamSource(stream, size)
                soname = read_needs(source, read_header(source, 0, size)).soname
        except (OSError, ElfError, HostError):
            soname = None
        if soname is not None and not _SYSTEM.fullmatch(soname):
            yield soname


def _argued(argv: Sequence[str], cwd: str) -> Iterator[str]:
    for number, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if option not in _MODEL_OPTIONS:
            continue
        place = value if equals else argv[number + 1] if number + 1 < len(argv) else ""
        path = os.path.normpath(os.path.join(cwd, place)) if place else ""
        if path and os.path.isdir(path):
            yield path


def _weights(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if path.endswith(_WEIGHTS):
            yield os.path.dirname(path)
