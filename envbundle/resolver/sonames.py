"""Judgement of the link closure: what no file satisfies, what must be loaded first, what must not be packed.

* An unsatisfied NEEDED of a file that an import or a program of the environment loads is E-SONAME; of a file
  that only ``dlopen`` could load it is a note, as in optional plugins for fabrics nobody has there.
* The manifest's ``[[invariant]] kind = "library"`` names what the host will have; platform tags promise some
  libraries that a bare host may lack (W-HOST-LIBRARY).
* CUDA releases are told by sonames and files, never by the names of distributions.
* A driver's own library inside an environment hides the host's: E-DRIVER-PACKED where the loader finds it.
"""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from envbundle.spec.finding import Finding, Severity

from .closure import Elsewhere, Linkage, Missing, foreign_folders
from .libraries import is_python_library, library_rules, soname_stem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .placed import PlacedFile

_SHOWN = 4


def judge_sonames(
    linkage: Linkage, *, declared: Iterable[str] = (), source_libraries: Sequence[str] | None = None
) -> tuple[Finding, ...]:
    """Return the findings about sonames and search paths.

    ``declared`` are sonames that the manifest demands of the host. ``source_libraries`` are those that the
    source machine's own loader found outside its environment, None where nobody recorded them: what was
    missing there too is a note.
    """
    declared = frozenset(declared)
    unsatisfied: dict[tuple[str, str], list[PlacedFile]] = defaultdict(list)
    for missing in dict.fromkeys(m for closure in linkage.closures for m in closure.missing):
        if missing.soname not in declared:
            unsatisfied[missing.file.distribution, missing.soname].append(missing.file)
    plugins: dict[tuple[str, str], list[PlacedFile]] = defaultdict(list)
    for file in linkage.files:
        if file.path not in linkage.reachable:
            for missing in linkage.alone(file):
                if missing.soname not in declared:
                    plugins[missing.file.distribution, missing.soname].append(file)
    findings = [_missing(linkage, *group, source_libraries) for group in _by_remedy(unsatisfied)]
    findings += _plugins(plugins)
    findings += _load_order(linkage)
    findings += _driver_files(linkage)
    findings += _foreign(linkage)
    findings += _families(linkage)
    return tuple(findings)


def sorted_items(
    grouped: dict[tuple[str, str], list[PlacedFile]],
) -> list[tuple[tuple[str, str], list[PlacedFile]]]:
    """Return the items by key."""
    return sorted(grouped.items(), key=lambda item: item[0])


def subject_of(files: Sequence[PlacedFile]) -> str:
    """Name the distribution and its first file, and how many more."""
    first = min(files, key=lambda file: file.path)
    more = len({file.path for file in files}) - 1
    return f"{first.owner} {first.scan.path}" + (f" and {more} more" if more > 0 else "")


def shown(names: Iterable[str], limit: int = _SHOWN) -> str:
    """List names, the first of many."""
    every = list(dict.fromkeys(names))
    return ", ".join(every[:limit]) + (f" and {len(every) - limit} more" if len(every) > limit else "")


def _by_remedy(
    unsatisfied: dict[tuple[str, str], list[PlacedFile]],
) -> Iterator[tuple[list[str], list[PlacedFile]]]:
    """Yield sonames of one distribution that one thing would bring, with the files that want them."""
    grouped: dict[tuple[str, str], tuple[list[str], list[PlacedFile]]] = {}
    for (distribution, soname), files in sorted_items(unsatisfied):
        remedy = library_rules().bringer(soname).partition(" ")[0] or soname
        sonames, every = grouped.setdefault((distribution, remedy), ([], []))
        sonames.append(soname)
        every += files
    yield from grouped.values()


def _missing(
    linkage: Linkage, sonames: list[str], files: list[PlacedFile], source: Sequence[str] | None
) -> Finding:
    rules = library_rules()
    code, severity = "E-SONAME", "error"
    found, hint = _found(linkage, sonames, files), _way_out(sonames)
    if all(is_python_library(soname) for soname in sonames):
        code, severity = "W-HOST-LIBRARY", "warning"
        found = "nothing: it is the shared library of an interpreter, which some builds of Python lack"
        hint = f"see that the target's interpreter has it, by {_declaration(sonames)}"
    elif all(rules.is_common(soname) for soname in sonames):
        code, severity = "W-HOST-LIBRARY", "warning"
        found = "nothing in the environment: platform tags let a wheel expect it of the host"
        hint = f"a bare host may lack it; to have it checked: {_declaration(sonames)}"
    elif all(rules.is_optional(file.distribution, soname) for file in files for soname in sonames):
        code, severity = "N-SONAME", "note"
        hint = "the distribution imports that part only where the library is there"
    elif source is None and _built_for_outside(linkage, files):
        code, severity = "W-SONAME-OUTSIDE", "warning"
        hint = f"the environment holds no torch, so it must come from outside with its libraries; {hint}"
    elif source is not None:
        lost = [soname for soname in sonames if soname in source]
        if lost:
            found += f"; lost: the source machine had {shown(lost)} outside its environment"
        else:
            code, severity = "N-NEVER-HAD", "note"
            hint = "the source machine had it nowhere and ran without"
    return _finding(
        code, severity, subject_of(files), f"{', '.join(sonames)}, as it is linked with", found, hint
    )


def _built_for_outside(linkage: Linkage, files: Sequence[PlacedFile]) -> bool:
    """Say whether these files belong to a distribution that extends torch where no torch is packed.

    An image or module path outside brings torch then, and with it the CUDA libraries that torch brings.
    """
    if any(_is_torch(file.needs.soname or file.name) for file in linkage.files):
        return False
    distributions = {file.distribution for file in files}
    extending = {
        file.distribution
        for file in linkage.files
        if any(_is_torch(soname) for soname in file.needs.sonames)
    }
    return distributions <= extending


def _is_torch(soname: str) -> bool:
    return soname.startswith(("libtorch", "libc10"))


def _found(linkage: Linkage, sonames: Sequence[str], files: Sequence[PlacedFile]) -> str:
    stems = {soname_stem(soname) for soname in sonames}
    near = sorted(
        {
            f"{name} ({file.owner})"
            for file in linkage.files
            for name in (file.needs.soname or file.name,)
            if soname_stem(name) in stems and name not in sonames
        }
    )
    text = "no such file in the environment"
    if near:
        text += f"; it has {shown(near)}"
    folders = sorted({folder for file in files for folder in foreign_folders(file)})
    if folders:
        text += f"; its search path names {shown(folders)} of the machine that built it"
    return text


def _way_out(sonames: Sequence[str]) -> str:
    bringer = library_rules().bringer(sonames[0])
    host = f"where the host has it: {_declaration(sonames)}"
    if bringer.startswith("the host"):
        return f"of {bringer}; {host}"
    return f"{bringer} brings it; {host}" if bringer else host


def _declaration(sonames: Sequence[str]) -> str:
    return ", ".join(f'[[invariant]] kind = "library" soname = "{soname}"' for soname in sonames)


def _plugins(plugins: dict[tuple[str, str], list[PlacedFile]]) -> Iterator[Finding]:
    """One note per distribution: nothing imports these files."""
    by_owner: dict[str, dict[str, list[PlacedFile]]] = defaultdict(dict)
    for (distribution, soname), files in sorted_items(plugins):
        by_owner[distribution][soname] = files
    for sonames in by_owner.values():
        files = [file for each in sonames.values() for file in each]
        yield _finding(
            "N-SONAME",
            "note",
            subject_of(files),
            f"{shown(sonames, 8)}, for files that nothing here imports",
            "no such files in the environment",
            "plugins that are opened by name where the host has these libraries",
        )


def _load_order(linkage: Linkage) -> Iterator[Finding]:
    grouped: dict[tuple[str, str], list[Elsewhere]] = defaultdict(list)
    by_import = linkage.imported_files()
    for item in dict.fromkeys(e for closure in linkage.closures for e in closure.elsewhere):
        importers = by_import.get(item.provider.path, set()) - {item.file.distribution}
        known = item.provider.distribution if item.provider.distribution in importers else ""
        first = known or next(iter(sorted(importers)), "")
        grouped[item.file.distribution, first].append(item)
    for (_, first), items in sorted(grouped.items()):
        files = [item.file for item in items]
        names = [f"{item.soname} ({item.provider.distribution})" for item in items]
        if first:
            yield _finding(
                "N-LOAD-ORDER",
                "note",
                subject_of(files),
                shown(names, 8),
                "on no search path of the file: loaded by the time that it is wanted, or not found",
                f"needs {first} imported first, as its own code does if it imports {first}",
            )
        else:
            yield _finding(
                "W-LOAD-ORDER",
                "warning",
                subject_of(files),
                shown(names, 8),
                "on no search path of the file, and loaded by no import of the environment",
                "works only where something opens these libraries by their path before",
            )


def _driver_files(linkage: Linkage) -> Iterator[Finding]:
    rules = library_rules()
    used = {file.path for closure in linkage.closures for file in closure.files}
    for file in linkage.files:
        name = file.needs.soname or file.name
        if not (rules.is_driver(name) or rules.is_driver(file.name)):
            continue
        stub = "stubs" in file.folder.split("/")
        if file.path in used or not stub:
            yield _finding(
                "E-DRIVER-PACKED",
                "error",
                f"{file.owner} {file.scan.path}",
                f"{name} of the host's GPU driver",
                "a stub for linking, on a search path" if stub else "a copy of it in the environment",
                "remove the file: a driver's library must be the one of the running kernel",
            )
        else:
            yield _finding(
                "N-DRIVER-STUB",
                "note",
                f"{file.owner} {file.scan.path}",
                f"{name} of the host's GPU driver",
                "a stub for linking, on no search path",
                "harmless unless LD_LIBRARY_PATH names its folder",
            )


def _foreign(linkage: Linkage) -> Iterator[Finding]:
    grouped: dict[str, list[PlacedFile]] = defaultdict(list)
    for file in linkage.files:
        if foreign_folders(file):
            grouped[file.distribution].append(file)
    for _, files in sorted(grouped.items()):
        folders = [folder for file in files for folder in foreign_folders(file)]
        yield _finding(
            "W-RUNPATH",
            "warning",
            subject_of(files),
            "search paths below $ORIGIN",
            shown(sorted(folders)),
            "a folder of the machine that built it; another file of that name on the target would be loaded",
        )


def _families(linkage: Linkage) -> Iterator[Finding]:
    """Members of one family that come from distributions of different versions."""
    for name, patterns in library_rules().families:
        members: dict[tuple[str, str], list[PlacedFile]] = defaultdict(list)
        for file in linkage.files:
            if any(fnmatchcase(file.name, pattern) for pattern in patterns):
                major = file.name.partition(".so")[2].lstrip(".").partition(".")[0]
                members[major, file.owner].append(file)
        for major in sorted({major for major, _ in members}):
            owners = {owner: files for (own, owner), files in members.items() if own == major}
            if len(owners) < 2:
                continue
            sets = [{file.name for file in files} for files in owners.values()]
            split = any(names != sets[0] for names in sets[1:])
            yield _finding(
                "W-LIBRARY-FAMILY",
                "warning",
                f"{name} {major}".strip(),
                "all files of one release, from one distribution",
                shown(f"{len(files)} files of {owner}" for owner, files in sorted(owners.items())),
                "the loader takes for all of them whichever came first"
                + ("; the distributions hold different parts of it" if split else ""),
            )


def _finding(code: str, severity: str, subject: str, expected: str, found: str, hint: str) -> Finding:
    kinds: dict[str, Severity] = {"error": "error", "warning": "warning", "note": "note"}
    return Finding(
        code=code, severity=kinds[severity], subject=subject, expected=expected, found=found, hint=hint
    )


__all__ = ["Missing", "judge_sonames", "shown", "sorted_items", "subject_of"]
