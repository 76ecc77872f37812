"""Finding one bundle in a store, and taking it through the gate of trust."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError, UserInputError
from envbundle.spec.target import Target
from envbundle.store.bundle import check_bundle, find_bundles, parse_descriptor, read_bundle
from envbundle.trust.trusted import TrustedDescriptor, accept

if TYPE_CHECKING:
    from envbundle.spec.descriptor import Descriptor
    from envbundle.store.bundle import BundleRef, BundleSummary
    from envbundle.store.protocol import Store
    from envbundle.trust.policy import TrustPolicy


def choose_bundles(store: Store, wanted: str | None) -> tuple[BundleSummary, ...]:
    """Return the bundles that ``wanted`` names: a tag, a target's name, or a GPU arch; all without.

    Who vouches for them is not asked here: what a descriptor says only serves to choose. Raises
    ``UserInputError`` (E-NO-BUNDLE) where none is meant.
    """
    every = find_bundles(store)
    if not every:
        raise UserInputError("E-NO-BUNDLE", store.name, expected="at least one bundle", found="none")
    if wanted is None:
        return every
    chosen = tuple(b for b in every if b.tag == wanted) or tuple(
        b for b in every if wanted in _names(store, b)
    )
    if not chosen:
        there = ", ".join(bundle.tag for bundle in every)
        raise UserInputError(
            "E-NO-BUNDLE",
            wanted or "--arch ''",
            expected=f"a bundle of {store.name}",
            found=f"it holds {there}"[:400],
        )
    return chosen


def choose_bundle(store: Store, wanted: str | None) -> BundleSummary:
    """Return the one bundle that is meant; raises ``UserInputError`` (E-NO-BUNDLE, E-BUNDLE-AMBIGUOUS)."""
    chosen = choose_bundles(store, wanted)
    if len(chosen) > 1:
        there = ", ".join(bundle.tag for bundle in chosen)
        raise UserInputError(
            "E-BUNDLE-AMBIGUOUS",
            store.name,
            expected="one bundle",
            found=there[:400],
            hint="name one with --arch",
        )
    return chosen[0]


def stated_target(store: Store, bundle: BundleSummary) -> Target | None:
    """Return the target that a descriptor states, unjudged: it only serves to choose. None if damaged."""
    try:
        value = json.loads(store.read(bundle.descriptor, bundle.descriptor_size))
        return Target.from_dict(value["content"]["target"])
    except (EnvbundleError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _names(store: Store, bundle: BundleSummary) -> set[str]:
    """Return the target's name and GPUs as the descriptor states them; a damaged one has no names."""
    target = stated_target(store, bundle)
    return set() if target is None else {target.name, *map(str, target.gpus)}


def trusted_bundle(
    store: Store, tag: str, policy: TrustPolicy
) -> tuple[BundleRef, TrustedDescriptor[Descriptor]]:
    """Read a bundle, judge its signatures, and only then what it says.

    Raises ``TrustError`` or ``IntegrityError``; on return the OCI manifest holds exactly what the
    descriptor names.
    """
    ref = read_bundle(store, tag)
    trusted = accept(ref.descriptor, ref.signatures, policy=policy, parse=parse_descriptor, subject=tag)
    check_bundle(ref, trusted.descriptor)
    return ref, trusted
