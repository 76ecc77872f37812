"""``capture``: the order of the work. Everything is read first; then the folder is written, and named last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from envbundle.errors import HostError, UserInputError
from envbundle.host.file_urls import path_of_file_url
from envbundle.host.files import read_bounded
from envbundle.host.probe import Devices, ask_interpreter, devices
from envbundle.host.probe import glibc as host_glibc
from envbundle.host.probe import machine as host_machine
from envbundle.host.run import Finished, Runner, run
from envbundle.progress import SILENT, Reporter
from envbundle.resolver.gather import Artifact, Gatherer
from envbundle.resolver.listing import Listing, absolute_links
from envbundle.resolver.scan import Scanner
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.manifest import Check, IndexSource
from envbundle.spec.manifest_render import render_manifest
from envbundle.spec.target import Arch

from .assemble import UNOWNED, assemble
from .compare import Disk, read_scripts
from .coverage import Coverage, coverage
from .demands import demands
from .diffs import members_of, unified
from .distributions import read_distributions
from .editable import EditableSource, read_editable
from .hashing import hash_files
from .inventory import note_attributes, python_of, read_config, require_environment, take_inventory
from .links import follow_links
from .manifest_of import Facts, Machinery, bundle_name, manifest_of
from .notices import interpreter_notices, notices, read_path_files
from .output import Stage, copy_wheel, require_free, requirements_text, write_overlays, write_wheels
from .process import Process, read_process
from .published import Machine, Published
from .receipts import Own, read_own
from .report import Report
from .scripts import body_of
from .survey import Survey, survey
from .variables import Variables, read_env_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from envbundle.host.fetch import Fetcher
    from envbundle.host.probe import Interpreter
    from envbundle.spec.manifest import Manifest

    from .inventory import Inventory
    from .published import PublishedWheel
    from .rebuild import Rebuilt

_CHECK_TIMEOUT = 300
_HEADER = (
    ":schema ./schemas/manifest.schema.json",
    "Written by `envbundle capture`: what one living environment is. Edit it freely.",
    "Next: `envbundle lock`, `envbundle pack`, `envbundle copy`, `envbundle install`.",
)
_SCRIPTS = (
    "Files of no distribution, and scripts as they were on the source.\n"
    "Remove a script here and its distribution's own is written anew."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked.

    ``out`` is the folder to write, ``cache`` envbundle's own. ``find_links`` are folders or URLs; ``indexes``
    are asked before ``default_index``. ``as_is`` compares with nothing. ``archs`` become targets;
    ``env_files``, ``paths`` and ``pid`` describe the surroundings; ``checks`` are modules to be imported.
    """

    venv: Path
    out: Path
    cache: Path
    fetcher: Fetcher
    runner: Runner = run
    find_links: tuple[str, ...] = ()
    indexes: tuple[IndexSource, ...] = ()
    default_index: str | None = None
    default_named: bool = False
    offline: bool = False
    as_is: bool = False
    archs: tuple[str, ...] = ()
    env_files: tuple[Path, ...] = ()
    paths: tuple[str, ...] = ()
    pid: int | None = None
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was written, and the report of it."""

    manifest: Manifest
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """The machine and the environment, before any file of it is looked into."""

    python: str
    interpreter: Interpreter | None
    machinery: Machinery
    config: Mapping[str, str]

    @property
    def machine(self) -> Machine:
        return Machine(python=self.python, machine=self.machinery.machine, glibc=self.machinery.glibc)


def capture(request: Request, reporter: Reporter = SILENT) -> Outcome:
    """Capture an environment into a folder.

    Nothing inside the environment is written. Raises ``UserInputError`` (E-NOT-A-VENV, E-CAPTURE-OUTPUT,
    E-NOT-FOUND ...), ``VerdictError`` (E-CONDA), ``HostError`` (E-CAPTURE-CHANGED, E-EDITABLE-GONE ...).
    """
    return _Capture(request, reporter).run()


class _Capture:
    def __init__(self, request: Request, reporter: Reporter) -> None:
        self._asked, self._reporter = request, reporter
        self._findings: list[Finding] = []

    def run(self) -> Outcome:
        asked = self._asked
        _check_places(asked)
        links = absolute_links(asked.find_links, Path.cwd())
        ground = self._ground()
        inventory, disk, own = self._read(ground)
        found = read_distributions(inventory)
        published = self._published(ground, links) if not asked.as_is else None
        editables = {
            one.name: read_editable(one, disk, asked.runner) for one in found if one.origin.kind == "editable"
        }
        kept = own.wheels if own is not None and not asked.as_is else {}
        mine = {ref.distribution for ref, _ in own.layers} if own is not None else set()
        self._reporter.note("comparing with published wheels")
        seen = survey(
            disk,
            found,
            published=published,
            known=kept,
            settled=frozenset(mine),
            own_name=UNOWNED,
            member_body=_bodies(published),
        )
        plan = assemble(seen, disk, editables)
        variables, process = self._surroundings(inventory, ground)
        self._findings += notices(seen, disk, editables, read_path_files(disk))
        self._findings += plan.findings
        if published is not None:
            published.close()
            self._findings += published.findings
            self._findings += _without_index(published, seen)
        diffs = {
            name: self._diffs(item.wheel, seen, name, disk, published, own)
            for name, item in seen.distributions.items()
            if item.form == "overlay" and item.wheel is not None and item.touched
        }
        facts = self._facts(ground, inventory, own, variables, process, links)
        with Stage(asked.out) as stage:
            self._reporter.note("writing what exists nowhere else")
            write_overlays(stage, plan)
            made = write_wheels(stage, plan, inventory.site, ground.machine)
            copied = _local_wheels(seen, links)
            for wheel in copied.values():
                copy_wheel(stage, wheel, path_of_file_url(wheel.url))
            stage.write("requirements.txt", requirements_text(seen, made, copied))
            direct = all(n in made or n in copied for n in seen.distributions)
            manifest = manifest_of(
                plan, replace(facts, no_index=direct, find_links=() if direct else facts.find_links)
            )
            stage.write(
                "envbundle.toml",
                render_manifest(manifest, header=_HEADER, comments={f"package.{UNOWNED}": _SCRIPTS}),
            )
            self._patches(stage, diffs, editables)
            rows = self._coverage(stage, seen, made, published, manifest)
            report = Report(
                out=str(asked.out),
                environment=_told(ground, inventory, own),
                seen=seen,
                plan=plan,
                inventory=inventory,
                made=made,
                editables=editables,
                diffs=diffs,
                variables=variables,
                findings=tuple(dict.fromkeys(self._findings)),
                coverage=rows,
                process=process,
                sizes={
                    "files": sum(file.size for file in inventory.files.values()),
                    "overlays": sum(c.size for o in plan.overlays.values() for c in o.files.values()),
                    "wheels": sum(r.size for r in made.values()) + sum(w.size for w in copied.values()),
                },
            )
            stage.write("report.md", report.text())
            stage.finish()
        return Outcome(manifest=manifest, report=report)

    # --- reading

    def _ground(self) -> _Ground:
        asked = self._asked
        require_environment(asked.venv)
        python = python_of(asked.venv)
        config = read_config(str(asked.venv))
        interpreter = ask_interpreter(asked.venv / "bin" / "python", _quiet(asked.runner))
        self._findings += interpreter_notices(asked.venv, config, interpreter, python)
        gpus = devices(asked.runner)
        return _Ground(
            python=python,
            interpreter=interpreter,
            machinery=_machinery(python, config, interpreter, gpus),
            config=config,
        )

    def _read(self, ground: _Ground) -> tuple[Inventory, Disk, Own | None]:
        inventory = take_inventory(self._asked.venv, ground.python)
        note_attributes(inventory)
        own = read_own(inventory.root)
        if own is not None:
            inventory.known_as = tuple(dict.fromkeys((own.prefix, *inventory.known_as)))
        self._findings += follow_links(inventory)
        total = sum(file.size for file in inventory.files.values())
        self._reporter.start("hash files", total=total)
        digests = hash_files(inventory.files.values())
        self._reporter.finish("hash files")
        disk = Disk(
            inventory=inventory,
            digests=digests,
            scripts=read_scripts(inventory, digests),
            restored=own.restored(digests) if own is not None else {},
            written=own.written(digests) if own is not None else frozenset(),
        )
        return inventory, disk, own

    def _published(self, ground: _Ground, links: tuple[str, ...]) -> Published:
        asked = self._asked
        folders = tuple(Path(place) for place in links if not urlsplit(place).scheme)
        return Published(
            links=Listing(fetcher=asked.fetcher, find_links=links, no_index=True),
            listing=Listing(fetcher=asked.fetcher, indexes=asked.indexes, default_index=asked.default_index),
            gatherer=Gatherer(
                cache=asked.cache,
                fetcher=asked.fetcher,
                folders=folders,
                offline=asked.offline,
                reporter=self._reporter,
            ),
            scanner=Scanner(cache=asked.cache, reporter=self._reporter),
            cache=asked.cache,
            machine=ground.machine,
        )

    def _surroundings(self, inventory: Inventory, ground: _Ground) -> tuple[Variables, Process | None]:
        variables, process = Variables(), None
        for path in self._asked.env_files:
            text = read_bounded(path, 1 << 20).decode("utf-8", "replace")
            variables.add(read_env_file(text, inventory.prefixes))
        if self._asked.pid is not None:
            base = ground.interpreter.prefix if ground.interpreter is not None else "/usr"
            process = read_process(self._asked.pid, inventory.prefixes, base)
            variables.add(process.variables)
            if not process.uses_environment:
                self._findings.append(_stranger(process, inventory))
        if variables.secrets:
            self._findings.append(
                Finding(
                    code="N-CAPTURE-SECRETS",
                    severity="note",
                    subject=", ".join(variables.secrets),
                    found="variables whose names look like those of secrets",
                    hint="dropped; give them to the target by its own means",
                )
            )
        return variables, process

    # --- what goes into the manifest

    def _facts(
        self,
        ground: _Ground,
        inventory: Inventory,
        own: Own | None,
        variables: Variables,
        process: Process | None,
        links: tuple[str, ...],
    ) -> Facts:
        asked = self._asked
        invariants, findings = demands(asked.paths, variables.values, process, inventory.prefixes)
        self._findings += findings
        modules = [*asked.checks, *(_top(m) for m in (process.modules if process is not None else ()))]
        checks = tuple(Check(imports=(module,)) for module in dict.fromkeys(modules))
        results = tuple((f"import {m}", self._imports(m)) for m in dict.fromkeys(asked.checks))
        default = (IndexSource(name="default", url=asked.default_index or "", default=True),)
        plain = not asked.default_named
        given = inventory.given
        return Facts(
            name=bundle_name(Path(given).name),
            prefix=own.prefix if own is not None and given == inventory.root else given,
            machinery=ground.machinery,
            archs=asked.archs,
            find_links=tuple(_relative(place, asked.out) for place in links),
            indexes=(*asked.indexes, *(() if plain else default)),
            environment=variables.values,
            invariants=invariants,
            checks=checks,
            results=results,
            base=own.manifest if own is not None else None,
        )

    def _imports(self, module: str) -> bool:
        """Import a module on the source, without writing bytecode, and say whether it went well."""
        try:
            done = self._asked.runner(
                [self._asked.venv / "bin" / "python", "-B", "-I", "-c", f"import {module}"],
                timeout=_CHECK_TIMEOUT,
                cwd=Path("/"),
            )
        except HostError:
            return False
        return done.status == 0

    def _diffs(
        self,
        wheel: PublishedWheel,
        seen: Survey,
        name: str,
        disk: Disk,
        published: Published | None,
        own: Own | None,
    ) -> dict[str, str]:
        item = seen.distributions[name]
        wanted = [path for path in (*item.changed, *item.removed) if path in item.touched]
        old = members_of(published, wheel, wanted, cached_only=own is not None)
        return unified(
            [p for p in item.changed if p in item.touched],
            [p for p in item.added if p in item.touched],
            item.removed,
            old,
            disk,
        )

    # --- writing

    def _patches(
        self,
        stage: Stage,
        diffs: Mapping[str, Mapping[str, str]],
        editables: Mapping[str, EditableSource],
    ) -> None:
        for name, by_path in diffs.items():
            text = "".join(by_path.values())
            if text:
                stage.write(f"patches/{name}.diff", text)
        for name, source in editables.items():
            if source.checkout is not None and source.checkout.diff:
                stage.write(f"patches/{name}.git.diff", source.checkout.diff)

    def _coverage(
        self,
        stage: Stage,
        seen: Survey,
        made: Mapping[str, Rebuilt],
        published: Published | None,
        manifest: Manifest,
    ) -> tuple[Coverage, ...]:
        if not self._asked.archs:
            return ()
        scanner = Scanner(cache=self._asked.cache, reporter=self._reporter)
        scans = {}
        for name, rebuilt in made.items():
            artifact = Artifact(
                filename=rebuilt.filename,
                path=stage.folder / "wheels" / rebuilt.filename,
                sha256=Digest(rebuilt.sha256),
                size=rebuilt.size,
            )
            if rebuilt.compiled:
                scans[name] = scanner.scan(artifact)
        for name, item in seen.distributions.items():
            if name not in made and item.wheel is not None and published is not None:
                held = published.artifact(item.wheel)
                if held is not None:
                    scans[name] = scanner.scan(held)
        gpus = dict.fromkeys(gpu for spec in manifest.targets for gpu in spec.target.gpus)
        sources = manifest.source.gpus if manifest.source is not None else ()
        return coverage(scans, gpus, tuple(Arch.parse(name) for name in sources))


def _check_places(asked: Request) -> None:
    root = asked.venv.resolve()
    for option, place in (("-o", asked.out), ("the cache", asked.cache)):
        real = place.absolute().parent.resolve() / place.name if option == "-o" else place.resolve()
        if real == root or real.is_relative_to(root):
            raise UserInputError(
                "E-CAPTURE-OUTPUT",
                f"{option} {place}",
                expected="a folder outside the environment, which is never written to",
                found=f"one inside {root}",
            )
    require_free(asked.out)


def _quiet(runner: Runner) -> Runner:
    """Return a runner that starts Python without site and without writing bytecode."""

    def quiet(argv: Sequence[str | Path], **how: Any) -> Finished:
        return runner([argv[0], "-B", "-S", *argv[1:]], **how)

    return quiet


def _machinery(
    python: str, config: Mapping[str, str], interpreter: Interpreter | None, gpus: Devices
) -> Machinery:
    libc = interpreter.libc if interpreter is not None else f"glibc {host_glibc() or ''}"
    name, _, version = libc.partition(" ")
    if name != "glibc" or not version:
        raise UserInputError(
            "E-NOT-GLIBC", "the environment's interpreter", expected="one for glibc", found=libc or "unknown"
        )
    said = config.get("version_info", config.get("version", python))
    return Machinery(
        python=python,
        machine=_plain_machine(interpreter.machine if interpreter is not None else host_machine()),
        glibc=".".join(version.split(".")[:2]),
        version=interpreter.version if interpreter is not None else ".".join(said.split(".")[:3]),
        gpus=tuple(dict.fromkeys(str(gpu.arch) for gpu in gpus.gpus)),
        driver=gpus.driver,
    )


def _plain_machine(name: str) -> str:
    return {"amd64": "x86_64", "AMD64": "x86_64", "arm64": "aarch64"}.get(name, name)


def _bodies(published: Published | None) -> Any:
    """Return what gives the sha256 of a script's body in a wheel, without its first line."""
    import hashlib  # noqa: PLC0415

    def member_body(wheel: PublishedWheel, path: str) -> str | None:
        found = members_of(published, wheel, [path])
        return hashlib.sha256(body_of(found[path])).hexdigest() if path in found else None

    return member_body


def _local_wheels(seen: Survey, links: Sequence[str]) -> dict[str, PublishedWheel]:
    """Return the wheels that lie on this machine alone: named by direct_url.json, in no find-links folder."""
    found = {}
    for name, item in seen.distributions.items():
        wheel = item.wheel
        if wheel is None or item.form == "wheel" or not wheel.url.startswith("file:"):
            continue
        if wheel.direct and str(path_of_file_url(wheel.url).parent) not in links:
            found[name] = wheel
    return found


def _without_index(published: Published, seen: Survey) -> list[Finding]:
    taken = [item.name for item in seen.distributions.values() if item.kind == "as-is"]
    if published.dead is None or not taken:
        return []
    return [
        Finding(
            code="N-CAPTURE-AS-IS",
            severity="note",
            subject=f"{len(taken)} of {len(seen.distributions)} distributions",
            expected="an index or find-links that answers",
            found=f"{published.dead.subject}: {published.dead.found or published.dead.code}"[:300],
            hint="taken from the disk as they are; capture again with an index to raise them to published wheels",
        )
    ]


def _stranger(process: Process, inventory: Inventory) -> Finding:
    return Finding(
        code="W-CAPTURE-PROCESS",
        severity="warning",
        subject=f"--pid {process.pid}",
        expected=f"a process that runs from {inventory.given}",
        found=" ".join(process.argv)[:160] or "a process without a command line",
        hint="its variables and folders were taken all the same: look whether they belong here",
    )


def _told(ground: _Ground, inventory: Inventory, own: Own | None) -> dict[str, Any]:
    interpreter = ground.interpreter
    return {
        "prefix": inventory.given,
        "real_path": inventory.root,
        "interpreter": interpreter.path if interpreter is not None else "",
        "home": ground.config.get("home", ""),
        "python": ground.machinery.version,
        "abi": interpreter.abi if interpreter is not None else "",
        "machine": ground.machinery.machine,
        "glibc": ground.machinery.glibc,
        "gpus": ", ".join(ground.machinery.gpus),
        "driver": ground.machinery.driver or "",
        "bundle": str(own.receipt.bundle_id) if own is not None else "",
    }


def _top(module: str) -> str:
    return module.partition(".")[0]


def _relative(place: str, out: Path) -> str:
    """Return a find-links place as the manifest names it: relative where it lies in the folder."""
    if urlsplit(place).scheme:
        return place
    try:
        return Path(place).relative_to(out.resolve()).as_posix()
    except ValueError:
        return place
