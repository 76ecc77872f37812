"""Installing: from a trusted descriptor and a store to a live generation, or to nothing at all.

* Nothing is written before preflight has no error; nothing outside the stage before everything in it was
  verified; the prefix changes by one rename at the very end.
* Whatever fails, the stage is removed and the prefix is as it was. A run that was killed leaves the old or
  the new environment, and the next run cleans up and finishes.
"""

# ruff: noqa: PTH104 - one rename of a folder
from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import envbundle
from envbundle.errors import EnvbundleError, HostError
from envbundle.host.files import atomic_write, host_errors
from envbundle.host.processes import users_of
from envbundle.host.run import run
from envbundle.host.tree import Tree, remove_tree
from envbundle.progress import SILENT
from envbundle.spec.finding import Finding
from envbundle.spec.receipt import Receipt
from envbundle.store.read import read_plain
from envbundle.trust.policy import check_serial

from . import checks as checking
from . import generations as gens
from . import journal
from .facts import gather
from .kept import read_layers, reusable
from .layout import DESCRIPTOR, LAYERS, LOCK, MANIFEST, RECEIPT, SIGNATURES, STAGE, Prefix
from .options import InstallResult
from .plan import plan as make_plan
from .preflight import foreign, judge, refuse
from .reuse import OldGeneration, Reuser, open_generation
from .staging import Stage
from .values import check_values
from .verify import verify_generation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from envbundle.host.run import Runner
    from envbundle.progress import Reporter
    from envbundle.spec.descriptor import Descriptor
    from envbundle.spec.layer import Layer
    from envbundle.store.protocol import Store
    from envbundle.trust.trusted import TrustedDescriptor

    from .facts import HostFacts
    from .layout import GenerationName
    from .options import InstallOptions
    from .plan import Plan


CHECKS = "run checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One install, its inputs read and judged."""

    trusted: TrustedDescriptor[Descriptor]
    store: Store
    options: InstallOptions
    prefix: Prefix
    layers: Sequence[Layer]
    plan: Plan
    facts: HostFacts
    findings: tuple[Finding, ...]
    runner: Runner
    reporter: Reporter
    now: datetime

    @property
    def descriptor(self) -> Descriptor:
        return self.trusted.descriptor


def check_install(
    trusted: TrustedDescriptor[Descriptor],
    store: Store,
    options: InstallOptions,
    *,
    runner: Runner = run,
) -> tuple[Finding, ...]:
    """Return every finding of preflight, writing nothing (`install --check`).

    Raises only for a bundle that contradicts itself or is damaged (``IntegrityError``).
    """
    check_values(trusted.descriptor.content)
    prefix = Prefix.of(options.prefix)
    layers = read_layers(trusted.descriptor, store, prefix)
    content = trusted.descriptor.content
    facts = _gather(prefix, trusted.descriptor, options, runner)
    reused = reusable(trusted.descriptor, prefix, options)
    return tuple(judge(content, make_plan(content, layers), facts, options, reused=reused))


def install(
    trusted: TrustedDescriptor[Descriptor],
    store: Store,
    options: InstallOptions,
    *,
    runner: Runner = run,
    reporter: Reporter = SILENT,
    now: datetime,
) -> InstallResult:
    """Install the bundle and make it live; see the module.

    ``now`` is an aware time for receipt and log. Raises ``UserInputError``, ``VerdictError`` or ``HostError``
    with every finding of preflight; ``IntegrityError`` for damaged bytes or a bundle that contradicts itself;
    ``TrustError`` (E-DOWNGRADE); ``VerdictError`` (E-CHECK) where a check failed.
    """
    check_values(trusted.descriptor.content)
    prefix = Prefix.of(options.prefix)
    descriptor = trusted.descriptor
    content = descriptor.content
    layers = read_layers(descriptor, store, prefix)
    plan = make_plan(content, layers)
    facts = _gather(prefix, descriptor, options, runner)
    findings = judge(content, plan, facts, options, reused=reusable(descriptor, prefix, options))
    refuse(findings)
    job = _Job(
        trusted=trusted,
        store=store,
        options=options,
        prefix=prefix,
        layers=layers,
        plan=plan,
        facts=facts,
        findings=(*trusted.trust.findings, *findings),
        runner=runner,
        reporter=reporter,
        now=now,
    )
    with gens.locked(prefix, create=True):
        return _install(job)


def _gather(prefix: Prefix, descriptor: Descriptor, options: InstallOptions, runner: Runner) -> HostFacts:
    target = descriptor.content.target
    declared = descriptor.content.layout.get("interpreter-path")
    given = options.interpreter or (str(declared) if declared else None)
    return gather(prefix, target.python, target.machine, interpreter=given, runner=runner)


def _install(job: _Job) -> InstallResult:
    """Do it, under the prefix's lock."""
    prefix, content = job.prefix, job.descriptor.content
    if gens.state_of(prefix) == "foreign":  # since preflight looked
        refuse([foreign(str(prefix.path))])
    gens.clean(prefix)
    serial_key = f"{content.name}/{content.target.name}"
    serial = check_serial(
        content.serial,
        journal.serials(prefix).get(serial_key),
        allow_downgrade=job.options.allow_downgrade,
        subject=f"{content.name} {content.version} for {content.target.name}",
    )
    before = gens.live_name(prefix)
    known = _existing(job, before)
    if known is not None:
        name, receipt = known
        status: Literal["unchanged", "switched", "installed"] = "unchanged" if name == before else "switched"
    else:
        receipt = _make(job, gens.next_name(prefix, job.descriptor.content_id))
        name, status = receipt.generation, "installed"
    if serial is not None:
        journal.record_serial(prefix, serial_key, serial)
    if name != before:
        try:
            _switch(job, name)
        except EnvbundleError:
            if status == "installed":
                gens.remove_generation(prefix, name)
            raise
    return InstallResult(
        status=status,
        bundle_id=job.trusted.id,
        content_id=job.descriptor.content_id,
        prefix=str(prefix.path),
        generation=name,
        receipt=receipt,
        receipt_path=str(prefix.generation(name) / RECEIPT),
        reused_bytes=receipt.reused_bytes if status == "installed" else job.plan.bytes,
        written_bytes=receipt.written_bytes if status == "installed" else 0,
        checks=receipt.checks,
        findings=receipt.findings if status == "installed" else job.findings,
        users=_users(prefix, before, name),
    )


def _switch(job: _Job, name: str) -> None:
    content = job.descriptor.content
    gens.switch(
        job.prefix,
        name,
        "install",
        now=job.now,
        detail=f"{content.name} {content.version} {content.target.name}, {job.trusted.trust.status}",
        content_id=str(job.descriptor.content_id),
        bundle_id=str(job.trusted.id),
    )


def _existing(job: _Job, live: str | None) -> tuple[str, Receipt] | None:
    """Return a complete generation of this very content that is what it was, the live one first."""
    ending = f"-{job.descriptor.content_id.short}"
    found = [name for name in reversed(gens.names(job.prefix)) if name.endswith(ending)]
    for name in sorted(found, key=lambda name: name != live):
        try:
            report = verify_generation(
                job.prefix.generation(name), prefix=str(job.prefix.path), runner=job.runner
            )
        except EnvbundleError:
            continue
        if (
            report.ok
            and report.receipt.content_id == job.descriptor.content_id
            and _same_host(job, report.receipt)
        ):
            return name, report.receipt
    return None


def _same_host(job: _Job, receipt: Receipt) -> bool:
    """Say whether a generation was made for the interpreter and the prefix that are there now."""
    found = job.facts.interpreter
    return (
        found is not None
        and receipt.interpreter.get("path") == found.path
        and receipt.interpreter.get("version") == found.version
        and receipt.prefix == str(job.prefix.path)
    )


def _make(job: _Job, name: GenerationName) -> Receipt:
    """Make a complete generation; it is not live yet. Nothing stays of it if anything fails."""
    prefix = job.prefix
    stage_path = prefix.home / f"{STAGE}{secrets.token_hex(6)}"
    final = prefix.generation(str(name))
    old: list[OldGeneration] = []
    try:
        old = _old_generations(job)
        with Tree.create(stage_path) as tree:
            stage = _build(job, tree, final, old)
            _keep_documents(job, tree)
            stage.check()
        with host_errors(final):
            os.rename(stage_path, final)
        results = _check(job, final)
        if results:
            with Tree(final) as tree:
                stage.findings += _tidy(tree, stage)
        receipt = _receipt(job, stage, str(name), results)
        atomic_write(final / RECEIPT, receipt.to_bytes())
    except BaseException:
        for path in (stage_path, final):
            try:
                remove_tree(path)
            except HostError:  # noqa: PERF203 - two paths
                job.reporter.note(f"could not remove {path}; the next install will")
        raise
    finally:
        for generation in old:
            generation.close()
    return receipt


def _old_generations(job: _Job) -> list[OldGeneration]:
    """Open what may be reused: the live generation, then the others, newest first."""
    live = gens.live_name(job.prefix)
    wanted = [ref.list for ref in job.descriptor.content.layers]
    missing = set(wanted)
    found: list[OldGeneration] = []
    for name in sorted(gens.names(job.prefix), key=lambda name: (name == live, name), reverse=True):
        if not missing:
            break
        generation = open_generation(job.prefix.generation(name), missing)
        if generation is not None:
            found.append(generation)
            missing -= set(generation.files)
    return found


def _build(job: _Job, tree: Tree, final: Path, old: Sequence[OldGeneration]) -> Stage:
    if job.facts.interpreter is None:
        raise RuntimeError("preflight lets nothing pass without an interpreter")
    stage = Stage(
        tree=tree,
        final=final,
        prefix=str(job.prefix.path),
        plan=job.plan,
        layers=job.layers,
        descriptor=job.descriptor,
        interpreter=job.facts.interpreter,
        reuser=Reuser(tree, old, job.options.reuse, hash_all=job.options.verify_all),
        options=job.options,
        reporter=job.reporter,
        files={},
        findings=list(job.findings),
    )
    stage.build(job.store, job.runner)
    return stage


def _keep_documents(job: _Job, tree: Tree) -> None:
    """Keep descriptor, signatures, lists, lock and manifest: a later install or `verify` needs no store."""
    tree.write(DESCRIPTOR, job.trusted.data, 0o644)
    for path, digest in ((LOCK, job.descriptor.content.lock), (MANIFEST, job.descriptor.manifest)):
        tree.write(path, read_plain(job.store, job.descriptor, digest), 0o644)
    tree.folder(SIGNATURES)
    for number, signature in enumerate(job.options.signatures, 1):
        tree.write(f"{SIGNATURES}/{number}.sig", signature, 0o644)
    lists = {ref.list: layer for ref, layer in zip(job.descriptor.content.layers, job.layers, strict=True)}
    for digest, layer in lists.items():
        tree.write(f"{LAYERS}/{digest.hex}.json", layer.to_bytes(), 0o644)


def _check(job: _Job, generation: Path) -> tuple[Any, ...]:
    """Run the bundle's checks where that was not declined; raises ``VerdictError`` where one fails."""
    content = job.descriptor.content
    if not content.checks or not job.options.checks:
        return ()
    if job.trusted.trust.status == "unsigned" and not job.options.run_checks:
        return ()
    job.reporter.start(CHECKS, total=len(content.checks), unit="checks")
    results = checking.run_checks(generation, content.checks, content.environment, runner=job.runner)
    job.reporter.finish(CHECKS)
    checking.require_passed(results)
    return results


def _tidy(tree: Tree, stage: Stage) -> list[Finding]:
    """Remove what checks left in the generation; raises ``IntegrityError`` where they changed something."""
    left = [
        path
        for path, _ in tree.walk()
        if path not in stage.files and not path.startswith(RECEIPT.partition("/")[0] + "/")
    ]
    for path in left:
        tree.remove(path)
    stage.tree = tree
    stage.check()
    return [
        Finding(
            code="W-CHECK-WROTE",
            severity="warning",
            subject=path,
            found="a file that a check left in the environment; it was removed",
            hint="point the program's cache elsewhere, in [environment]",
        )
        for path in left
    ]


def _receipt(job: _Job, stage: Stage, name: str, results: Sequence[Any]) -> Receipt:
    content, trust = job.descriptor.content, job.trusted.trust
    return Receipt(
        bundle_id=job.trusted.id,
        content_id=job.descriptor.content_id,
        name=content.name,
        version=content.version,
        target=content.target,
        prefix=str(job.prefix.path),
        generation=name,
        installed_at=journal.stamp(job.now),
        tool=f"envbundle {envbundle.__version__}",
        trust=trust.status,
        principal=trust.principal or "",
        fingerprint=trust.key or "",
        serial=content.serial,
        interpreter=stage.interpreter.to_dict(),
        host=job.facts.to_dict(),
        exemptions=content.exemptions,
        checks=tuple(results),
        findings=tuple(stage.findings),
        reused_bytes=stage.reuser.bytes,
        written_bytes=stage.written_bytes,
        device=stage.tree.device,
        files=tuple(stage.files[path] for path in sorted(stage.files)),
    )


def _users(prefix: Prefix, before: str | None, now_live: str) -> tuple[tuple[int, str], ...]:
    if before is None or before == now_live:
        return ()
    return tuple((use.pid, use.command) for use in users_of(prefix.generation(before)))
