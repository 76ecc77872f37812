"""Holding an installed environment against what was installed: set equality both ways.

* The chain is checked from the top: the prefix leads to a generation; its receipt names that generation; the
  descriptor kept beside it has the bundle id of the receipt; kept layer lists have the digests that the
  descriptor names, and a file that no fixer changed has the digest its layer promises; then the files.
* ``quick`` looks at kind, mode, size and mtime; otherwise every byte is hashed.
* Left out: ``.envbundle`` itself. Bytecode that Python wrote is fine if it is what its source compiles to;
  bytecode that matches neither the receipt nor its source is drift.
"""

from __future__ import annotations

import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.errors import EnvbundleError, IntegrityError
from envbundle.host.tree import Tree
from envbundle.spec.descriptor import MAX_DESCRIPTOR, Descriptor
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.layer import Layer
from envbundle.spec.receipt import RECEIPT_FOLDER, Receipt

from .bytecode_check import matches_source
from .generations import live_name, managed, read_receipt
from .layout import DESCRIPTOR, LAYERS, LOCK, MANIFEST, Prefix
from .plan import plan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envbundle.host.run import Runner
    from envbundle.spec.receipt import InstalledFile

_LIST_LIMIT = 1 << 30
_DOCUMENT = re.compile(
    re.escape(RECEIPT_FOLDER)
    + r"/(?:receipt\.json|descriptor\.json|pylock\.toml|envbundle\.toml"
    + r"|layers/[0-9a-f]{64}\.json|signatures/[0-9]+\.sig)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentReport:
    """What verifying found. Paths are prefix-relative and sorted; ``checked`` counts files and links.

    ``ok`` is false where there is drift or an error finding. ``receipt`` says how the bundle was trusted.
    """

    prefix: str
    generation: str
    receipt: Receipt
    checked: int
    modified: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the environment is what was installed."""
        return not (self.modified or self.missing or self.extra) and not any(
            finding.severity == "error" for finding in self.findings
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `verify --json` for an environment."""
        return {
            "kind": "environment",
            "ok": self.ok,
            "partial": False,
            "signature": {"status": self.receipt.trust, "principal": self.receipt.principal},
            "files": {
                "checked": self.checked,
                "modified": list(self.modified),
                "missing": list(self.missing),
                "extra": list(self.extra),
            },
            "findings": [finding.to_dict() for finding in self.findings],
        }


def verify_environment(
    prefix: Path | str, *, runner: Runner | None = None, quick: bool = False
) -> EnvironmentReport:
    """Hold the live generation of ``prefix`` against its receipt, and the receipt against its bundle.

    ``runner`` lets bytecode that is not the receipt's be compared with its source by the environment's own
    interpreter; without it such bytecode counts as drift. Drift is in the report, not an exception. Raises
    ``UserInputError`` (E-NOT-A-PREFIX), and ``IntegrityError`` where receipt or descriptor cannot be read.
    """
    place = managed(prefix)
    name = live_name(place)
    if name is None:
        raise IntegrityError(
            "E-NO-GENERATION",
            str(place.path),
            expected="a link to a generation",
            found="nothing",
            hint="run install, or rollback",
        )
    return verify_generation(place.generation(name), prefix=str(place.path), runner=runner, quick=quick)


def verify_generation(
    path: Path, *, prefix: str, runner: Runner | None = None, quick: bool = False
) -> EnvironmentReport:
    """Hold the generation at ``path`` against its receipt; see ``verify_environment``."""
    receipt = read_receipt(path)
    findings = list(_check_receipt(path, prefix, receipt))
    with Tree(path) as tree:
        findings += _check_chain(tree, receipt)
        files = {file.path: file for file in receipt.files}
        seen = dict(_seen(tree))
        modified = {
            p
            for p, status in seen.items()
            if p in files and not _looks_right(tree, files[p], status, times=quick)
        }
        missing = set(files) - set(seen)
        extra = set(seen) - set(files)
        if not quick:
            rest = [
                file for p, file in files.items() if p in seen and p not in modified and file.type == "file"
            ]
            modified |= set(_hash_all(tree, rest))
        doubtful = sorted(p for p in modified | extra if _is_bytecode(p))
        if doubtful and runner is not None:
            clean = {p for p in _with_source(doubtful, files) if p not in modified and p not in missing}
            fine = matches_source(path, clean, Path(receipt.interpreter.get("path", "")), runner)
            modified -= fine
            extra -= fine
    return EnvironmentReport(
        prefix=prefix,
        generation=path.name,
        receipt=receipt,
        checked=len(seen),
        modified=tuple(sorted(modified)),
        missing=tuple(sorted(missing)),
        extra=tuple(sorted(extra)),
        findings=tuple(findings),
    )


def require_clean(report: EnvironmentReport) -> None:
    """Raise ``IntegrityError`` (E-DRIFT and the rest) unless the report is clean."""
    findings = [finding for finding in report.findings if finding.severity == "error"]
    kinds = (
        ("E-MODIFIED-FILE", report.modified),
        ("E-MISSING-FILE", report.missing),
        ("E-EXTRA-FILE", report.extra),
    )
    for code, paths in kinds:
        findings += [
            Finding(code=code, severity="error", subject=ascii(path)[1:-1], hint="install again to repair")
            for path in paths
        ]
    if findings:
        raise IntegrityError.of(findings)


def _check_receipt(path: Path, prefix: str, receipt: Receipt) -> Iterable[Finding]:
    if receipt.generation != path.name or not path.name.endswith(f"-{receipt.content_id.short}"):
        yield Finding(
            code="E-RECEIPT",
            severity="error",
            subject=f"{path.name}/{RECEIPT_FOLDER}/receipt.json",
            expected=f"the receipt of generation {path.name}",
            found=f"that of {receipt.generation}, content {receipt.content_id.short}",
            hint="install again",
        )
    if Prefix.of(receipt.prefix).home != Prefix.of(prefix).home:
        yield Finding(
            code="W-PREFIX-MOVED",
            severity="warning",
            subject=prefix,
            expected=f"the prefix it was installed for, {receipt.prefix}",
            found="another path",
            hint="scripts name the old place: install again at this one",
        )


def _check_chain(tree: Tree, receipt: Receipt) -> list[Finding]:
    """Check descriptor and layer lists against the receipt's bundle id, and its rows against them."""
    try:
        data = tree.read(DESCRIPTOR, MAX_DESCRIPTOR)
        if Digest.of(data) != receipt.bundle_id:
            return [_broken(DESCRIPTOR, f"bundle id {receipt.bundle_id}", str(Digest.of(data)))]
        descriptor = Descriptor.from_bytes(data)
        content = descriptor.content
        if content.content_id != receipt.content_id:
            return [_broken(DESCRIPTOR, f"content id {receipt.content_id}", str(content.content_id))]
        for path, digest in ((LOCK, content.lock), (MANIFEST, descriptor.manifest)):
            held = Digest.of(tree.read(path, _LIST_LIMIT))
            if held != digest:
                return [_broken(path, str(digest), str(held))]
        lists = {f"{LAYERS}/{ref.list.hex}.json" for ref in content.layers}
        for path, _ in tree.walk(LAYERS):
            if path not in lists:
                return [_broken(path, "the list of a layer of the bundle", "another")]
        layers = []
        for ref in content.layers:
            path = f"{LAYERS}/{ref.list.hex}.json"
            listed = tree.read(path, _LIST_LIMIT)
            if Digest.of(listed) != ref.list:
                return [_broken(path, str(ref.list), str(Digest.of(listed)))]
            layers.append(Layer.from_dict(json.loads(listed), path))
        places = plan(content, layers).places
    except (EnvbundleError, ValueError, RecursionError) as fault:
        return [_broken(RECEIPT_FOLDER, "descriptor and layer lists as installed", str(fault)[:300])]
    rows = {file.path: file for file in receipt.files}
    findings = []
    for path, (index, entry) in places.items():
        row = rows.get(path)
        if row is None:
            findings.append(_broken(path, "a row in the receipt", "none"))
        elif entry.type == "symlink" and row.link != entry.link:
            findings.append(_broken(path, f"a link to {entry.link!a}", f"one to {row.link!a}"))
        elif entry.type == "file" and (row.packed or row.sha256) != entry.sha256:
            findings.append(_broken(path, f"{entry.sha256} of layer {index}", str(row.packed or row.sha256)))
        elif entry.type == "file" and row.packed is not None and not row.fixer:
            findings.append(_broken(path, "a fixer for a changed file", "none"))
    own = ("venv", "installer", "bytecode")
    findings += [
        _broken(path, "a path of the bundle, or one that envbundle writes", "neither")
        for path, row in rows.items()
        if path not in places and row.fixer not in own
    ]
    return findings


def _broken(subject: str, expected: str, found: str) -> Finding:
    return Finding(
        code="E-RECEIPT",
        severity="error",
        subject=ascii(subject)[1:-1],
        expected=expected,
        found=found,
        hint="what was recorded about this environment was changed: install again",
    )


def _seen(tree: Tree) -> Iterable[tuple[str, os.stat_result]]:
    """Yield everything but the documents that ``_check_chain`` holds against the bundle's id."""
    for path, status in tree.walk():
        if not (_DOCUMENT.fullmatch(path) and stat.S_ISREG(status.st_mode)):
            yield path, status


def _looks_right(tree: Tree, file: InstalledFile, status: os.stat_result, *, times: bool) -> bool:
    if file.type == "symlink":
        return stat.S_ISLNK(status.st_mode) and tree.readlink(file.path) == file.link
    return (
        stat.S_ISREG(status.st_mode)
        and stat.S_IMODE(status.st_mode) == file.mode
        and status.st_size == file.size
        and (not times or status.st_mtime_ns == file.mtime_ns)
    )


def _hash_all(tree: Tree, files: list[InstalledFile]) -> list[str]:
    """Return the paths whose bytes are not the receipt's."""

    def differing(part: list[InstalledFile]) -> list[str]:
        with tree.again() as own:
            return [
                file.path for file in part if file.sha256 is None or own.digest(file.path) != file.sha256.hex
            ]

    step = 256
    parts = [files[start : start + step] for start in range(0, len(files), step)]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1), "envbundle-verify") as pool:
        return [path for found in pool.map(differing, parts) for path in found]


def _is_bytecode(path: str) -> bool:
    return path.endswith(".pyc") and path.rpartition("/")[0].endswith("__pycache__")


def _with_source(paths: Iterable[str], files: dict[str, InstalledFile]) -> list[str]:
    return [path for path in paths if source_of(path) in files]


def source_of(path: str) -> str:
    """Return the source path of a bytecode path: ``a/__pycache__/b.cpython-312.opt-1.pyc`` -> ``a/b.py``."""
    folder, _, name = path.rpartition("/")
    parent = folder.rpartition("/")[0]
    stem = name.removesuffix(".pyc")
    if stem.rpartition(".")[2].startswith("opt-"):
        stem = stem.rpartition(".")[0]
    stem = stem.rpartition(".")[0]
    return f"{parent}/{stem}.py" if parent else f"{stem}.py"
