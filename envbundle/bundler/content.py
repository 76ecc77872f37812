"""The content document of a bundle: what lock, manifest and finished layers say, and nothing else.

No clock, user, host name or path of this machine can get in: everything here is a function of its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.spec.descriptor import Content, LayerRef
from envbundle.spec.digest import Digest

from .precedence import decide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envbundle.spec.descriptor import Origin
    from envbundle.spec.finding import Finding
    from envbundle.spec.lock import Lock
    from envbundle.spec.manifest import Manifest

    from .draft import MadeLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Finished layers in the descriptor's order: distributions by name, then overlays; with origins."""

    layers: tuple[MadeLayer, ...]
    origins: tuple[Origin, ...]


def layer_ref(made: MadeLayer, origin: Origin) -> LayerRef:
    """Return the reference by which a content document names a layer."""
    layer = made.layer
    return LayerRef(
        list=Digest.of(made.data),
        list_size=len(made.data),
        kind=layer.kind,
        distribution=layer.distribution,
        version=layer.version,
        origin=origin,
        files=len(layer.entries),
        bytes=layer.file_bytes,
    )


def content_of(
    lock: Lock, manifest: Manifest, *, lock_digest: Digest, ordered: Ordered
) -> tuple[Content, tuple[Finding, ...]]:
    """Return the content document, and findings that refuse nothing.

    Raises ``VerdictError`` where layers contradict each other (see ``precedence.decide``).
    """
    layers: Sequence[MadeLayer] = ordered.layers
    precedence = decide(
        [made.layer for made in layers],
        python=lock.target.python,
        winners={contested.path: contested.winner for contested in lock.contested},
    )
    content = Content(
        name=manifest.name,
        version=manifest.version,
        target=lock.target,
        layers=tuple(layer_ref(made, origin) for made, origin in zip(layers, ordered.origins, strict=True)),
        lock=lock_digest,
        serial=manifest.serial,
        provides=precedence.provides,
        layout=manifest.layout.to_dict(),
        environment=dict(manifest.environment),
        checks=tuple(check.to_dict() for check in manifest.checks),
        invariants=tuple(invariant.to_dict() for invariant in manifest.invariants),
        exemptions=tuple(sorted(lock.exemptions, key=lambda e: (e.distribution, e.path, e.gpu))),
        requires=dict(lock.requires),
    )
    findings = [finding for made in layers for finding in made.findings]
    return content, (*findings, *precedence.findings)
