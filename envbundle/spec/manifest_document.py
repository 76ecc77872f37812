"""A manifest as the plain JSON-able document that its TOML says: for rendering, digests and comparison.

* ``document`` has the keys of docs/manifest.md; what equals its default is left out, so that a key written
  with its default value and a key not written are the same.
* ``relevant`` holds whatever can change one target's lock or bundle, and nothing of the other targets.
* ``manifest_digest`` is what a lock stores: equal as long as neither the relevant part nor a file that
  it names changed; comments and layout of the text do not matter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .canonical import canonical
from .digest import Digest
from .manifest import IndexSource, Layout, Manifest, PackagePolicy, Resolve, Source, TargetSpec
from .target import platform_glibc
from .text_checks import is_file

if TYPE_CHECKING:
    from collections.abc import Mapping

DIGEST_FORMAT = "envbundle.manifest.v1"


def document(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest's document; ``parse_manifest(render_manifest(m)) == m`` goes through it."""
    bundle = {"name": manifest.name, "version": manifest.version, "python": manifest.python}
    value: dict[str, Any] = {"bundle": bundle | _said({"serial": manifest.serial})}
    value |= _said(
        {
            "resolve": _resolve(manifest.resolve),
            "target": {spec.target.name: _target(spec) for spec in manifest.targets},
            "overlay": [
                {"distribution": overlay.distribution, "path": overlay.path}
                | _said({"base": overlay.base, "remove": list(overlay.remove)})
                | ({"mode": overlay.mode} if overlay.mode != "merge" else {})
                for overlay in manifest.overlays
            ],
            "package": _packages(manifest.packages),
            "layout": _layout(manifest.layout),
            "invariant": [invariant.to_dict() for invariant in manifest.invariants],
            "environment": dict(manifest.environment),
            "check": [
                _said({"import": list(check.imports), "run": list(check.run)})
                | ({"network": check.network} if check.network != "denied" else {})
                | ({"timeout": check.timeout} if check.timeout != 300 else {})
                for check in manifest.checks
            ],
            "group": [{"same-version": list(group.same_version)} for group in manifest.groups],
        }
    )
    if manifest.source is not None:
        value["source"] = _source(manifest.source)
    return value


def relevant(manifest: Manifest, target_name: str) -> dict[str, Any]:
    """Return the part of the document that concerns one target: the common sections and its own.

    A name that is no target of the manifest is a wrong call (``KeyError``).
    """
    return document(replace(manifest, targets=(manifest.spec(target_name),)))


def files_named(manifest: Manifest, target_name: str) -> tuple[str, ...]:
    """Return the requirement and constraint files that one target reads, as written, each once, sorted."""
    resolve = manifest.resolve_for(target_name)
    return tuple(sorted({*resolve.requirement_files, *filter(is_file, resolve.constraints)}))


def manifest_digest(manifest: Manifest, target_name: str, files: Mapping[str, Digest]) -> Digest:
    """Return the digest of what one target's lock is made from.

    ``files`` holds the content digests of at least ``files_named`` (and of what those include in turn), by
    the path as written. A missing one is a wrong call (``RuntimeError``).
    """
    absent = [name for name in files_named(manifest, target_name) if name not in files]
    if absent:
        raise RuntimeError(f"no digest was given for {', '.join(absent)}")
    value = {
        "format": DIGEST_FORMAT,
        "target": target_name,
        "manifest": relevant(manifest, target_name),
        "files": {name: str(digest) for name, digest in files.items()},
    }
    return Digest.of(canonical(value))


def _said(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not said: None, false and empty lists and tables."""
    return {key: value for key, value in values.items() if value or (value == 0 and value is not False)}


def _resolve(resolve: Resolve) -> dict[str, Any]:
    value = _said(
        {
            "requirements": list(resolve.requirements),
            "requirement-files": list(resolve.requirement_files),
            "constraints": list(resolve.constraints),
            "find-links": list(resolve.find_links),
            "no-index": resolve.no_index,
            "complete": resolve.complete,
            "from": dict(resolve.sources),
            "index": [_index(index) for index in resolve.indexes],
        }
    )
    return value | ({"max-tries": resolve.max_tries} if resolve.max_tries != Resolve().max_tries else {})


def _index(index: IndexSource) -> dict[str, Any]:
    return {"name": index.name, "url": index.url} | _said(
        {"default": index.default, "explicit": index.explicit}
    )


def _target(spec: TargetSpec) -> dict[str, Any]:
    target = spec.target
    gpus = [str(gpu) for gpu in target.gpus]
    value: dict[str, Any] = {"gpu": _one_or_list(gpus), "platform": target.platform}
    if target.glibc != platform_glibc(target.platform):
        value["glibc"] = target.glibc
    if target.driver is not None:
        value["driver"] = target.driver
    if not target.offline:
        value["offline"] = False
    return value | _resolve(spec.resolve) | _said({"package": _packages(spec.packages)})


def _one_or_list(gpus: list[str]) -> str | list[str]:
    if not gpus:
        return "none"
    return gpus[0] if len(gpus) == 1 else gpus


def _packages(packages: tuple[tuple[str, PackagePolicy], ...]) -> dict[str, Any]:
    return {name: _policy(policy) for name, policy in packages}


def _policy(policy: PackagePolicy) -> dict[str, Any]:
    value = _said(
        {
            "coverage": policy.coverage,
            "jit": policy.jit,
            "exempt": list(policy.exempt),
            "winner": list(policy.winner),
        }
    )
    if policy.build is not None:
        build = policy.build
        value["build"] = {"source": build.source} | _said(
            {"requires": list(build.requires), "env": dict(build.env)}
        )
    return value


def _layout(layout: Layout) -> dict[str, Any]:
    default = Layout().to_dict()
    return {key: value for key, value in layout.to_dict().items() if default.get(key) != value}


def _source(source: Source) -> dict[str, Any]:
    return _said(
        {
            "gpu": _one_or_list(list(source.gpus)) if source.gpus else None,
            "driver": source.driver,
            "glibc": source.glibc,
            "python": source.python,
            "checks": dict(source.checks),
        }
    ) | ({} if source.libraries is None else {"libraries": list(source.libraries)})
