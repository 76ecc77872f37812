"""A project on the disk: wheels, overlays, a manifest, and one call that locks it with the real uv."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from envbundle.host.fetch import HttpFetcher
from envbundle.resolver.lock import LockContext, lock, lock_path, write_lock
from envbundle.spec.lock_text import parse_lock
from envbundle.spec.manifest_text import parse_manifest
from tests.builders import gpu_library, make_wheel, modules

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.resolver.lock import LockOutcome
    from envbundle.spec.finding import Finding
    from envbundle.spec.lock import Lock

GPU_TAG = "cp312-cp312-manylinux_2_28_x86_64"


def library(*containers: str) -> bytes:
    """Return a shared object; each argument is one device module as in ``"sm_80 sm_90a compute_90@9.0"``."""
    return gpu_library(*(modules(*text.split()) for text in containers))


@dataclass(slots=True)
class Project:
    """A manifest's folder. ``head`` holds what the test adds to the manifest."""

    folder: Path
    cache: Path
    requirements: list[str] = field(default_factory=list)
    resolve: str = 'find-links = ["wheels"]\nno-index = true'
    targets: str = ""
    more: str = ""
    python: str = "3.12"

    @property
    def wheels(self) -> Path:
        return self.folder / "wheels"

    def wheel(self, name: str, version: str, files: Any = None, **more: Any) -> Path:
        """Make a wheel in the find-links folder."""
        return make_wheel(self.wheels, name, version, files, **more)

    def gpu_wheel(self, name: str, version: str, files: dict[str, tuple[str, ...]], **more: Any) -> Path:
        """Make a wheel of shared objects, each given by its device modules (see ``library``)."""
        built = {path: library(*texts) for path, texts in files.items()}
        built[f"{name.replace('-', '_')}/__init__.py"] = b""
        more.setdefault("tag", GPU_TAG)
        return make_wheel(self.wheels, name, version, built, purelib=False, **more)

    def target(self, name: str, gpu: str | None = None, **keys: str) -> None:
        """Add a target; keys of the manifest with ``_`` for ``-``."""
        words = {"gpu": gpu or name, "platform": "x86_64-manylinux_2_39", **keys}
        lines = [f"[target.{name}]"] + [
            f"{key.replace('_', '-')} = {value if value.startswith('[') else repr(value)}"
            for key, value in words.items()
        ]
        self.targets += "\n".join(lines).replace("'", '"') + "\n"

    @property
    def text(self) -> str:
        listed = ", ".join(f'"{one}"' for one in self.requirements)
        return (
            f'[bundle]\nname = "demo"\nversion = "1"\npython = "{self.python}"\n'
            f"[resolve]\nrequirements = [{listed}]\n{self.resolve}\n{self.targets}\n{self.more}\n"
        )

    def lock(self, target: str, **context: Any) -> LockOutcome:
        """Lock a target without writing it."""
        self.wheels.mkdir(exist_ok=True)
        base = LockContext(folder=self.folder, cache=self.cache, fetcher=HttpFetcher(timeout=10))
        return lock(parse_manifest(self.text), target, context=replace(base, **context))

    def write(self, target: str, **context: Any) -> LockOutcome:
        """Lock a target and write its file."""
        return write_lock(self.lock(target, **context), lock_path(self.folder, target))

    def path(self, target: str) -> Path:
        return lock_path(self.folder, target)

    def written(self, target: str) -> Lock:
        return parse_lock(self.path(target).read_text("utf-8"))


def codes(found: LockOutcome | tuple[Finding, ...]) -> list[str]:
    """The codes of the findings, sorted."""
    findings = found if isinstance(found, tuple) else found.findings
    return sorted(finding.code for finding in findings)


def only(outcome: LockOutcome, code: str) -> Finding:
    """The one finding of that code."""
    found = [finding for finding in outcome.findings if finding.code == code]
    assert len(found) == 1, [f"{f.code} {f.subject}" for f in outcome.findings]
    return found[0]
