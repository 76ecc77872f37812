"""Reading ``envbundle.toml``: text in, ``Manifest`` out, or every fault with file, line, column and key.

* Syntax (TOML 1.0): the first fault, E-TOML. Content: all faults in one ``UserInputError``.
* Unknown keys are errors with a "did you mean".
* What is written as a table (packages, environment, sources) comes out sorted by name: its order in the text
  means nothing. Arrays keep their order.
* docs/manifest.md lists every key; schemas/manifest.schema.json is the same contract for editors.
"""

from __future__ import annotations

from typing import Any, cast

from . import text_checks as is_
from .invariants import read_invariant
from .manifest import (
    COVERAGE_POLICIES,
    Build,
    Check,
    CoveragePolicy,
    Group,
    IndexSource,
    Interpreter,
    Invariant,
    Layout,
    LayoutMode,
    Manifest,
    Overlay,
    OverlayMode,
    PackagePolicy,
    Resolve,
    Source,
    TargetSpec,
)
from .manifest_reader import Faults, TableReader
from .manifest_rules import Draft, find_contradictions
from .prefix import check_prefix
from .target import Arch, Target, check_target_name, platform_glibc
from .toml_positions import scan
from .toml_text import read_toml

_MAX_TIMEOUT = 86_400
_MAX_TRIES = 1000


def parse_manifest(text: str, *, filename: str = "envbundle.toml") -> Manifest:
    """Read a manifest. ``filename`` stands in messages only.

    Raises ``UserInputError``: E-TOML for the first fault of syntax; else one error whose ``findings`` hold
    every fault of content, each with the subject ``FILE:LINE:COLUMN: dotted.key``, in the order of the text.
    """
    document = read_toml(text, filename=filename)
    faults = Faults(filename, scan(text))
    draft = _ManifestReader(document, faults).draft()
    find_contradictions(draft, faults)
    faults.raise_any()
    return draft.manifest


class _ManifestReader:
    """One method a section. Faulty values read as empty ones, so that every section is looked at."""

    def __init__(self, document: dict[str, Any], faults: Faults) -> None:
        self._top = TableReader(document, (), faults)
        self._faults = faults
        self._names: dict[tuple[str, str], tuple[str | int, ...]] = {}

    def draft(self) -> Draft:
        top = self._top
        bundle = top.table("bundle", required=True) or self._nothing("bundle")
        name = bundle.text("name", is_.bundle_name, required=True, example='"my-environment"')
        version = bundle.text("version", is_.bundle_version, required=True, example='"1"')
        python = bundle.text("python", is_.python_version, required=True, example='"3.12"')
        serial = bundle.integer("serial", minimum=0)
        bundle.done(_elsewhere)
        manifest = Manifest(
            name=name or "",
            version=version or "",
            python=python or "",
            serial=serial,
            resolve=self._resolve(top.table("resolve")),
            targets=self._targets(top.table("target", required=True), python or ""),
            overlays=tuple(self._overlay(table) for table in top.tables("overlay")),
            packages=self._packages(top),
            layout=self._layout(top.table("layout")),
            invariants=tuple(self._invariant(table) for table in top.tables("invariant")),
            environment=top.pairs("environment", is_.variable, is_.variable_value),
            checks=tuple(self._check(table) for table in top.tables("check")),
            groups=tuple(self._group(table) for table in top.tables("group")),
            source=self._source(top.table("source")),
        )
        top.done(_elsewhere)
        return Draft(manifest=manifest, packages_at=self._names)

    def _nothing(self, key: str) -> TableReader:
        return TableReader({}, (key,), Faults("", scan("")))

    def _lists(self, table: TableReader) -> Resolve:
        """Read what [resolve] and a target have in common."""
        return Resolve(
            requirements=table.texts("requirements", is_.requirement),
            requirement_files=table.texts("requirement-files", is_.local_path),
            constraints=table.texts("constraints", is_.constraint),
            find_links=table.texts("find-links", is_.find_links),
            indexes=tuple(self._index(item) for item in table.tables("index")),
            sources=table.pairs("from", is_.distribution),
        )

    def _resolve(self, table: TableReader | None) -> Resolve:
        if table is None:
            return Resolve()
        lists = self._lists(table)
        tries = table.integer("max-tries", minimum=1, maximum=_MAX_TRIES)
        resolve = Resolve(
            requirements=lists.requirements,
            requirement_files=lists.requirement_files,
            constraints=lists.constraints,
            find_links=lists.find_links,
            no_index=table.boolean("no-index") or False,
            complete=table.boolean("complete") or False,
            max_tries=5 if tries is None else tries,
            indexes=lists.indexes,
            sources=lists.sources,
        )
        table.done(_elsewhere)
        return resolve

    def _index(self, table: TableReader) -> IndexSource:
        index = IndexSource(
            name=table.text("name", is_.index_name, required=True) or "",
            url=table.text("url", is_.index_url, required=True) or "",
            default=table.boolean("default") or False,
            explicit=table.boolean("explicit") or False,
        )
        table.done(_elsewhere)
        return index

    def _targets(self, table: TableReader | None, python: str) -> tuple[TargetSpec, ...]:
        if table is None:
            return ()
        names = table.names()
        if not names:
            self._faults.add("E-MISSING", table.path, expected="a table [target.NAME]", found="no target")
        specs = []
        for name in names:
            if table.checked_name(name, check_target_name) is None:
                continue
            one = table.table(name)
            if one is not None:
                specs.append(self._target(one, name, python))
        return tuple(specs)

    def _target(self, table: TableReader, name: str, python: str) -> TargetSpec:
        gpus = table.text_or_texts("gpu", _gpu_or_none, required=True)
        if table.is_empty_array("gpu") or ("none" in gpus and len(gpus) > 1):
            table.fault(
                "E-VALUE",
                "gpu",
                expected='one GPU, several, or "none" alone',
                found="none of these",
                hint='a target without a GPU says gpu = "none"',
            )
        platform = table.text("platform", is_.platform, required=True, example='"x86_64-manylinux_2_39"')
        floor = table.text("glibc", is_.glibc)
        offline = table.boolean("offline")
        target = Target(
            name=name,
            gpus=tuple(Arch.parse(gpu) for gpu in gpus if gpu != "none"),
            python=python,
            platform=platform or "",
            glibc=floor or (platform_glibc(platform) if platform else ""),
            driver=table.text("driver", is_.driver),
            offline=True if offline is None else offline,
        )
        spec = TargetSpec(target=target, resolve=self._lists(table), packages=self._packages(table))
        table.done(_elsewhere_in_target)
        return spec

    def _overlay(self, table: TableReader) -> Overlay:
        mode = table.text("mode", choices=("merge", "replace")) or "merge"
        overlay = Overlay(
            distribution=table.text("distribution", is_.distribution, required=True) or "",
            path=table.text("path", is_.contained_path, required=True) or "",
            base=table.text("base", is_.pep440),
            mode=cast("OverlayMode", mode),
            remove=table.texts("remove", is_.contained_path, distinct=True),
        )
        table.done(_elsewhere)
        return overlay

    def _packages(self, above: TableReader) -> tuple[tuple[str, PackagePolicy], ...]:
        table = above.table("package")
        if table is None:
            return ()
        level = str(above.path[1]) if above.path else ""
        policies: dict[str, PackagePolicy] = {}
        for key in table.names():
            name = table.checked_name(key, is_.distribution)
            one = table.table(key)
            policy = self._policy(one) if one is not None else PackagePolicy()
            if name is None:
                continue
            if name in policies:
                self._faults.add(
                    "E-CONTRADICTION",
                    table.at(key),
                    expected="one table a distribution",
                    found=f"a second table of {name}",
                    hint="names that differ in case, - _ . are the same",
                )
            policies[name] = policy
            self._names[(level, name)] = table.at(key)
        return tuple(sorted(policies.items(), key=lambda item: item[0]))

    def _policy(self, table: TableReader) -> PackagePolicy:
        build = table.table("build")
        policy = PackagePolicy(
            coverage=cast("CoveragePolicy | None", table.text("coverage", choices=COVERAGE_POLICIES)),
            jit=cast("Any", table.text("jit", choices=("allow", "refuse"))),
            exempt=table.texts("exempt", is_.glob),
            winner=table.texts("winner", is_.contained_path),
            build=self._build(build) if build is not None else None,
        )
        table.done(_elsewhere)
        return policy

    def _build(self, table: TableReader) -> Build:
        build = Build(
            source=table.text("source", is_.build_source, required=True) or "",
            env=table.pairs("env", is_.variable, is_.variable_value),
            requires=table.texts("requires", is_.requirement),
        )
        table.done(_elsewhere)
        return build

    def _layout(self, table: TableReader | None) -> Layout:
        if table is None:
            return Layout()
        pin = table.boolean("pin-processes")
        layout = Layout(
            prefix=table.text("prefix", check_prefix),
            mode=cast("LayoutMode", table.text("mode", choices=("fixed", "relocatable")) or "relocatable"),
            interpreter=cast("Interpreter", table.text("interpreter", choices=("host", "bundled")) or "host"),
            interpreter_path=table.text("interpreter-path", is_.interpreter_path),
            pin_processes=True if pin is None else pin,
        )
        table.done(_elsewhere)
        return layout

    def _invariant(self, table: TableReader) -> Invariant:
        kind, values = read_invariant(table)
        return Invariant(kind=kind, fields=tuple(sorted(values.items())))

    def _check(self, table: TableReader) -> Check:
        timeout = table.integer("timeout", minimum=1, maximum=_MAX_TIMEOUT)
        check = Check(
            imports=table.texts("import", is_.module_name),
            run=table.texts("run", is_.argument),
            network=cast("Any", table.text("network", choices=("denied", "allowed")) or "denied"),
            timeout=300 if timeout is None else timeout,
        )
        table.done(_elsewhere)
        return check

    def _group(self, table: TableReader) -> Group:
        names = table.texts("same-version", is_.distribution, required=True, distinct=True)
        if self._faults.clean(table.at("same-version")) and "same-version" in table and len(names) < 2:
            table.fault(
                "E-VALUE", "same-version", expected="two distributions or more", found=str(len(names))
            )
        table.done(_elsewhere)
        return Group(same_version=names)

    def _source(self, table: TableReader | None) -> Source | None:
        if table is None:
            return None
        gpus = table.text_or_texts("gpu", _gpu_or_none)
        source = Source(
            gpus=tuple(gpu for gpu in gpus if gpu != "none"),
            driver=table.text("driver", is_.driver),
            glibc=table.text("glibc", is_.glibc),
            python=table.text("python", is_.source_python),
            checks=table.flags("checks"),
            libraries=table.texts("libraries", is_.file_name) if "libraries" in table else None,
        )
        table.done(_elsewhere)
        return source


def _gpu_or_none(text: str) -> str:
    return text if text == "none" else is_.gpu(text)


_HOME = {
    **dict.fromkeys(("name", "version", "python", "serial"), "[bundle]"),
    **dict.fromkeys(
        ("requirements", "requirement-files", "constraints", "find-links", "index", "from"),
        "[resolve], or in one [target.NAME]",
    ),
    **dict.fromkeys(("no-index", "complete", "max-tries"), "[resolve]"),
    **dict.fromkeys(("gpu", "platform", "glibc", "driver", "offline"), "[target.NAME]"),
    **dict.fromkeys(("coverage", "jit", "exempt", "winner", "build"), "[package.NAME]"),
    **dict.fromkeys(("prefix", "mode", "interpreter", "interpreter-path", "pin-processes"), "[layout]"),
    **dict.fromkeys(("overlay", "invariant", "check", "group"), "[[...]] at the top"),
}


def _elsewhere(key: str) -> str:
    home = _HOME.get(key.replace("_", "-"))
    return f"`{key}` belongs into {home}" if home else ""


def _elsewhere_in_target(key: str) -> str:
    if key.isdecimal():
        return "a target's name may hold no dot: write sm_90 for sm_9.0"
    return _elsewhere(key)
