"""C++ symbols that modules want of the libraries they are linked with, against what those export here.

* Judged per module: Python loads it with all symbols bound at once, in the scope of its link closure. A name
  that no file of that scope exports makes the import fail, whatever the wheel's tags say.
* Names of the C++ runtime are left out: its versions are judged by ``glibc``.
* A name is held against a library only where it must come from one that is here: its namespace is one that
  the scope exports, or nothing of the scope but plain C libraries is missing.
* A name that another file of the environment exports is a warning: it may be loaded globally before.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from envbundle.inspection.demangle import demangle
from envbundle.inspection.symbols import namespace
from envbundle.spec.finding import Finding
from envbundle.spec.symbols import symbol_hash

from .libraries import library_rules
from .sonames import shown, subject_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .closure import Closure, Linkage
    from .placed import PlacedFile

_RUNTIME = re.compile(
    r"_Z(?:T[ISVT]|GV)?(?:N[KVrRO]*)?(?:S[tabsiod]|9__gnu_cxx|10__cxxabiv1|n[wa]|d[la]|T[ISV][a-z]|T[ISV]P)"
)
_LISTED = 5


def judge_abi(linkage: Linkage, built_for: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return E-ABI for modules that want C++ names which the libraries here do not export.

    ``built_for`` says, by distribution, what a wheel tells of the torch it was built for.
    """
    wanted = {file.path: _wanted(file) for file in linkage.files if file.symbols.wanted}
    every = {number for names in wanted.values() for number in names}
    exported = {
        file.path: every.intersection(file.symbols.exported_hashes)
        for file in linkage.files
        if file.symbols.exported
    }
    anywhere = set[int]().union(*exported.values())
    absent: dict[PlacedFile, dict[int, str]] = {}
    scopes: dict[PlacedFile, Closure] = {}
    for closure in linkage.closures:
        here = set[int]().union(*(exported.get(file.path, set()) for file in closure.files))
        for file in closure.files:
            names = {n: name for n, name in wanted.get(file.path, {}).items() if n not in here}
            known = absent.get(file)
            absent[file] = names if known is None else {n: known[n] for n in known.keys() & names.keys()}
            scopes.setdefault(file, closure)
    refused: dict[tuple[str, str], dict[PlacedFile, list[str]]] = defaultdict(dict)
    for file, names in absent.items():
        for number, name in sorted(names.items(), key=lambda item: item[1]):
            code = _code(scopes[file], name, elsewhere=number in anywhere)
            if code:
                refused[file.distribution, code].setdefault(file, []).append(name)
    return tuple(
        _finding(code, files, scopes, built_for.get(distribution, ""))
        for (distribution, code), files in sorted(refused.items())
    )


def _wanted(file: PlacedFile) -> dict[int, str]:
    return {
        symbol_hash(name.encode("utf-8", "surrogateescape")): name
        for name in file.symbols.wanted
        if not _RUNTIME.match(name)
    }


def _code(scope: Closure, name: str, *, elsewhere: bool) -> str:
    """Return the code for an absent name: E-ABI, W-ABI-SCOPE, or '' where nothing can be said."""
    if elsewhere:
        return "W-ABI-SCOPE"
    rules = library_rules()
    if any(not rules.is_plain_c(missing.soname) for missing in scope.missing):
        return ""
    space = namespace(name.encode("utf-8", "surrogateescape"))
    libraries = [file for file in scope.files if file is not scope.root]
    if space is not None and any(space in file.symbols.namespaces for file in libraries):
        return "E-ABI"
    complete = not any(not rules.is_given(missing.soname) for missing in scope.missing)
    return "E-ABI" if complete and any(file.symbols.exported for file in libraries) else ""


def _finding(
    code: str, files: Mapping[PlacedFile, list[str]], scopes: Mapping[PlacedFile, Closure], built_for: str
) -> Finding:
    names = list(dict.fromkeys(name for each in files.values() for name in each))
    spaces = {namespace(name.encode("utf-8", "surrogateescape")) for name in names}
    providers = {
        library.owner
        for file in files
        for library in scopes[file].files
        if library is not file and (spaces & set(library.symbols.namespaces) or None in spaces)
    } - {file.owner for file in files}
    readable = [demangle(name) for name in sorted(names, key=len)]
    if code == "W-ABI-SCOPE":
        return Finding(
            code=code,
            severity="warning",
            subject=subject_of(list(files)),
            expected=shown(readable, _LISTED),
            found="exported by files that it is not linked with",
            hint="works only where those were loaded for all to see (RTLD_GLOBAL) before",
        )
    owners = shown(sorted(providers)) or "the libraries that it is linked with"
    told = f"; it says that it was built for {built_for}" if built_for else ""
    return Finding(
        code=code,
        severity="error",
        subject=subject_of(list(files)),
        expected=f"C++ symbols that it wants: {shown(readable, _LISTED)}",
        found=f"{len(names)} of them not exported by {owners}{told}",
        hint=f"it was built against another release: take its build for {owners}, or that other release",
    )
