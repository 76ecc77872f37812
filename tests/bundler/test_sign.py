"""Signing a packed bundle, and adding a signature to one that is there."""

from __future__ import annotations

import pytest

from envbundle.bundler.sign import commit_signed, sign_bundle
from envbundle.errors import EnvbundleError, IntegrityError, UserInputError
from envbundle.spec.descriptor import Descriptor
from envbundle.store.bundle import check_bundle, read_bundle
from envbundle.store.memory import MemoryStore
from envbundle.trust.trusted import accept
from tests.trust.builders import line, policy, signer

from .builders import Shelf, lock_of, run_pack


def packed() -> tuple[MemoryStore, Descriptor]:
    shelf, store = Shelf(), MemoryStore()
    return store, run_pack(lock_of(shelf.wheel("demo")), shelf, store).descriptor


def test_a_signed_bundle_is_trusted() -> None:
    store, descriptor = packed()
    committed = commit_signed(store, descriptor, [signer("alice")])
    ref = read_bundle(store, committed.tag)
    trusted = accept(
        ref.descriptor, ref.signatures, policy=policy(line("alice")), parse=Descriptor.from_bytes
    )
    assert trusted.descriptor == descriptor
    assert trusted.id == committed.bundle_id == descriptor.bundle_id
    assert committed.content_id == descriptor.content_id
    check_bundle(ref, trusted.descriptor)


def test_without_a_signer_it_is_unsigned() -> None:
    store, descriptor = packed()
    committed = commit_signed(store, descriptor, [])
    ref = read_bundle(store, committed.tag)
    assert committed.signatures == ref.signatures == ()
    with pytest.raises(EnvbundleError) as caught:
        accept(ref.descriptor, ref.signatures, policy=policy(line("alice")), parse=Descriptor.from_bytes)
    assert caught.value.code == "E-SIG-MISSING"


def test_a_second_signature_is_added() -> None:
    store, descriptor = packed()
    tag = commit_signed(store, descriptor, [signer("alice")]).tag
    added = sign_bundle(store, tag, signer("bob"))
    assert len(added.signatures) == 2
    again = sign_bundle(store, tag, signer("bob"))
    assert again == added, "Ed25519 gives one signature for one message"
    ref = read_bundle(store, tag)
    assert set(ref.signatures) == set(added.signatures)
    for name in ("alice", "bob"):
        accept(ref.descriptor, ref.signatures, policy=policy(line(name)), parse=Descriptor.from_bytes)


def test_a_bundle_that_is_not_there_cannot_be_signed() -> None:
    with pytest.raises(UserInputError) as caught:
        sign_bundle(MemoryStore(), "demo-1.0-sm_90", signer("alice"))
    assert caught.value.code == "E-NO-BUNDLE"


def test_a_bundle_whose_blobs_are_gone_is_not_committed() -> None:
    store, descriptor = packed()
    store.remove(min(blob.blob for blob in descriptor.blobs.values()))
    with pytest.raises(IntegrityError) as caught:
        commit_signed(store, descriptor, [signer("alice")])
    assert caught.value.code == "E-BLOB-MISSING"
    assert store.tags() == ()
