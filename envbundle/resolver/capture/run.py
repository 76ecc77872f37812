"""``capture``: the order of the work. All is read first; then the folder is written, and named last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from envbundle import schemas
from envbundle.errors import HostError, UserInputError
from envbundle.host.file_urls import path_of_file_url
from envbundle.host.files import read_bounded
from envbundle.progress import SILENT, Reporter
from envbundle.resolver.gather import Gatherer
from envbundle.resolver.listing import Listing, absolute_links
from envbundle.resolver.scan import Scanner
from envbundle.resolver.solver import find_uv, uv_default_index
from envbundle.spec.finding import Finding
from envbundle.spec.manifest import Check, IndexSource
from envbundle.spec.manifest_render import render_manifest
from envbundle.spec.manifest_template import SCHEMA_FILE

from .assemble import UNOWNED, assemble
from .compare import Disk, read_scripts
from .coverage import coverage_rows
from .demands import demands
from .diffs import members_of, unified
from .distributions import read_distributions
from .editable import EditableSource, read_editable
from .ground import Ground, look_around, told
from .hashing import hash_files
from .inventory import note_attributes, take_inventory
from .links import follow_links
from .manifest_of import Facts, bundle_name, manifest_of
from .notices import notices, read_path_files
from .output import (
    Stage,
    copy_wheel,
    local_wheels,
    places_of,
    require_free,
    requirements_text,
    write_overlays,
    write_wheels,
)
from .process import Process, read_process
from .published import Published
from .receipts import Own, read_own
from .report import Report
from .request import Outcome, Request
from .scripts import body_of
from .survey import Survey, survey
from .variables import Variables, read_env_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.host.run import Runner

    from .inventory import Inventory
    from .published import PublishedWheel

_CHECK_TIMEOUT = 300
_HEADER = (
    f":schema ./{SCHEMA_FILE}",
    "Written by `envbundle capture`: what one living environment is. Edit it freely.",
    "Next: `envbundle lock`, `envbundle pack`, `envbundle copy`, `envbundle install`.",
)
_SCRIPTS = (
    "Files of no distribution, and scripts as they were on the source.\n"
    "Remove a script here and its distribution's own is written anew."
)


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
        ground, noticed = look_around(asked.venv, asked.runner)
        self._findings += noticed
        inventory, disk, own = self._read(ground)
        found = read_distributions(inventory)
        published = self._published(ground, links) if not asked.as_is else None
        editables = {
            one.name: read_editable(one, disk, asked.runner) for one in found if one.origin.kind == "editable"
        }
        kept = own.wheels if own is not None and not asked.as_is else {}
        self._reporter.note("comparing with published wheels")
        seen = survey(
            disk,
            found,
            published=published,
            known=kept,
            made=own.made if own is not None and not asked.as_is else {},
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
            copied = local_wheels(seen, links)
            for wheel in copied.values():
                copy_wheel(stage, wheel, path_of_file_url(wheel.url))
            stage.write("requirements.txt", requirements_text(seen, made, copied))
            manifest = manifest_of(plan, replace(facts, **places_of(seen, made, copied, facts)))
            stage.write(SCHEMA_FILE, schemas.text("manifest"))
            stage.write(
                "envbundle.toml",
                render_manifest(manifest, header=_HEADER, comments={f"package.{UNOWNED}": _SCRIPTS}),
            )
            self._patches(stage, diffs, editables)
            rows = coverage_rows(
                manifest if asked.archs else None,
                seen,
                made,
                folder=stage.folder / "wheels",
                published=published,
                scanner=Scanner(cache=asked.cache, reporter=self._reporter),
            )
            report = Report(
                out=str(asked.out),
                environment=told(ground, inventory, own),
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

    def _read(self, ground: Ground) -> tuple[Inventory, Disk, Own | None]:
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

    def _published(self, ground: Ground, links: tuple[str, ...]) -> Published:
        asked = self._asked
        folders = tuple(Path(place) for place in links if not urlsplit(place).scheme)
        return Published(
            links=Listing(fetcher=asked.fetcher, find_links=links, no_index=True),
            listing=Listing(
                fetcher=asked.fetcher,
                indexes=asked.indexes,
                default_index=asked.default_index or _uvs_index(asked.runner),
            ),
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

    def _surroundings(self, inventory: Inventory, ground: Ground) -> tuple[Variables, Process | None]:
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
        ground: Ground,
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
        default = (
            [IndexSource(name="default", url=asked.default_index, default=True)]
            if asked.default_index
            else []
        )
        given = inventory.given
        places = list(links)
        if own is not None and not asked.as_is:
            places += [place for place in own.manifest.resolve.find_links if Path(place).is_dir()]
        return Facts(
            name=bundle_name(Path(given).name),
            prefix=own.prefix if own is not None and given == inventory.root else given,
            machinery=ground.machinery,
            archs=asked.archs,
            find_links=tuple(dict.fromkeys(_relative(place, asked.out) for place in places)),
            indexes=(*asked.indexes, *default),
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


def _uvs_index(runner: Runner) -> str | None:
    """Return the index that lock will ask where nobody names one; None without uv."""
    try:
        return uv_default_index(runner, find_uv())
    except HostError:
        return None


def _bodies(published: Published | None) -> Any:
    """Return what gives the sha256 of a script's body in a wheel, without its first line."""
    import hashlib  # noqa: PLC0415

    def member_body(wheel: PublishedWheel, path: str) -> str | None:
        found = members_of(published, wheel, [path])
        return hashlib.sha256(body_of(found[path])).hexdigest() if path in found else None

    return member_body


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
            hint="taken from the disk as they are; capture again with an index to compare them",
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
