"""Which file satisfies which NEEDED, by the loader's rules, without a loader and without extracting a file.

Rules of the gABI and of glibc's ``ld.so``:

* A name that is loaded already (by that name or as its SONAME) is satisfied, wherever it stands.
* DT_RPATH of the file and of those that loaded it, unless the file has DT_RUNPATH; then DT_RUNPATH of the
  file alone. ``$ORIGIN`` is the folder of the file that says it.
* What is found nowhere by that and stands elsewhere in the environment must have been loaded before: an
  import of its own package does that.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .libraries import library_rules
from .placed import is_module, is_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .placed import PlacedFile


@dataclass(frozen=True, slots=True)
class Missing:
    """A NEEDED that nothing in the environment and nothing that every host has satisfies."""

    file: PlacedFile
    soname: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A NEEDED that a file of the environment satisfies only if it was loaded before."""

    file: PlacedFile
    soname: str
    provider: PlacedFile


@dataclass(slots=True)
class Closure:
    """All that loading ``root`` loads: ``files`` in the order of loading, and what was not to be had."""

    root: PlacedFile
    files: list[PlacedFile] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    elsewhere: list[Elsewhere] = field(default_factory=list)


class Linkage:
    """The links between the files of one environment, for one Python and machine."""

    def __init__(
        self, files: Sequence[PlacedFile], *, python: str, machine: str, prefix: str | None = None
    ) -> None:
        """Take ``files``; those for another machine are left aside. ``prefix`` is a fixed place, if any."""
        self.files = [file for file in files if file.needs.machine in (machine, "")]
        self.prefix = prefix
        self._by_path = {file.path: file for file in self.files}
        self._by_name: dict[str, list[PlacedFile]] = defaultdict(list)
        for file in self.files:
            for name in dict.fromkeys((file.name, file.needs.soname or file.name)):
                self._by_name[name].append(file)
        self.roots = [file for file in self.files if is_module(file, python) or is_program(file)]
        self.closures = [self.load(root) for root in self.roots]
        self.reachable = {file.path for closure in self.closures for file in closure.files}

    def imported_files(self) -> dict[str, set[str]]:
        """Return, per file, the distributions of which an import loads it without help of others."""
        loaded: dict[str, set[str]] = {}
        for closure in self.closures:
            if not closure.elsewhere and not closure.missing:
                for file in closure.files:
                    loaded.setdefault(file.path, set()).add(closure.root.distribution)
        return loaded

    def providers(self, soname: str) -> list[PlacedFile]:
        """Return the files that have the name or the SONAME, those of that file name first."""
        return sorted(self._by_name.get(soname, ()), key=lambda file: (file.name != soname, file.path))

    def load(self, root: PlacedFile) -> Closure:
        """Load one file and all that it needs, breadth first as the loader does."""
        closure = Closure(root)
        loaded = {root.name, root.needs.soname}
        chains: dict[str, tuple[PlacedFile, ...]] = {root.path: ()}
        queue = [root]
        for file in queue:
            closure.files.append(file)
            chain = (file, *chains[file.path])
            for soname in file.needs.sonames:
                if soname in loaded:
                    continue
                loaded.add(soname)
                provider = self.find(soname, chain)
                if provider is None and not library_rules().is_given(soname):
                    provider = self._elsewhere(soname, file)
                    if provider is None:
                        closure.missing.append(Missing(file, soname))
                    else:
                        closure.elsewhere.append(Elsewhere(file, soname, provider))
                if provider is not None and provider.path not in chains:
                    chains[provider.path] = chain
                    loaded.add(provider.needs.soname)
                    queue.append(provider)
        return closure

    def alone(self, file: PlacedFile) -> Iterator[Missing]:
        """Yield what a file that nothing loads would not find of its own needs."""
        for soname in file.needs.sonames:
            found = self.find(soname, (file,)) or library_rules().is_given(soname)
            if not found and not self._by_name.get(soname):
                yield Missing(file, soname)

    def find(self, soname: str, chain: Sequence[PlacedFile]) -> PlacedFile | None:
        """Return the file that the search path of ``chain`` (the asking file first) leads to."""
        if "/" in soname:
            return None
        for folder in self._folders(chain):
            file = self._by_path.get(f"{folder}/{soname}" if folder else soname)
            if file is not None:
                return file
        return None

    def _folders(self, chain: Sequence[PlacedFile]) -> Iterator[str]:
        asking = chain[0]
        if not asking.needs.runpath:
            for file in chain:
                if not file.needs.runpath:
                    yield from self._expanded(file, file.needs.rpath)
        yield from self._expanded(asking, asking.needs.runpath)

    def _expanded(self, file: PlacedFile, entries: Iterable[str]) -> Iterator[str]:
        for entry in entries:
            text = entry.replace("${ORIGIN}", "$ORIGIN")
            if text == "$ORIGIN" or text.startswith("$ORIGIN/"):
                folder = posixpath.normpath(posixpath.join(file.folder, "." + text[len("$ORIGIN") :]))
                if not folder.startswith(".."):
                    yield "" if folder == "." else folder
            elif self.prefix is not None and text.startswith(self.prefix.rstrip("/") + "/"):
                yield posixpath.normpath(text[len(self.prefix.rstrip("/")) + 1 :])

    def _elsewhere(self, soname: str, file: PlacedFile) -> PlacedFile | None:
        candidates = self.providers(soname)
        own = [one for one in candidates if one.distribution == file.distribution]
        return next(iter(own or candidates), None)


def foreign_folders(file: PlacedFile) -> list[str]:
    """Return the absolute search paths of a file that are of the machine that built it."""
    rules = library_rules()
    entries = (*file.needs.rpath, *file.needs.runpath)
    return [entry for entry in entries if entry.startswith("/") and not rules.is_system_folder(entry)]
