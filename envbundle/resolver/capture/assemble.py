"""From a survey to what is written: pins, overlays, rebuilt wheels, and one wheel for what nobody owns.

* Files of no distribution, scripts as they were, and files outside site-packages that were changed go into
  one more wheel, ``envbundle-captured``: an overlay can only lie over one distribution's site-packages.
* Contested paths: where two claim one path with different bytes, the winner is the one whose bytes are on
  the disk.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding

from .content import Content, content_of, is_compiled
from .distributions import is_installers
from .editable import public_direct_url
from .pth import read_path_file
from .rebuild import fits_stem
from .scripts import generated_body

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .compare import Disk
    from .editable import EditableSource
    from .survey import Captured, Survey

#: The distribution that holds what belongs to none.
UNOWNED = "envbundle-captured"
UNOWNED_VERSION = "1"


@dataclass(slots=True, kw_only=True)
class OverlayPlan:
    """An overlay: files by their path in site-packages, and what is removed there."""

    distribution: str
    base: str
    files: dict[str, Content] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class WheelPlan:
    """A wheel to be made: its dist-info directory below the prefix, contents, WHEEL's tags, scripts."""

    name: str
    version: str
    info: str
    contents: dict[str, Content]
    tags: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Plan:
    """Everything that capture writes beside the manifest."""

    overlays: dict[str, OverlayPlan] = field(default_factory=dict)
    wheels: dict[str, WheelPlan] = field(default_factory=dict)
    winners: dict[str, list[str]] = field(default_factory=dict)
    contested: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def assemble(seen: Survey, disk: Disk, editables: Mapping[str, EditableSource]) -> Plan:
    """Decide where every file goes; nothing is written."""
    work = _Assembly(seen, disk, editables)
    for item in seen.distributions.values():
        work.distribution(item)
    work.unowned()
    work.entry_points()
    work.finish()
    return work.plan


class _Assembly:
    def __init__(self, seen: Survey, disk: Disk, editables: Mapping[str, EditableSource]) -> None:
        self._seen, self._disk, self._editables = seen, disk, editables
        self._site = disk.inventory.site + "/"
        self.plan = Plan()
        self._extra: dict[str, Content] = {}

    def distribution(self, item: Captured) -> None:
        """Place the files of one distribution."""
        if item.form == "wheel":
            self._wheel(item)
            return
        overlay = OverlayPlan(distribution=item.name, base=item.installed.version)
        for path in (*item.changed, *item.added):
            content = self._content(path)
            bytecode = path.endswith(".pyc") and not _is_elf(content)
            if path.startswith(self._site) and (bytecode or not is_compiled(content.head(), path)):
                overlay.files[path[len(self._site) :]] = content
            else:
                self._extra[path] = content
        overlay.remove = [path[len(self._site) :] for path in item.removed]
        if overlay.files or overlay.remove:
            self.plan.overlays[item.name] = overlay
        else:
            item.form = "pin"

    def _wheel(self, item: Captured) -> None:
        one = item.installed
        source = self._editables.get(item.name)
        contents: dict[str, Content] = {}
        for path in item.owned:
            if is_installers(path) or (source is not None and path in source.replaced):
                continue
            if path.startswith("bin/") and path[4:] in one.scripts:
                continue
            contents[path] = self._content(path)
        if source is not None:
            contents.update(source.contents)
        direct = f"{one.info}/direct_url.json"
        if direct in contents and one.origin.kind == "editable":
            data = public_direct_url(b"".join(contents[direct].blocks()))
            contents[direct] = Content.of(direct, data)
        if not fits_stem(one.info, one.name, one.version):
            # No reader takes such a wheel, so its files go with those of nobody, without the metadata.
            self.plan.findings.append(
                Finding(
                    code="W-CAPTURE-METADATA",
                    severity="warning",
                    subject=one.info,
                    expected=f"a folder named for {one.label}",
                    found="another name",
                    hint="its files are carried, its metadata is not: install the distribution again",
                )
            )
            inside = f"{one.info}/"
            self._extra.update({p: c for p, c in contents.items() if not p.startswith(inside)})
            return
        self.plan.wheels[item.name] = WheelPlan(
            name=one.name,
            version=one.version,
            info=one.info,
            contents=contents,
            tags=one.tags,
            scripts=one.scripts,
        )

    def _content(self, path: str) -> Content:
        content = content_of(self._disk, path)
        if not path.endswith(".pth") or not path.startswith(self._site):
            return content
        inventory = self._disk.inventory
        data = b"".join(content.blocks())
        text = read_path_file(data, inventory.prefixes, inventory.site).text
        if text == data:
            return content
        self.plan.findings.append(
            Finding(
                code="N-PTH-REWRITTEN",
                severity="note",
                subject=path,
                found="lines that lead into the environment by its absolute path",
                hint="carried relative to site-packages, so that they hold at any prefix",
            )
        )
        return Content.of(path, text, executable=content.executable)

    # --- what nobody owns

    def unowned(self) -> None:
        """Take the files of nobody."""
        for path in self._seen.unowned:
            self._extra[path] = self._content(path)

    def entry_points(self) -> None:
        """Carry scripts of entry points that are not as envbundle would write them."""
        for name, script, reference in self._entry_points():
            path = f"bin/{script}"
            known = self._disk.scripts.get(path)
            if known is None or path in self._disk.written or path in self._extra:
                continue
            if known.body != hashlib.sha256(generated_body(reference)).hexdigest():
                self._extra[path] = self._content(path)
                self._note_edited(name, path, reference)

    def _note_edited(self, name: str, path: str, reference: str) -> None:
        text = b"".join(self._extra[path].blocks())
        module = reference.partition(":")[0].encode()
        if module in text:
            return
        self.plan.findings.append(
            Finding(
                code="W-SCRIPT-OTHER",
                severity="warning",
                subject=path,
                expected=f"a script that runs {reference} of {name}",
                found="another script",
                hint="carried as it is; remove it from [package.envbundle-captured] to have it written anew",
            )
        )

    def _entry_points(self) -> Iterable[tuple[str, str, str]]:
        for name, item in self._seen.distributions.items():
            scripts = (
                item.installed.scripts if item.form == "wheel" or item.wheel is None else item.wheel.scripts
            )
            for script, reference in scripts.items():
                yield name, script, reference

    # --- the whole set

    def finish(self) -> None:
        """Make the wheel of what nobody owns, and name the winner of every contested path."""
        if self._extra:
            info = f"{self._site}{UNOWNED.replace('-', '_')}-{UNOWNED_VERSION}.dist-info"
            metadata = (
                f"Metadata-Version: 2.1\nName: {UNOWNED}\nVersion: {UNOWNED_VERSION}\n"
                "Summary: Files of the captured environment that belong to no distribution\n"
            )
            contents = dict(self._extra)
            contents[f"{info}/METADATA"] = Content.of(f"{info}/METADATA", metadata.encode())
            self.plan.wheels[UNOWNED] = WheelPlan(
                name=UNOWNED, version=UNOWNED_VERSION, info=info, contents=contents
            )
        self._winners()

    def _winners(self) -> None:
        for path, by_name in sorted(self._claims().items()):
            if len(by_name) < 2 or len(set(by_name.values())) == 1:
                continue
            found = self._disk.packed(path)
            if path.startswith("bin/") and UNOWNED in by_name:
                winner = UNOWNED
            else:
                names = sorted(name for name, digest in by_name.items() if digest == found)
                if not names:
                    names = sorted(by_name)
                winner = UNOWNED if UNOWNED in names else names[0]
            self.plan.winners.setdefault(winner, []).append(path)
            self.plan.contested.append((path, tuple(sorted(by_name)), winner))

    def _claims(self) -> dict[str, dict[str, str]]:
        """Return, by path, the digest (hex) that each distribution brings there in the end."""
        claims: dict[str, dict[str, str]] = {}
        for name, item in self._seen.distributions.items():
            if name in self.plan.wheels or item.wheel is None:
                continue
            removed = {self._site + path for path in self._removed(name)}
            for path, (digest, _, _) in item.wheel.files.items():
                if path not in removed and not is_installers(path):
                    claims.setdefault(path, {})[name] = digest
            for script, reference in item.wheel.scripts.items():
                claims.setdefault(f"bin/{script}", {})[name] = _entry_digest(reference)
            for path, content in self._overlaid(name).items():
                claims.setdefault(self._site + path, {})[name] = content.sha256
        for name, plan in self.plan.wheels.items():
            for path, content in plan.contents.items():
                claims.setdefault(path, {})[name] = content.sha256
            for script, reference in plan.scripts.items():
                claims.setdefault(f"bin/{script}", {})[name] = _entry_digest(reference)
        return claims

    def _removed(self, name: str) -> list[str]:
        return self.plan.overlays[name].remove if name in self.plan.overlays else []

    def _overlaid(self, name: str) -> dict[str, Content]:
        return self.plan.overlays[name].files if name in self.plan.overlays else {}


def _entry_digest(reference: str) -> str:
    return Digest.of(f"entry-point:{reference}".encode()).hex


def _is_elf(content: Content) -> bool:
    return content.head()[:4] == b"\x7fELF"
