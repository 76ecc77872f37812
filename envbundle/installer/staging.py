"""Building one generation in its stage: files, fixers, the virtual environment, bytecode, RECORDs.

The order is fixed: what others list comes last. Everything is noted as an ``InstalledFile`` the moment it is
written; the stage's tree must in the end hold exactly what was noted.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from envbundle.errors import IntegrityError
from envbundle.spec.digest import Digest
from envbundle.spec.receipt import RECEIPT_FOLDER, InstalledFile

from .bytecode import bytecode_path, compile_sources, read_bytecode
from .fixers import FIXERS, LATE, Place, Subject, fixer_of
from .layout import site_packages
from .materialise import Materialiser, Wanted, check_written
from .plan import is_shared
from .venv import Skeleton, write_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from envbundle.host.probe import Interpreter
    from envbundle.host.run import Runner
    from envbundle.host.tree import Tree, Written
    from envbundle.progress import Reporter
    from envbundle.spec.descriptor import Content, Descriptor
    from envbundle.spec.finding import Finding
    from envbundle.spec.layer import Layer, LayerEntry
    from envbundle.store.protocol import Store

    from .options import InstallOptions
    from .plan import Plan
    from .reuse import Reuser

_SCRIPT_LIMIT = 64 * 1024 * 1024
WRITE, COMPILE = "write files", "compile bytecode"


@dataclass(slots=True)
class Stage:
    """One generation being built. ``final`` is where it will live; ``tree`` is over where it is now."""

    tree: Tree
    final: Path
    prefix: str
    plan: Plan
    layers: Sequence[Layer]
    descriptor: Descriptor
    interpreter: Interpreter
    reuser: Reuser
    options: InstallOptions
    reporter: Reporter
    files: dict[str, InstalledFile]
    findings: list[Finding]
    written_bytes: int = 0

    @property
    def _content(self) -> Content:
        return self.descriptor.content

    def build(self, store: Store, runner: Runner) -> None:
        """Do all of it; raises at the first fault, leaving the stage to whoever removes it."""
        self._write_files(store)
        self._write_environment()
        self._fix(late=False)
        self._write_installers()
        if self.options.compile:
            self._compile(runner)
        self._fix(late=True)

    def _note(self, file: InstalledFile) -> None:
        self.files[file.path] = file

    # --- files of layers

    def _write_files(self, store: Store) -> None:
        by_layer: dict[int, list[Wanted]] = {}
        for path, (index, entry) in self.plan.places.items():
            if entry.type == "symlink":
                self.tree.symlink(path, entry.link)
                self._note(InstalledFile(path=path, type="symlink", link=entry.link, source=index))
            elif entry.type == "file" and entry.inline is None and fixer_of(entry) not in LATE:
                by_layer.setdefault(index, []).append(
                    Wanted(path=path, entry=entry, mode=self._mode(index, entry))
                )
        self.reporter.start(WRITE, total=self.plan.bytes)
        materialiser = Materialiser(store, self.descriptor, self.tree, workers=self.options.workers)
        for index, layer in enumerate(self.layers):
            wanted = by_layer.get(index, [])
            missing = [one for one in wanted if not self._reuse(index, one)]
            fresh = not self.reuser.knows(self._content.layers[index].list)
            materialiser.write(layer, missing, partial(self._done, index), check_unused=fresh)
        self.reporter.finish(WRITE)

    def _reuse(self, index: int, wanted: Wanted) -> bool:
        link = is_shared(self._content, index) and not fixer_of(wanted.entry)
        written = self.reuser.take(self._content.layers[index].list, wanted, link=link)
        if written is None:
            return False
        self._note(_installed(wanted.path, wanted.mode, written, index))
        self.reporter.advance(WRITE, written.size)
        return True

    def _done(self, index: int, wanted: Wanted, written: Written) -> None:
        self._note(_installed(wanted.path, wanted.mode, written, index))
        self.written_bytes += written.size
        self.reporter.advance(WRITE, written.size)

    def _mode(self, index: int, entry: LayerEntry) -> int:
        mode = 0o755 if entry.scheme == "scripts" else entry.mode
        shared = self.options.reuse == "auto" and is_shared(self._content, index) and not fixer_of(entry)
        return mode & 0o555 if shared else mode

    # --- envbundle's own files

    def _write_environment(self) -> None:
        skeleton = Skeleton(
            interpreter=self.interpreter,
            prefix=self.prefix,
            title=self._content.name,
            environment=self._content.environment,
            pin_processes=self._content.layout.get("pin-processes", True) is not False,
        )
        for file in skeleton.write(self.tree):
            self._note(file)

    def _write_installers(self) -> None:
        """Say in every distribution who installed it; a distribution's own INSTALLER gives way."""
        for path, (index, entry) in list(self.plan.places.items()):
            if entry.role != "record":
                continue
            installer = path.removesuffix("RECORD") + "INSTALLER"
            own = self.files.get(installer)
            if own is not None:
                self.tree.remove(installer)
            file = write_own(self.tree, installer, b"envbundle\n", fixer="installer")
            packed = own.sha256 if own is not None else None
            self._note(replace(file, source=index, packed=packed if packed != file.sha256 else None))

    # --- fixers

    def _fix(self, *, late: bool) -> None:
        place = Place(
            interpreter=f"{self.final}/bin/python",
            old_prefixes=self._old_prefixes(),
            site=site_packages(self.plan.python),
            files_of=self._files_of,
        )
        for path, (index, entry) in self.plan.places.items():
            name = fixer_of(entry)
            inline = entry.inline is not None
            if (name in LATE) != late or not (name or (inline and not late)):
                continue
            if path in self.files and not inline and entry.type == "file":
                data = self.tree.read(path, _SCRIPT_LIMIT)
            else:
                data = entry.inline or b""
            fixed = data
            if name:
                outcome = FIXERS[name](Subject(path=path, entry=entry, layer=index, data=data), place)
                self.findings += outcome.findings
                fixed = outcome.data
            self._put(path, index, entry, fixed, name if fixed != data or entry.type == "entry-point" else "")

    def _put(self, path: str, index: int, entry: LayerEntry, data: bytes, fixer: str) -> None:
        if path in self.files:
            if not fixer:
                return
            self.tree.remove(path)
        mode = 0o755 if entry.scheme == "scripts" else entry.mode
        written = self.tree.write(path, data, mode)
        if not fixer:
            check_written(path, entry, written)
        file = _installed(path, mode, written, index)
        self._note(replace(file, fixer=fixer, packed=entry.sha256 if fixer else None))
        self.written_bytes += written.size

    def _old_prefixes(self) -> tuple[str, ...]:
        prefix = self._content.layout.get("prefix")
        return (prefix,) if isinstance(prefix, str) and prefix.startswith("/") else ()

    def _files_of(self, index: int) -> Iterable[InstalledFile]:
        """Return what is installed for a layer's distribution: its files, its overlays', its shared paths."""
        name = self.layers[index].distribution
        mine = {number for number, layer in enumerate(self.layers) if layer.distribution == name}
        for path, file in self.files.items():
            if file.source in mine or mine & set(self.plan.claims.get(path, ())):
                yield file

    # --- bytecode

    def _compile(self, runner: Runner) -> None:
        top = site_packages(self.plan.python) + "/"
        tag = self.interpreter.cache_tag
        sources = [path for path in self.files if path.startswith(top) and path.endswith(".py")]
        wanted: list[tuple[str, str]] = []
        self.reporter.start(COMPILE, total=len(sources), unit="files")
        for source in sources:
            file = self.files[source]
            bytecode = bytecode_path(source, tag)
            if file.source is not None and file.type == "file" and self._reuse_bytecode(file, bytecode):
                self.reporter.advance(COMPILE)
            elif file.type == "file":
                wanted.append((source, bytecode))
        compile_sources(
            self.tree.root,
            [source for source, _ in wanted],
            shown_as=self.prefix,
            interpreter=self.interpreter,
            runner=runner,
        )
        for source, bytecode in wanted:
            mode = self.files[source].mode & 0o666
            found = read_bytecode(self.tree, bytecode, mode)
            if found is not None:
                size, digest, mtime_ns, inode = found
                self._note(
                    InstalledFile(
                        path=bytecode,
                        mode=mode,
                        size=size,
                        sha256=digest,
                        source=self.files[source].source,
                        fixer="bytecode",
                        mtime_ns=mtime_ns,
                        inode=inode,
                    )
                )
            self.reporter.advance(COMPILE)
        for folder in dict.fromkeys(path.rpartition("/")[0] for _, path in wanted):
            self._set_folder_mode(folder)
        self.reporter.finish(COMPILE)

    def _reuse_bytecode(self, source: InstalledFile, path: str) -> bool:
        if source.source is None or source.fixer:
            return False
        layer = self._content.layers[source.source].list
        mode = source.mode & 0o666
        taken = self.reuser.take_bytecode(layer, path, mode, link=not source.mode & 0o222)
        if taken is None:
            return False
        written, digest = taken
        self._note(
            replace(_installed(path, mode, written._replace(sha256=digest), source.source), fixer="bytecode")
        )
        return True

    def _set_folder_mode(self, folder: str) -> None:
        """Give a folder that the compiler made the mode that all have, whatever the umask was."""
        if self.tree.stat(folder) is not None:
            self.tree.set_folder_mode(folder, 0o755)

    # --- the last look

    def check(self) -> None:
        """Raise ``IntegrityError`` unless the stage holds exactly what was noted, as it was noted."""
        seen: set[str] = set()
        for path, status in self.tree.walk():
            if path.startswith(RECEIPT_FOLDER + "/"):
                continue
            seen.add(path)
            file = self.files.get(path)
            if file is None:
                raise _stage_fault(path, "nothing", "a file that nobody wrote")
            if file.type == "symlink":
                if not stat.S_ISLNK(status.st_mode):
                    raise _stage_fault(path, "a link", "something else")
                continue
            now = (stat.S_IMODE(status.st_mode), status.st_size, status.st_mtime_ns, status.st_ino)
            if not stat.S_ISREG(status.st_mode) or now != (file.mode, file.size, file.mtime_ns, file.inode):
                raise _stage_fault(path, "the file as it was written", "another")
        for path in self.files:
            if path not in seen:
                raise _stage_fault(path, "a file", "nothing")


def _installed(path: str, mode: int, written: Written, source: int) -> InstalledFile:
    return InstalledFile(
        path=path,
        mode=mode,
        size=written.size,
        sha256=Digest(written.sha256),
        source=source,
        mtime_ns=written.mtime_ns,
        inode=written.inode,
    )


def _stage_fault(path: str, expected: str, found: str) -> IntegrityError:
    return IntegrityError(
        "E-STAGE", ascii(path), expected=expected, found=found, hint="somebody else writes there: run again"
    )
