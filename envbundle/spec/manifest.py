"""The manifest's values: what ``envbundle.toml`` declares, after parsing and checking.

Paths are as written, relative to the manifest's folder; nothing here touches them. The text form (TOML,
positions, "did you mean") is read by ``envbundle.spec.manifest_text``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .target import Target

CoveragePolicy = Literal["complete", "files", "any", "runtime-jit"]
COVERAGE_POLICIES: tuple[str, ...] = ("complete", "files", "any", "runtime-jit")
OverlayMode = Literal["merge", "replace"]
LayoutMode = Literal["fixed", "relocatable"]
Interpreter = Literal["host", "bundled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSource:
    """A package index. ``explicit`` ones serve only packages that ``from`` sends there."""

    name: str
    url: str
    default: bool = False
    explicit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """How versions are chosen. Strings are PEP 508 requirements or paths relative to the manifest.

    A constraint is either one: ``constraint_files`` are those that name a file (``text_checks.is_file``).
    ``complete`` means a full freeze of exact pins: no solving. ``sources`` maps a normalised
    distribution name to the name of the only index it may come from.
    """

    requirements: tuple[str, ...] = ()
    requirement_files: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    complete: bool = False
    max_tries: int = 5
    indexes: tuple[IndexSource, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()

    def plus(self, own: Resolve) -> Resolve:
        """Return these settings with a target's ``own`` lists added; its sources win, the rest is common."""
        return replace(
            self,
            requirements=self.requirements + own.requirements,
            requirement_files=self.requirement_files + own.requirement_files,
            constraints=self.constraints + own.constraints,
            find_links=self.find_links + own.find_links,
            indexes=self.indexes + own.indexes,
            sources=tuple(sorted({**dict(self.sources), **dict(own.sources)}.items())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """How a wheel is made where no published one serves.

    ``source`` is a folder, an sdist's path, or ``git+url@rev``.
    """

    source: str
    env: tuple[tuple[str, str], ...] = ()
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagePolicy:
    """What is demanded of one distribution. ``None`` means not said at this level.

    ``exempt`` holds globs over the wheel's member paths; ``winner`` holds contested paths (prefix-relative)
    that this distribution provides.
    """

    coverage: CoveragePolicy | None = None
    jit: Literal["allow", "refuse"] | None = None
    exempt: tuple[str, ...] = ()
    winner: tuple[str, ...] = ()
    build: Build | None = None

    def over(self, base: PackagePolicy) -> PackagePolicy:
        """Return this policy laid over ``base``: said values win, lists add up."""
        return PackagePolicy(
            coverage=self.coverage or base.coverage,
            jit=self.jit or base.jit,
            exempt=tuple(dict.fromkeys((*base.exempt, *self.exempt))),
            winner=tuple(dict.fromkeys((*base.winner, *self.winner))),
            build=self.build or base.build,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """One ``[target.NAME]``: the target itself and what it adds to the common sections."""

    target: Target
    resolve: Resolve = field(default_factory=Resolve)
    packages: tuple[tuple[str, PackagePolicy], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Files laid over a distribution.

    ``path`` is a folder laid out as site-packages content of that
    distribution's top (see docs/format.md); ``remove`` holds site-packages-relative paths.
    """

    distribution: str
    path: str
    base: str | None = None
    mode: OverlayMode = "merge"
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the environment may live and which interpreter runs it."""

    prefix: str | None = None
    mode: LayoutMode = "relocatable"
    interpreter: Interpreter = "host"
    interpreter_path: str | None = None
    pin_processes: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form used in descriptors (None left out)."""
        value: dict[str, Any] = {
            "mode": self.mode,
            "interpreter": self.interpreter,
            "pin-processes": self.pin_processes,
        }
        if self.prefix is not None:
            value["prefix"] = self.prefix
        if self.interpreter_path is not None:
            value["interpreter-path"] = self.interpreter_path
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """Something that must hold on the target. ``fields`` holds the kind's own keys as JSON values."""

    kind: str
    fields: tuple[tuple[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"kind": self.kind, **dict(self.fields)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What is run in the new generation before it goes live: imports or one argv. ``timeout`` in seconds."""

    imports: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    network: Literal["denied", "allowed"] = "denied"
    timeout: int = 300

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form used in descriptors."""
        value: dict[str, Any] = {"network": self.network, "timeout": self.timeout}
        if self.imports:
            value["import"] = list(self.imports)
        if self.run:
            value["run"] = list(self.run)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Distributions whose public versions must be equal."""

    same_version: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The machine the environment came from, as capture recorded it.

    ``libraries`` are sonames that its loader found outside the environment and that files in it want; None
    where nobody looked.
    """

    gpus: tuple[str, ...] = ()
    driver: str | None = None
    glibc: str | None = None
    python: str | None = None
    checks: tuple[tuple[str, bool], ...] = ()
    libraries: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything a manifest says. Distribution names are normalised."""

    name: str
    version: str
    python: str
    serial: int | None = None
    resolve: Resolve = field(default_factory=Resolve)
    targets: tuple[TargetSpec, ...] = ()
    overlays: tuple[Overlay, ...] = ()
    packages: tuple[tuple[str, PackagePolicy], ...] = ()
    layout: Layout = field(default_factory=Layout)
    invariants: tuple[Invariant, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    checks: tuple[Check, ...] = ()
    groups: tuple[Group, ...] = ()
    source: Source | None = None

    def policy(self, target: str, distribution: str) -> PackagePolicy:
        """Return the policy of a distribution for a target: the target's own laid over the common one."""
        common = dict(self.packages).get(distribution, PackagePolicy())
        for spec in self.targets:
            if spec.target.name == target:
                return dict(spec.packages).get(distribution, PackagePolicy()).over(common)
        return common

    def policies(self, target: str) -> dict[str, PackagePolicy]:
        """Return the policy for a target of every distribution that the manifest names, sorted by name."""
        names = {name for name, _ in self.packages} | {name for name, _ in self.spec(target).packages}
        return {name: self.policy(target, name) for name in sorted(names)}

    def spec(self, target: str) -> TargetSpec:
        """Return the target of that name; a name that is not there is a wrong call (``KeyError``)."""
        return {spec.target.name: spec for spec in self.targets}[target]

    def resolve_for(self, target: str) -> Resolve:
        """Return how versions are chosen for one target: the common settings with the target's added."""
        return self.resolve.plus(self.spec(target).resolve)
