"""Findings about an environment as it stands: nothing here refuses, everything says what to do next."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.host.files import read_bounded
from envbundle.spec.finding import Finding, Severity

from .distributions import is_installers, record_hash
from .pth import PathFile, read_path_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from envbundle.host.probe import Interpreter

    from .compare import Disk
    from .editable import EditableSource
    from .inventory import Inventory
    from .survey import Captured, Survey

_SHOWN = 6


def notices(
    seen: Survey, disk: Disk, editables: Mapping[str, EditableSource], path_files: Mapping[str, PathFile]
) -> list[Finding]:
    """Return what is worth a person's look, in the order of the environment's parts."""
    found: list[Finding] = []
    for item in seen.distributions.values():
        found += _distribution(item, disk)
    for one in seen.stale:
        live = seen.distributions[one.name].installed
        found.append(
            _finding(
                "W-CAPTURE-TWO-METADATA",
                one.info,
                expected=f"one dist-info directory of {one.name}",
                found=f"two: {one.version} and {live.version}, which fits the files",
                hint=f"{one.version}'s is left out; remove it, or reinstall {one.name}",
            )
        )
    replaced = {path for source in editables.values() for path in source.replaced}
    for path, read in path_files.items():
        if path not in replaced:
            found += _path_file(path, read, seen)
    for path, script in sorted(disk.scripts.items()):
        if script.outside:
            found.append(
                _finding(
                    "W-SHEBANG-OUTSIDE",
                    path,
                    expected="this environment's interpreter",
                    found=script.outside,
                    hint="carried as it is; it will run with that interpreter, or not at all, on the target",
                )
            )
    return [*found, *_editables(editables), *_left_out(seen, disk.inventory)]


def read_path_files(disk: Disk) -> dict[str, PathFile]:
    """Return the ``.pth`` files at the top of site-packages, read."""
    inventory = disk.inventory
    site = inventory.site + "/"
    return {
        path: read_path_file(read_bounded(Path(file.place), 1 << 20), inventory.prefixes, inventory.site)
        for path, file in sorted(inventory.files.items())
        if path.endswith(".pth") and path.startswith(site) and "/" not in path[len(site) :]
    }


def interpreter_notices(
    venv: Path, config: Mapping[str, str], interpreter: Interpreter | None, python: str
) -> Iterator[Finding]:
    """Say where the interpreter is missing, other than it was, or not the only source of packages."""
    if interpreter is None:
        yield _finding(
            "W-CAPTURE-INTERPRETER",
            str(venv / "bin" / "python"),
            expected="an interpreter that runs",
            found="none: " + (os.path.realpath(venv / "bin" / "python") + " is not there"),
            hint=f"the target needs its own Python {python}; facts of this one are taken from pyvenv.cfg",
        )
    elif interpreter.python != python:
        yield _finding(
            "W-CAPTURE-INTERPRETER",
            interpreter.path,
            expected=f"Python {python}, whose site-packages these are",
            found=interpreter.version,
            hint="the environment was made by another interpreter: compiled modules may not load",
        )
    home = config.get("home", "")
    if interpreter is not None and home and not os.path.isdir(home):  # noqa: PTH112
        yield _finding(
            "W-CAPTURE-INTERPRETER",
            str(venv / "pyvenv.cfg"),
            expected="home to be the interpreter's folder",
            found=f"home = {home}, which is not there",
            hint="an installation writes its own pyvenv.cfg",
        )
    if config.get("include-system-site-packages", "").lower() == "true":
        yield _finding(
            "W-SYSTEM-SITE",
            str(venv / "pyvenv.cfg"),
            expected="include-system-site-packages = false",
            found="true: packages outside the environment can be imported",
            hint="those are not captured; install what is needed into the environment, then capture again",
        )


def _distribution(item: Captured, disk: Disk) -> Iterator[Finding]:
    one = item.installed
    if item.missing:
        line = f'; to have them back, take them from `remove` in [[overlay]] distribution = "{item.name}"'
        yield _finding(
            "W-CAPTURE-DAMAGED",
            one.label,
            expected="every file that its wheel or RECORD names",
            found=f"{len(item.missing)} missing: {_some(item.missing)}",
            hint="captured without them" + (line if item.form == "overlay" and item.removed else ""),
        )
    for problem in one.problems:
        if problem != "no RECORD" or item.wheel is None:
            yield _finding(
                "W-CAPTURE-METADATA",
                one.info,
                expected="readable metadata",
                found=problem,
                hint="its files were found by walking" if problem == "no RECORD" else "",
            )
    gone = one.origin.folder and not os.path.lexists(one.origin.folder) and one.origin.kind != "editable"
    if not gone:
        return
    if item.form != "wheel":
        yield _finding(
            "N-ORIGIN-FOUND",
            one.label,
            severity="note",
            found=f"installed from {one.origin.url}, which is gone",
            hint=f"its bytes are those of {item.wheel.filename if item.wheel else 'a published wheel'}",
        )
        return
    differs = _against_record(item, disk)
    yield _finding(
        "W-ORIGIN-GONE" if differs else "N-ORIGIN-GONE",
        one.label,
        severity="warning" if differs else "note",
        expected="its origin, or files that verify against RECORD",
        found=f"{one.origin.url} is gone"
        + (f"; {len(differs)} files are not as RECORD says: {_some(differs)}" if differs else ""),
        hint="nobody can say what was edited; the wheel made from the disk holds the files as they are"
        if differs
        else "all files are as RECORD says; the wheel made from the disk stands in for it",
    )


def _against_record(item: Captured, disk: Disk) -> list[str]:
    return sorted(
        path
        for path, said in (item.installed.record or {}).items()
        if said.startswith("sha256=")
        and not path.startswith("bin/")
        and not is_installers(path)
        and (path not in disk.digests or record_hash(disk.digests[path]) != said)
    )


def _path_file(path: str, read: PathFile, seen: Survey) -> Iterator[Finding]:
    published = any(
        item.wheel is not None and path in item.wheel.files for item in seen.distributions.values()
    )
    if read.code and not published:
        yield _finding(
            "W-PTH-CODE",
            path,
            expected="folders alone",
            found=f"code that every start runs: {read.code[0][:160]}",
            hint="carried as it is; look whether the target should run it",
        )
    for folder in read.outside:
        yield _finding(
            "W-PTH-OUTSIDE",
            path,
            expected="folders inside the environment",
            found=folder + ("" if os.path.isdir(folder) else ", which is not there"),  # noqa: PTH112
            hint="what lies there is not captured: install it here, or demand it of the target: "
            f'[[invariant]] kind = "path" path = "{folder}"',
        )


def _editables(editables: Mapping[str, EditableSource]) -> Iterator[Finding]:
    for name, source in editables.items():
        if source.left_out:
            yield _finding(
                "N-EDITABLE-LEFT-OUT",
                name,
                severity="note",
                found=f"beside its packages: {_some(source.left_out)}",
                hint="not copied in; move them into a package if the target needs them",
            )


def _left_out(seen: Survey, inventory: Inventory) -> Iterator[Finding]:
    if inventory.caches:
        total = sum(inventory.caches.values())
        yield _finding(
            "N-CAPTURE-CACHES",
            _some(sorted(inventory.caches)),
            severity="note",
            found=f"{len(inventory.caches)} cache folders of {total} bytes",
            hint="left out: they are made again for the target's GPU and paths",
        )
    rest = [*seen.leftovers, *inventory.odd]
    if rest:
        yield _finding(
            "W-CAPTURE-LEFT-OUT",
            _some(sorted(rest)),
            expected="files of distributions, with plain names",
            found=f"{len(rest)} rests of an installer, special files, or names that no bundle may hold",
            hint="not carried",
        )
    if inventory.privileged:
        yield _finding(
            "W-PRIV-BITS",
            _some(sorted(inventory.privileged)),
            expected="no setuid or setgid bits and no capabilities",
            found=f"{len(inventory.privileged)} files with them",
            hint="the bits are dropped",
        )
    if inventory.attributes:
        yield _finding(
            "N-CAPTURE-ATTRIBUTES",
            inventory.root,
            severity="note",
            found=f"extended attributes on {inventory.attributes} files",
            hint="dropped",
        )


def _some(names: list[str]) -> str:
    shown = ", ".join(ascii(name)[1:-1] for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _finding(
    code: str,
    subject: str,
    *,
    severity: Severity = "warning",
    expected: str = "",
    found: str = "",
    hint: str = "",
) -> Finding:
    return Finding(code=code, severity=severity, subject=subject, expected=expected, found=found, hint=hint)
