"""Writing what capture made: a stage beside the folder, filled, then renamed into place.

envbundle.toml  requirements.txt  report.md  overlays/<distribution>/  wheels/  patches/<distribution>.diff
"""

from __future__ import annotations

import secrets
import shutil
from typing import TYPE_CHECKING, Any

from envbundle.errors import UserInputError
from envbundle.host.file_urls import path_of_file_url
from envbundle.host.files import atomic_write, host_errors, sync_folder

from .content import Content
from .rebuild import Rebuilt, write_wheel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .assemble import Plan
    from .manifest_of import Facts
    from .published import Machine, PublishedWheel
    from .survey import Survey


class Stage:
    """The folder being filled; ``finish`` gives it its name, leaving the block without it removes it."""

    def __init__(self, out: Path) -> None:
        """Make a stage beside ``out``, which must not be there, or be an empty folder."""
        self.out = out
        self.folder = out.parent / f".{out.name}.{secrets.token_hex(4)}.capture"

    def __enter__(self) -> Stage:  # noqa: PYI034 - typing.Self is Python 3.11's
        require_free(self.out)
        with host_errors(self.folder):
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o755)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def finish(self) -> None:
        """Give the folder its final name."""
        with host_errors(self.out):
            if self.out.is_dir():
                self.out.rmdir()
            self.folder.rename(self.out)
            sync_folder(self.out.parent)

    def write(self, name: str, text: str) -> None:
        """Write a text file."""
        path = self.folder / name
        with host_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text.encode("utf-8", "backslashreplace"), sync=False)


def require_free(out: Path) -> None:
    """Raise ``UserInputError`` (E-CAPTURE-OUTPUT) where something stands at ``out``."""
    if out.is_symlink() or (out.exists() and not out.is_dir()) or (out.is_dir() and any(out.iterdir())):
        raise UserInputError(
            "E-CAPTURE-OUTPUT",
            str(out),
            expected="a folder that is not there yet, or is empty",
            found="something else",
            hint="name another one with -o, or remove it",
        )


def write_overlays(stage: Stage, plan: Plan) -> None:
    """Write the overlays' folders, files with plain modes."""
    for name, overlay in plan.overlays.items():
        folder = stage.folder / "overlays" / name
        with host_errors(folder):
            folder.mkdir(parents=True)
        for path, content in sorted(overlay.files.items()):
            place = folder / path
            with host_errors(place):
                place.parent.mkdir(parents=True, exist_ok=True)
            content.copy_to(place)


def write_wheels(stage: Stage, plan: Plan, site: str, machine: Machine) -> dict[str, Rebuilt]:
    """Write the rebuilt wheels and return them by distribution."""
    made = {}
    for name, wheel in sorted(plan.wheels.items()):
        folder = _wheels(stage)
        made[name] = write_wheel(
            folder,
            name=wheel.name,
            version=wheel.version,
            info=wheel.info,
            site=site,
            contents=wheel.contents.values(),
            tags=wheel.tags,
            machine=machine,
        )
    return made


def copy_wheel(stage: Stage, wheel: PublishedWheel, place: Path) -> None:
    """Copy a wheel that lies on this machine alone."""
    content = Content(path=wheel.filename, sha256=wheel.sha256, size=wheel.size, place=str(place))
    content.copy_to(_wheels(stage) / wheel.filename)


def _wheels(stage: Stage) -> Path:
    folder = stage.folder / "wheels"
    with host_errors(folder):
        folder.mkdir(exist_ok=True)
    return folder


def requirements_text(seen: Survey, made: Mapping[str, Rebuilt], copied: Mapping[str, PublishedWheel]) -> str:
    """Return the complete freeze: one exact line for each distribution, with its hash."""
    lines = ["# Every distribution of the captured environment, exactly. Written by `envbundle capture`."]
    for name, item in sorted(seen.distributions.items()):
        origin, wheel = item.installed.origin, item.wheel
        if origin.kind in ("editable", "vcs", "path"):
            at = f" at {origin.commit}" if origin.commit else ""
            lines.append(f"# {name} was installed from {origin.url}{at}")
        if name in made:
            lines.append(_direct(name, made[name].filename, made[name].sha256))
        elif wheel is None or item.form == "wheel":
            continue  # its files went with those of nobody
        elif name in copied:
            lines.append(_direct(name, wheel.filename, wheel.sha256))
        elif wheel.direct:
            lines.append(f"{name} @ {wheel.url} --hash=sha256:{wheel.sha256}")
        else:
            lines.append(f"{name}=={item.installed.version} --hash=sha256:{wheel.sha256}")
    lines += [
        _direct(n, r.filename, r.sha256) for n, r in sorted(made.items()) if n not in seen.distributions
    ]
    return "\n".join(lines) + "\n"


def _direct(name: str, filename: str, sha256: str) -> str:
    return f"{name} @ wheels/{filename} --hash=sha256:{sha256}"


def local_wheels(seen: Survey, links: Sequence[str]) -> dict[str, PublishedWheel]:
    """Return the wheels that lie on this machine alone: named by direct_url.json, in no find-links folder."""
    found = {}
    for name, item in seen.distributions.items():
        wheel = item.wheel
        if wheel is None or item.form == "wheel" or not wheel.url.startswith("file:"):
            continue
        if wheel.direct and str(path_of_file_url(wheel.url).parent) not in links:
            found[name] = wheel
    return found


def places_of(
    seen: Survey, made: Mapping[str, Rebuilt], copied: Mapping[str, PublishedWheel], facts: Facts
) -> dict[str, Any]:
    """Return which of the places that were asked a lock must ask too."""
    asked = [i.wheel for n, i in seen.distributions.items() if n not in made and n not in copied]
    pinned = [wheel for wheel in asked if wheel is not None and not wheel.direct]
    indexed = any(wheel.index is not None for wheel in pinned)
    return {"no_index": not indexed, "find_links": facts.find_links if pinned else ()}
