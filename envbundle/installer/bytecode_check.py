"""Whether bytecode is what its source compiles to, asked of the interpreter that would run it.

The interpreter is the base one, started with ``-I -S``: no code of the environment runs.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from envbundle.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from envbundle.host.run import Runner

_ASK = """
import importlib.util, json, marshal, sys, types

def same(one, other):
    if isinstance(one, types.CodeType) and isinstance(other, types.CodeType):
        drop = {"co_filename": ""}
        one, other = one.replace(**drop), other.replace(**drop)
        pairs = list(zip(one.co_consts, other.co_consts))
        return (
            len(one.co_consts) == len(other.co_consts)
            and all(same(a, b) for a, b in pairs)
            and one.replace(co_consts=()) == other.replace(co_consts=())
        )
    return type(one) is type(other) and repr(one) == repr(other)

def check(pyc):
    source_path = importlib.util.source_from_cache(pyc)
    with open(pyc, "rb") as stream:
        data = stream.read()
    if data[:4] != importlib.util.MAGIC_NUMBER:
        return False
    with open(source_path, "rb") as stream:
        source = stream.read()
    level = pyc[:-4].rpartition(".opt-")[2]
    code = compile(source, source_path, "exec", dont_inherit=True,
                   optimize=int(level) if level in ("1", "2") else 0)
    return same(marshal.loads(data[16:]), code)

fine = []
for path in json.load(sys.stdin):
    try:
        if check(path):
            fine.append(path)
    except Exception:
        pass
json.dump(fine, sys.stdout)
"""


def matches_source(root: Path, paths: Iterable[str], interpreter: Path, runner: Runner) -> set[str]:
    """Return those of ``paths`` (bytecode, relative to ``root``) that equal what their source compiles to.

    None of them where the interpreter cannot be run.
    """
    asked = {f"{root}/{path}": path for path in paths}
    if not asked or not os.access(interpreter, os.X_OK):
        return set()
    try:
        answer = runner(
            [interpreter, "-I", "-S", "-c", _ASK], stdin=json.dumps(sorted(asked)).encode(), timeout=600.0
        )
        fine = json.loads(answer.text) if answer.status == 0 else []
    except (HostError, ValueError):
        return set()
    return {asked[path] for path in fine if path in asked}
