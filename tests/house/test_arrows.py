"""Who may import whom: docs/design.md, "Rooms and arrows"."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .source import PACKAGE, Import, imports_of, module_files, relative, room_of, run_at_import

if TYPE_CHECKING:
    from pathlib import Path

BASE = {"errors", "progress", "schemas"}
ARROWS: dict[str, set[str]] = {
    "": set(),
    "errors": set(),
    "progress": set(),
    "schemas": set(),
    "bootstrap": set(),
    "spec": set(),
    "host": {"spec"},
    "inspection": {"spec"},
    "trust": {"spec"},
    "store": {"spec", "host"},
    "transfer": {"store", "host", "trust", "spec"},
    "resolver": {"inspection", "host", "spec"},
    "bundler": {"store", "trust", "inspection", "host", "spec"},
    "installer": {"store", "trust", "inspection", "host", "spec"},
    "api": {"spec", "host", "inspection", "trust", "store", "transfer", "resolver", "bundler", "installer"},
    "cli": {"api", "spec"},
    "__main__": {"cli"},
}
FAR_HOST = ("spec", "host", "inspection", "trust", "store", "installer", "errors", "progress", "schemas")
# Third-party modules, each with the places that may import it and whether only inside a function.
FAR_HOST_LIBRARIES = {"packaging", "zstandard", "cryptography"}
LAZY_LIBRARIES: dict[str, tuple[str, ...]] = {
    "tomlkit": ("envbundle/",),
    "tomli": ("envbundle/",),
    "bcrypt": ("envbundle/trust/",),
    "backports": ("envbundle/store/",),
    "httpx": ("envbundle/host/fetch.py",),
    "uv": ("envbundle/resolver/", "envbundle/host/"),
}
CRYPTOGRAPHY_HOME = "envbundle/trust/algorithms.py"
PROCESSES = {
    "subprocess",
    "concurrent.futures.ProcessPoolExecutor",
    "multiprocessing",
    "pty",
    "asyncio.subprocess",
    "concurrent.futures.process",
}
PROCESS_CALLS = {"os.system", "os.popen", "os.fork", "os.forkpty", "os.startfile", "pty.spawn"}
NETWORK = {
    "socket",
    "ssl",
    "http",
    "urllib.request",
    "ftplib",
    "smtplib",
    "socketserver",
    "xmlrpc",
    "httpx",
    "requests",
}
NETWORK |= {"urllib3", "httpcore", "asyncio", "telnetlib", "poplib", "imaplib", "nntplib"}
# The first stage of install.pyz stands alone: it becomes another Python where only that one is served.
PROCESS_HOMES = {"envbundle/host/run.py", "envbundle/bootstrap/first_stage.py"}
NETWORK_HOMES = {"envbundle/host/fetch.py", "envbundle/host/agent.py"}
# Names of the standard library that Linux has and a Mac has not.
LINUX_ONLY_MODULES = {"ossaudiodev", "spwd", "msvcrt", "winreg", "_winapi"}
LINUX_ONLY_NAMES = {
    *(f"os.{name}" for name in ("unshare", "setns", "memfd_create", "copy_file_range", "sched_getaffinity")),
    *(
        f"os.{name}"
        for name in ("posix_fadvise", "posix_fallocate", "pidfd_open", "eventfd", "splice", "getrandom")
    ),
    *(
        f"os.{name}"
        for name in ("getxattr", "setxattr", "listxattr", "O_TMPFILE", "O_PATH", "O_DIRECT", "O_NOATIME")
    ),
    *("os.CLONE_NEWNET", "os.CLONE_NEWUSER", "select.epoll", "resource.prlimit", "signal.pidfd_send_signal"),
}
OPENING_CALLS = {"open", "io.open", "os.open", "os.scandir", "os.listdir", "os.walk", "os.stat", "os.lstat"}
OPENING_METHODS = {
    "read_bytes",
    "read_text",
    "write_bytes",
    "write_text",
    "iterdir",
    "rglob",
    "glob",
    "mkdir",
}


def within(module: str, names: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def arrow_faults(source: str, path: Path) -> list[str]:
    """Imports of other rooms that the table does not allow."""
    own = room_of(path)
    faults = []
    for item in imports_of(source, path):
        if not within(item.module, {"envbundle"}) or item.module == "envbundle":
            continue
        room = item.module.split(".")[1]
        if room not in ARROWS:
            # `from envbundle import __version__` and the like name no room.
            if (PACKAGE / room).exists() or (PACKAGE / f"{room}.py").exists():
                faults.append(
                    f"{relative(path)}:{item.line} imports {item.module}: a room that is in no table"
                )
            continue
        if room != own and room not in BASE | ARROWS.get(own, set()):
            faults.append(f"{relative(path)}:{item.line} {own} -> {room}")
        elif own in BASE and room != own:
            faults.append(f"{relative(path)}:{item.line} {own} -> {room}: it may import nothing")
    return faults


def library_fault(item: Import, path: Path) -> str:
    """Why this import of a third-party module is not allowed there, or ''."""
    top = item.module.split(".")[0]
    where = f"{relative(path)}:{item.line} imports {item.module}"
    if (
        top in sys.stdlib_module_names
        or top in ("envbundle", "compression", "tomllib", "__future__")
        or item.typing_only
    ):
        return ""
    if top in LAZY_LIBRARIES:
        if not relative(path).startswith(LAZY_LIBRARIES[top]):
            return f"{where}: only {', '.join(LAZY_LIBRARIES[top])} may"
        return (
            ""
            if item.lazy
            else f"{where} when it is imported itself: import it inside the function that needs it"
        )
    if top in FAR_HOST_LIBRARIES:
        # --help must stay cheap: cryptography costs more than the whole command line.
        heavy = top == "cryptography" and not item.lazy and relative(path) != CRYPTOGRAPHY_HOME
        return f"{where} when it is imported itself: only {CRYPTOGRAPHY_HOME} may" if heavy else ""
    return f"{where}: no such dependency"


def process_faults(source: str, path: Path) -> list[str]:
    faults = [
        f"{relative(path)}:{item.line} imports {item.module}"
        for item in imports_of(source, path)
        if within(item.module, PROCESSES) and not item.typing_only
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name in PROCESS_CALLS or name.startswith(("os.exec", "os.spawn", "os.posix_spawn")):
                faults.append(f"{relative(path)}:{node.lineno} uses {name}")
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            faults += [
                f"{relative(path)}:{node.lineno} imports os.{alias.name}"
                for alias in node.names
                if f"os.{alias.name}" in PROCESS_CALLS
                or alias.name.startswith(("exec", "spawn", "posix_spawn"))
            ]
    return faults


def network_faults(source: str, path: Path) -> list[str]:
    return [
        f"{relative(path)}:{item.line} imports {item.module}"
        for item in imports_of(source, path)
        if within(item.module, NETWORK) and not item.typing_only
    ]


def linux_faults(source: str, path: Path) -> list[str]:
    """What would fail on a Mac when the module is imported there."""
    faults = [
        f"{relative(path)}:{item.line} imports {item.module}"
        for item in imports_of(source, path)
        if not item.lazy and within(item.module, LINUX_ONLY_MODULES)
    ]
    for node in run_at_import(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in LINUX_ONLY_NAMES:
            faults.append(f"{relative(path)}:{node.lineno} uses {ast.unparse(node)} at import")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "CDLL",
            "LoadLibrary",
        ):
            faults.append(f"{relative(path)}:{node.lineno} loads a library at import")
    return faults


FILES = [pytest.param(path, id=relative(path)) for path in module_files()]


def test_every_room_is_in_the_table() -> None:
    rooms = {room_of(path) for path in module_files()}
    assert rooms <= set(ARROWS), f"rooms without arrows: {sorted(rooms - set(ARROWS))}"


def test_the_table_has_no_circle() -> None:
    done: set[str] = set()
    while len(done) < len(ARROWS):
        free = {room for room, targets in ARROWS.items() if room not in done and targets <= done}
        assert free, f"a circle among {sorted(set(ARROWS) - done)}"
        done |= free


@pytest.mark.parametrize("path", FILES)
def test_imports_follow_the_arrows(path: Path) -> None:
    assert arrow_faults(path.read_text("utf-8"), path) == []


@pytest.mark.parametrize("path", FILES)
def test_libraries_are_the_declared_ones(path: Path) -> None:
    faults = [
        fault for item in imports_of(path.read_text("utf-8"), path) if (fault := library_fault(item, path))
    ]
    assert faults == []


@pytest.mark.parametrize("path", [p for p in FILES if p.id not in PROCESS_HOMES])
def test_only_host_run_starts_processes(path: Path) -> None:
    assert process_faults(path.read_text("utf-8"), path) == []


@pytest.mark.parametrize("path", [p for p in FILES if p.id not in NETWORK_HOMES])
def test_only_host_fetch_opens_sockets(path: Path) -> None:
    assert network_faults(path.read_text("utf-8"), path) == []


def test_the_agent_speaks_to_a_unix_socket_alone() -> None:
    for path in PACKAGE.glob("host/agent.py"):
        text = path.read_text("utf-8")
        assert "AF_UNIX" in text
        assert "AF_INET" not in text
        assert {item.module for item in imports_of(text, path) if within(item.module, NETWORK)} == {"socket"}


@pytest.mark.parametrize("path", FILES)
def test_nothing_linux_only_runs_at_import(path: Path) -> None:
    assert linux_faults(path.read_text("utf-8"), path) == []


JUDGES = [pytest.param(p, id=relative(p)) for p in module_files() if room_of(p) in ("inspection", "trust")]


@pytest.mark.parametrize("path", JUDGES)
def test_judges_open_nothing(path: Path) -> None:
    """inspection and trust are fed buffers and streams."""
    opened = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in OPENING_CALLS or (
                isinstance(node.func, ast.Attribute) and node.func.attr in OPENING_METHODS
            ):
                opened.append(f"{node.lineno}: {name}")
    assert opened == []


def test_far_host_rooms_import_with_the_packing_side_absent() -> None:
    """Each module of the far host's rooms imports where only its three libraries are installed."""
    modules = [
        relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in module_files()
        if room_of(path) in FAR_HOST
    ]
    absent = sorted(
        set(LAZY_LIBRARIES) - {"tomli"}
    )  # Python 3.10 reads TOML with it, on the packing side alone
    program = "import sys, importlib\n"
    program += f"for name in {absent!r}: sys.modules[name] = None\n"
    program += f"for name in {modules!r}: importlib.import_module(name)\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


SAMPLE = PACKAGE / "spec" / "sample.py"
BAD = {
    "another room": ("from envbundle.store.layout import Store\n", arrow_faults),
    "inside a function": ("def f():\n    import envbundle.cli.main\n", arrow_faults),
    "for typing": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from envbundle.api import pack\n",
        arrow_faults,
    ),
    "relative": ("from ..resolver import judge\n", arrow_faults),
    "relative room": ("from .. import host\n", arrow_faults),
    "by name": ("import importlib\nx = importlib.import_module('envbundle.installer')\n", arrow_faults),
    "subprocess": ("from subprocess import run\n", process_faults),
    "fork": ("import os\nos.fork()\n", process_faults),
    "exec": ("import os\ndef f():\n    os.execvp('a', ['a'])\n", process_faults),
    "imported exec": ("from os import execv\n", process_faults),
    "spawn": ("import os\nos.posix_spawn('/bin/true', [], {})\n", process_faults),
    "sockets": ("def f():\n    import socket\n", network_faults),
    "http": ("from http.client import HTTPConnection\n", network_faults),
    "urllib": ("from urllib import request\n", network_faults),
    "linux at import": ("import os\nFLAG = os.O_TMPFILE\n", linux_faults),
    "linux as a default": ("import os\ndef f(flag=os.O_PATH): ...\n", linux_faults),
    "libc at import": ("import ctypes\nLIBC = ctypes.CDLL(None)\n", linux_faults),
}


@pytest.mark.parametrize(("source", "rule"), BAD.values(), ids=BAD.keys())
def test_each_rule_sees_its_fault(source: str, rule: object) -> None:
    assert callable(rule)
    assert len(rule(source, SAMPLE)) >= 1


GOOD = {
    "own room": "from .digest import Digest\nfrom envbundle.errors import FormatError\n",
    "parse only": "from urllib.parse import urlsplit\n",
    "linux inside a function": "import os\ndef f():\n    return os.O_TMPFILE\n",
}


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD.keys())
def test_no_rule_cries_wolf(source: str) -> None:
    assert [
        f
        for rule in (arrow_faults, process_faults, network_faults, linux_faults)
        for f in rule(source, SAMPLE)
    ] == []
