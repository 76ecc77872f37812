"""The lock's values: what one target gets, exactly (docs/format.md, "Lock").

The text form is a PEP 751 file (``pylock.<target>.toml``); ``Lock`` is what it says after reading: the
packages, each with one wheel, and the ``[tool.envbundle]`` table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .fields import Fields, read_text
from .names import normalise_name

if TYPE_CHECKING:
    from .coverage import Counts, Entry
    from .descriptor import Exemption, Origin
    from .digest import Digest
    from .target import Target

LOCK_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedWheel:
    """One artifact. ``url`` is without credentials; ``path`` is relative to the lock; one of them is set.

    ``size`` in bytes. ``index`` is the URL of the index that offered it, where one did.
    """

    filename: str
    sha256: Digest
    size: int
    url: str | None = None
    path: str | None = None
    index: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One distribution: normalised name, exact version (local part included), its wheel, its origin."""

    name: str
    version: str
    wheel: LockedWheel
    origin: Origin = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvidence:
    """What a file of a distribution holds and how its modules serve each GPU of the target."""

    path: str
    entries: tuple[Entry, ...]
    counts: tuple[tuple[str, Counts], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionEvidence:
    """Coverage of one distribution, per GPU of the target, with its files that hold GPU code."""

    distribution: str
    counts: tuple[tuple[str, Counts], ...]
    files: tuple[FileEvidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayFile:
    """One file of an overlay.

    ``path`` is relative to site-packages (purelib/platlib of the base); ``mode``
    is 0o644 or 0o755; ``replaces`` is the digest of the base file, None where the overlay adds the file.
    """

    path: str
    sha256: Digest
    size: int
    mode: int = 0o644
    replaces: Digest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedOverlay:
    """An overlay as locked. ``removes`` pairs a site-packages path with the digest of the base's file.

    ``below`` is what stands before the folder's own paths in site-packages: '' or a package with its slash
    (``sglang/``), so the file ``below + p`` is the file ``p`` of the folder ``path``.
    """

    distribution: str
    path: str
    mode: str
    base_version: str
    base_wheel: Digest
    below: str = ""
    files: tuple[OverlayFile, ...] = ()
    removes: tuple[tuple[str, Digest], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contested:
    """A prefix-relative path that several distributions claim. ``claims`` pairs distribution and digest.

    ``winner`` is the distribution whose bytes are installed.
    """

    path: str
    claims: tuple[tuple[str, Digest], ...]
    winner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedBuild:
    """What a wheel of origin ``built`` was made from.

    ``source`` is as the manifest writes it; ``digest`` is ``sha256:...`` of a folder or sdist, or
    ``git:COMMIT``; ``env`` and ``requires`` are the manifest's; ``toolchain`` pairs a program (``nvcc``)
    with its release.
    """

    distribution: str
    source: str
    digest: str
    env: tuple[tuple[str, str], ...] = ()
    requires: tuple[str, ...] = ()
    toolchain: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_dict(cls, value: Any, where: str = "build") -> LockedBuild:
        """Read the JSON form; raises ``FormatError``."""
        fields = Fields(value, where)
        build = cls(
            distribution=fields.parsed("distribution", normalise_name),
            source=fields.text("source"),
            digest=fields.text("digest"),
            env=tuple(fields.mapping("env", read_text).items()),
            requires=fields.texts("requires"),
            toolchain=tuple(fields.mapping("toolchain", read_text).items()),
        )
        fields.done()
        return build

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "distribution": self.distribution,
            "source": self.source,
            "digest": self.digest,
            "env": dict(self.env),
            "requires": list(self.requires),
            "toolchain": dict(self.toolchain),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What one target gets."""

    target: Target
    manifest: Digest
    tool: str
    rules: str
    solver: str
    packages: tuple[LockedPackage, ...]
    overlays: tuple[LockedOverlay, ...] = ()
    coverage: tuple[DistributionEvidence, ...] = ()
    contested: tuple[Contested, ...] = ()
    exemptions: tuple[Exemption, ...] = ()
    builds: tuple[LockedBuild, ...] = ()
    requires: dict[str, str] = field(default_factory=dict)

    def package(self, name: str) -> LockedPackage | None:
        """Return the locked package of that normalised name."""
        return next((package for package in self.packages if package.name == name), None)
