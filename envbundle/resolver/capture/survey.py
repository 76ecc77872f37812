"""What every distribution of an environment is, and in which form its bytes are carried.

* A pin: every file is the published wheel's. A pin with an overlay: some files were changed, added or removed
  by hand. A rebuilt wheel: a build that exists nowhere else, or compiled code that was changed, which no
  overlay may hold.
* Who owns a file: RECORD; else the only distribution that has files in the nearest folder above it.
* The class says how it came to be (published, other build, editable, VCS ...), the form how it is carried.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .compare import Difference, compare, fits_record, settle_contests
from .content import content_of, is_compiled
from .distributions import is_installers, pick_live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .compare import Disk
    from .distributions import Installed
    from .published import Published, PublishedWheel

Kind = Literal[
    "pristine", "patched", "other-build", "unpublished", "editable", "vcs", "path", "archive", "as-is"
]
Form = Literal["pin", "overlay", "wheel"]
#: Where at most this share of the files differs, a wheel is taken without looking at others.
_CLOSE = 0.1


@dataclass(slots=True, kw_only=True)
class Captured:
    """One distribution as captured; all paths are below the prefix and sorted.

    ``changed``, ``added`` and ``removed`` are against the published ``wheel`` (for a pin or overlay);
    ``missing`` is what RECORD or the wheel names and the disk lacks; ``owned`` are all its files on the disk.
    """

    installed: Installed
    kind: Kind
    form: Form
    wheel: PublishedWheel | None = None
    compared: int = 0
    differing: int = 0
    changed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    owned: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The distribution's normalised name."""
        return self.installed.name

    @property
    def custom(self) -> bool:
        """Whether it is anything but a published wheel as it was published."""
        return self.kind not in ("pristine", "as-is")

    @property
    def touched(self) -> list[str]:
        """Every path that is not as published, but what installers leave in the metadata."""
        return sorted(p for p in (*self.changed, *self.added, *self.removed) if not is_note(p))


@dataclass(slots=True, kw_only=True)
class Survey:
    """Everything that lies in an environment, each file once.

    ``distributions`` by name; ``stale`` are second ``dist-info`` directories, left out; ``unowned`` are paths
    that no distribution has; ``leftovers`` were left out as rests of an interrupted installer.
    """

    distributions: dict[str, Captured]
    stale: tuple[Installed, ...] = ()
    unowned: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


def is_note(path: str) -> bool:
    """Say whether a path is an installer's note about an origin, which says nothing of the code."""
    return path.endswith((".dist-info/direct_url.json", ".dist-info/uv_build.json"))


def survey(
    disk: Disk,
    found: Iterable[Installed],
    *,
    published: Published | None,
    known: Mapping[str, PublishedWheel],
    made: Mapping[str, PublishedWheel],
    own_name: str,
    member_body: Callable[[PublishedWheel, str], str | None],
) -> Survey:
    """Classify every distribution.

    ``published`` looks wheels up (None: as-is); ``known`` are published wheels and ``made`` wheels from a
    disk that a receipt names: no index is asked for those.
    ``own_name`` is the distribution that an earlier capture made of the unowned files: it is nobody again.
    """
    live, stale = _one_each(found, disk, own_name)
    differences = _differences(live, disk, published, known, frozenset(made), member_body)
    settle_contests(differences, disk)
    bases = {name: compare(wheel, disk, member_body) for name, wheel in made.items() if name in live}
    owners, attributed, unowned, leftovers = _owners(live, stale, disk, own_name)
    captured = {}
    for name, one in live.items():
        item = _classify(one, disk, differences.get(name), published, bases.get(name))
        item.owned = sorted({*owners.get(name, ()), *attributed.get(name, ())})
        _sort_out(item, disk, differences, attributed.get(name, []))
        captured[name] = item
    return Survey(distributions=captured, stale=stale, unowned=unowned, leftovers=leftovers)


def _one_each(
    found: Iterable[Installed], disk: Disk, own_name: str
) -> tuple[dict[str, Installed], tuple[Installed, ...]]:
    by_name: dict[str, list[Installed]] = {}
    for one in found:
        if one.name != own_name:
            by_name.setdefault(one.name, []).append(one)
    live: dict[str, Installed] = {}
    stale: list[Installed] = []
    for name, several in sorted(by_name.items()):
        live[name], rest = pick_live(several, disk.digests) if len(several) > 1 else (several[0], ())
        stale += rest
    return live, tuple(stale)


def _differences(
    live: Mapping[str, Installed],
    disk: Disk,
    published: Published | None,
    known: Mapping[str, PublishedWheel],
    settled: frozenset[str],
    member_body: Callable[[PublishedWheel, str], str | None],
) -> dict[str, Difference]:
    """Return the best match of each distribution among the wheels of its version."""
    from packaging.version import Version  # noqa: PLC0415

    best: dict[str, Difference] = {}
    asked = []
    for name, one in live.items():
        wheel = known.get(name)
        if wheel is not None and Version(wheel.filename.split("-")[1]) == Version(one.version):
            best[name] = compare(wheel, disk, member_body)
        elif name not in settled:
            asked.append(one)
    if published is None:
        return best
    # What comes from a checkout or a folder that is still there is on no index, whatever its version says.
    asked = [one for one in asked if not _is_local(one)]
    published.prefetch(asked)
    for one in asked:
        for candidate in published.candidates(one):
            opened = published.open(candidate)
            if opened is None:
                continue
            difference = compare(opened, disk, member_body)
            if one.name not in best or difference.differing < best[one.name].differing:
                best[one.name] = difference
            if difference.differing <= difference.total * _CLOSE:
                break
    return best


def _is_local(one: Installed) -> bool:
    origin = one.origin
    return origin.kind in ("editable", "vcs") or (origin.kind == "path" and Path(origin.folder).is_dir())


# --- owners


def _owners(
    live: Mapping[str, Installed], stale: Iterable[Installed], disk: Disk, own_name: str
) -> tuple[dict[str, list[str]], dict[str, list[str]], list[str], list[str]]:
    """Return files by RECORD, files by place, files of nobody, and rests that are left out."""
    inventory = disk.inventory
    files, site = inventory.files, inventory.site + "/"
    owners: dict[str, list[str]] = {}
    folders: dict[str, str | None] = {}
    owned: set[str] = set()
    for name, one in live.items():
        paths = [path for path in one.record or {} if path in files]
        owners[name] = paths
        owned.update(paths)
        for folder in {posixpath.dirname(path) for path in paths if path.startswith(site)}:
            _claim(folders, folder, name, site)
        folders[one.info] = name
        for top in _tops_without_record(one, disk):
            folders.setdefault(top, name)
    old_infos = tuple(f"{one.info}/" for one in stale)
    own_info = f"{site}{own_name.replace('-', '_')}-"
    attributed: dict[str, list[str]] = {}
    unowned, leftovers = [], []
    for path in files:
        if path in owned:
            continue
        if path.startswith(site):
            below = path[len(site) :]
            if below.startswith("~") or (old_infos and path.startswith(old_infos)):
                leftovers.append(path)
                continue
            if path.startswith(own_info) and ".dist-info/" in path:
                continue
            owner = _nearest(folders, posixpath.dirname(path), len(site))
            if owner is not None:
                attributed.setdefault(owner, []).append(path)
                continue
        unowned.append(path)
    return owners, attributed, sorted(unowned), sorted(leftovers)


def _claim(folders: dict[str, str | None], folder: str, name: str, site: str) -> None:
    """Note that a distribution has files below ``folder`` and its parents; None stands for several."""
    while folder.startswith(site):
        if folder not in folders:
            folders[folder] = name
        elif folders[folder] in (name, None):
            return
        else:
            folders[folder] = None
        folder = posixpath.dirname(folder)


def _nearest(folders: Mapping[str, str | None], folder: str, floor: int) -> str | None:
    while len(folder) >= floor:
        if folder in folders:
            return folders[folder]
        folder = posixpath.dirname(folder)
    return None


def _tops_without_record(one: Installed, disk: Disk) -> list[str]:
    """Return the folders of a distribution that has no RECORD: by top_level.txt, else by its name."""
    if one.record is not None:
        return []
    site = disk.inventory.site
    file = disk.inventory.files.get(f"{one.info}/top_level.txt")
    names = [one.name.replace("-", "_"), one.name]
    if file is not None:
        from .compare import script_bytes  # noqa: PLC0415

        names = script_bytes(file).decode("utf-8", "replace").split()
    return [f"{site}/{name}" for name in names if name and "/" not in name]


# --- classes


def _classify(
    one: Installed,
    disk: Disk,
    difference: Difference | None,
    published: Published | None,
    base: Difference | None,
) -> Captured:
    origin = one.origin.kind
    if difference is None:
        kind: Kind = origin or "unpublished"
        if not origin and (published is None or published.silent):
            kind = "as-is"
        if base is not None and not origin:
            kind = "patched" if base.differing else "as-is"
        item = Captured(installed=one, kind=kind, form="wheel")
        if base is not None:
            item.compared, item.differing = base.total, base.differing
            item.changed = list(base.changed)
            item.notes.append("compared with what envbundle installed, which no index has")
        item.missing = sorted(
            path
            for path in one.record or {}
            if path not in disk.digests and not is_installers(path) and not path.startswith("bin/")
        )
        return item
    item = Captured(
        installed=one,
        kind="pristine",
        form="pin",
        wheel=difference.wheel,
        compared=difference.total,
        differing=difference.differing,
        changed=list(difference.changed),
        missing=list(difference.missing),
    )
    local_only = difference.wheel.direct and difference.wheel.url.startswith("file:")
    item.kind = origin if origin and not (origin == "archive" and not local_only) else "pristine"
    if not difference.differing:
        return item
    compiled = [p for p in difference.changed if is_compiled(content_of(disk, p).head(), p)]
    # What its own RECORD promises was installed so; what contradicts it was edited afterwards.
    edited = one.record is not None and not fits_record(one, difference.changed, disk)
    most = difference.differing * 2 > difference.total and not edited
    if origin in ("vcs", "path") or most or compiled:
        item.form = "wheel"
        item.kind = origin or ("patched" if edited else "other-build")
        return item
    item.kind, item.form = origin or "patched", "overlay"
    if not origin and not edited and difference.changed:
        item.notes.append("its own RECORD agrees with the disk: it was installed from another build")
    return item


def _sort_out(
    item: Captured, disk: Disk, differences: Mapping[str, Difference], attributed: list[str]
) -> None:
    """Decide what of a distribution is added and removed, and what goes elsewhere."""
    if item.wheel is None or item.form == "wheel":
        return
    site = disk.inventory.site + "/"
    wheel = item.wheel
    item.removed = [path for path in item.missing if path.startswith(site) and not is_installers(path)]
    own = set(attributed)
    provided = [other.wheel.files for name, other in differences.items() if name != item.name]
    for path in item.owned:
        if path in wheel.files or is_installers(path):
            continue
        if path.startswith("bin/") and path[4:] in wheel.scripts:
            continue
        digest = disk.packed(path)
        if path not in own and any(path in files and files[path][0] == digest for files in provided):
            continue
        item.added.append(path)
    item.added = sorted(set(item.added))
    if item.form == "pin" and (item.added or item.removed or item.changed):
        item.form = "overlay"
        if item.kind == "pristine" and item.touched:
            item.kind = "patched"
