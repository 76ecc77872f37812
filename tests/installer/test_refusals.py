"""What is refused leaves nothing behind: damaged bytes, bundles that contradict themselves, wrong places."""


from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import (
    EnvbundleError,
    HostError,
    IntegrityError,
    TrustError,
    UserInputError,
    VerdictError,
)
from envbundle.installer.generations import locked
from envbundle.installer.install import check_install, install
from envbundle.installer.layout import Prefix
from envbundle.installer.options import InstallOptions
from envbundle.installer.verify import verify_environment
from envbundle.spec.descriptor import Blob
from envbundle.spec.digest import Digest
from envbundle.spec.layer import Layer, LayerEntry
from envbundle.spec.target import Arch
from envbundle.store.memory import MemoryStore
from envbundle.store.read import read_layer

from .builders import (
    LATER,
    NOW,
    PYTHON,
    SITE,
    Dist,
    Patch,
    bundle,
    listing,
    make_bundle,
    output,
    sample,
    sample_items,
    trust,
    with_target,
)

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.spec.descriptor import Descriptor
    from envbundle.trust.trusted import TrustedDescriptor


def refused(
    tmp_path: Path,
    given: tuple[TrustedDescriptor[Descriptor], MemoryStore],
    kind: type[EnvbundleError],
    code: str,
    options: InstallOptions | None = None,
) -> EnvbundleError:
    """Install, expect exactly this refusal, and that nothing below ``tmp_path`` changed."""
    before = listing(tmp_path)
    with pytest.raises(kind) as caught:
        install(*given, options or InstallOptions(prefix=tmp_path / "env"), now=NOW)
    assert caught.value.code == code, caught.value
    assert listing(tmp_path) == before
    return caught.value


class Bent(MemoryStore):
    """A store in which one blob has one flipped byte, and whose reading does not look."""

    def __init__(self, base: MemoryStore, bad: Digest) -> None:
        super().__init__()
        for digest, size in base.blobs():
            self._blobs[digest] = base.read(digest, size)
        data = bytearray(self._blobs[bad])
        data[random.Random(bad.hex).randrange(len(data))] ^= 0x10
        self._blobs[bad] = bytes(data)


def blobs_of(descriptor: Descriptor) -> list[Digest]:
    return sorted({blob.blob for blob in descriptor.blobs.values()})


def test_a_flipped_byte_in_any_blob(tmp_path: Path) -> None:
    trusted, store = bundle(
        *sample_items("one"), Patch(name="app", files={"app/__init__.py": "value = 'x'\n"})
    )
    for digest in blobs_of(trusted.descriptor):
        refused(tmp_path, (trusted, Bent(store, digest)), IntegrityError, "E-BLOB-HASH")


def test_a_missing_blob(tmp_path: Path) -> None:
    trusted, store = sample()
    for digest in blobs_of(trusted.descriptor):
        partial = MemoryStore()
        for other, size in store.blobs():
            if other != digest:
                partial.put(store.read(other, size))
        refused(tmp_path, (trusted, partial), IntegrityError, "E-BLOB-MISSING")


def test_a_failing_install_leaves_the_old_environment(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    old, _ = sample("one")
    install(*sample("one"), InstallOptions(prefix=prefix), now=NOW)
    trusted, store = sample("two")
    new = set(blobs_of(trusted.descriptor)) - set(blobs_of(old.descriptor))  # the others are not needed
    assert len(new) >= 2
    for digest in sorted(new):
        with pytest.raises(IntegrityError):
            install(trusted, Bent(store, digest), InstallOptions(prefix=prefix), now=LATER)
        assert output(prefix / "bin/app").startswith("one ")
    assert sorted(os.listdir(tmp_path)) == ["env", "env.generations"]
    names = [name for name in os.listdir(tmp_path / "env.generations") if "-" in name and name[0] in "0."]
    assert names == [os.path.basename(os.readlink(prefix))]
    assert verify_environment(prefix).ok


def test_a_layer_that_lies_about_a_file(tmp_path: Path) -> None:
    store = MemoryStore()
    descriptor = make_bundle(store, Dist(name="liar", files={"liar.py": "truth = 1\n"}))
    ref = descriptor.content.layers[0]
    layer = read_layer(store, descriptor, ref)
    entries = tuple(
        replace(entry, sha256=Digest.of(b"another")) if entry.path == "purelib/liar.py" else entry
        for entry in layer.entries
    )
    trusted = relist(store, descriptor, replace(layer, entries=entries).to_bytes())
    refused(tmp_path, (trusted, store), IntegrityError, "E-FILE-HASH")


def relist(store: MemoryStore, descriptor: Descriptor, data: bytes) -> TrustedDescriptor[Descriptor]:
    """Give the first layer the list ``data``."""
    ref = replace(descriptor.content.layers[0], list=Digest.of(data), list_size=len(data))
    try:
        layer = Layer.from_dict(json.loads(data))
        ref = replace(ref, files=len(layer.entries), bytes=layer.file_bytes)
    except EnvbundleError:
        pass  # a list that no reader takes
    blob = Blob(blob=store.put(data), size=len(data), plain_size=len(data), encoding="raw")
    content = replace(descriptor.content, layers=(ref, *descriptor.content.layers[1:]))
    return trust(replace(descriptor, content=content, blobs={**descriptor.blobs, Digest.of(data): blob}))


PATHS = {
    "reserved-python": {"data/bin/python3": "x"},
    "reserved-config": {"data/pyvenv.cfg": "x"},
    "reserved-own": {"data/.envbundle/receipt.json": "x"},
    "reserved-lib64": {"data/lib64/x": "x"},
    "reserved-activate": {"data/bin/activate": "x"},
    "reserved-pin": {"purelib/_envbundle_pin.py": "x"},
    "below-a-reserved-file": {"data/pyvenv.cfg/x": "x"},
    "file-and-folder": {"purelib/a": "x", "purelib/a/b": "y"},
    "a-file-where-bin-is": {"data/bin": "x"},
    "a-file-where-site-packages-is": {f"data/lib/python{PYTHON}/site-packages": "x"},
    "bytecode-folder-is-a-file": {"purelib/a/__pycache__": "x"},
}


@pytest.mark.parametrize("files", PATHS.values(), ids=PATHS.keys())
def test_paths_that_no_bundle_may_provide(tmp_path: Path, files: dict[str, str]) -> None:
    given = bundle(Dist(name="bad", files=files))
    error = refused(tmp_path, given, IntegrityError, "E-PATH")
    assert error.subject.strip("'") in {p.partition("/")[2] for p in files} | {
        f"{SITE}/{p.partition('/')[2]}" for p in files
    }


LINKS = {
    "through-a-link": ({"d": "sub"}, {"d/x": "escaped"}),
    "link-through-link": ({"deep/up": "../..", "x": "deep/up/.."}, {}),
    "bytecode-folder-is-a-link": ({"a/__pycache__": "../b"}, {"a/m.py": "x = 1\n"}),
}


@pytest.mark.parametrize(("links", "files"), LINKS.values(), ids=LINKS.keys())
def test_b71_nothing_goes_through_a_link(
    tmp_path: Path, links: dict[str, str], files: dict[str, str]
) -> None:
    given = bundle(Dist(name="bad", files={f"purelib/{k}": v for k, v in files.items()}, links=links))
    refused(tmp_path, given, IntegrityError, "E-PATH")


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/x", "a/../../x", "./../x", "a//b", "a/./b", "a\\b", "a\0b", "a\nb", "x" * 256],
    ids=ascii,
)
def test_b71_paths_that_escape(tmp_path: Path, path: str) -> None:
    store = MemoryStore()
    descriptor = make_bundle(store, Dist(name="bad", files={"fine.py": "x = 1\n"}))
    layer = read_layer(store, descriptor, descriptor.content.layers[0])
    hostile = LayerEntry(path=f"data/{path}", size=1, sha256=Digest.of(b"x"), inline=b"x")
    entries = tuple(sorted((*layer.entries, hostile), key=lambda entry: entry.path.encode()))
    trusted = relist(store, descriptor, replace(layer, entries=entries).to_bytes())
    refused(tmp_path, (trusted, store), IntegrityError, "E-PATH")


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "x\ny", ""], ids=ascii)
def test_b72_script_names_are_no_paths(tmp_path: Path, name: str) -> None:
    store = MemoryStore()
    descriptor = make_bundle(store, Dist(name="bad", entry_points={"fine": "m:f"}))
    layer = read_layer(store, descriptor, descriptor.content.layers[0])
    data = replace(
        layer,
        entries=tuple(
            replace(entry, path=f"scripts/{name}") if entry.type == "entry-point" else entry
            for entry in layer.entries
        ),
    ).to_bytes()
    trusted = relist(store, descriptor, data)
    before = listing(tmp_path)
    with pytest.raises(IntegrityError) as caught:
        install(trusted, store, InstallOptions(prefix=tmp_path / "env"), now=NOW)
    assert caught.value.code in ("E-PATH", "E-NAME", "E-FORMAT")
    assert listing(tmp_path) == before


def test_a_contested_path_without_a_provider(tmp_path: Path) -> None:
    one, two = (Dist(name=n, files={"shared/x.py": f"owner = {n!r}\n"}) for n in ("one", "two"))
    error = refused(tmp_path, bundle(one, two), IntegrityError, "E-PROVIDES")
    assert error.subject.strip("'") == f"{SITE}/shared/x.py"
    assert "one" in error.found
    assert "two" in error.found


@pytest.mark.parametrize("winner", ["one", "two"])
def test_a_contested_path_has_the_winner_s_bytes(tmp_path: Path, winner: str) -> None:
    one, two = (Dist(name=n, files={"shared/x.py": f"owner = {n!r}\n"}) for n in ("one", "two"))
    path = f"{SITE}/shared/x.py"
    prefix = tmp_path / "env"
    install(*bundle(one, two, winners={path: winner}), InstallOptions(prefix=prefix), now=NOW)
    assert (prefix / path).read_text() == f"owner = {winner!r}\n"
    assert verify_environment(prefix).ok


def test_a_provider_that_does_not_hold_the_path(tmp_path: Path) -> None:
    given = bundle(Dist(name="one", files={"x.py": "x"}), provides={f"{SITE}/y.py": 0})
    refused(tmp_path, given, IntegrityError, "E-PROVIDES")


FOREIGN = {
    "folder": lambda path: path.mkdir(),
    "file": lambda path: path.write_text("precious"),
    "link": lambda path: path.symlink_to("elsewhere"),
    "link-to-a-generation-of-another": lambda path: path.symlink_to("other.generations/0001-0123456789ab"),
    "generations": lambda path: (
        (path.parent / "env.generations").mkdir() or (path.parent / "env.generations/x").touch()
    ),
    "generations-is-a-link": lambda path: (path.parent / "env.generations").symlink_to("/usr"),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_prefix_that_is_not_ours(tmp_path: Path, make: object) -> None:
    make(tmp_path / "env")  # type: ignore[operator]
    refused(tmp_path, sample(), HostError, "E-PREFIX-FOREIGN")


@pytest.mark.parametrize("character", ["\n", "'", '"', ":", "\\", "\t", "\x7f"], ids=ascii)
def test_b26_prefixes_that_no_script_can_hold(tmp_path: Path, character: str) -> None:
    options = InstallOptions(prefix=tmp_path / f"a{character}b")
    refused(tmp_path, sample(), UserInputError, "E-PREFIX-CHARS", options)


def test_a_fixed_prefix(tmp_path: Path) -> None:
    layout = {"mode": "fixed", "prefix": str(tmp_path / "there")}
    given = bundle(*sample_items("one"), layout=layout)
    refused(tmp_path, given, UserInputError, "E-PREFIX-FIXED")
    install(*given, InstallOptions(prefix=tmp_path / "there"), now=NOW)
    assert output(tmp_path / "there/bin/app").startswith("one ")


HOSTS = {
    "glibc": ({"glibc": "2.99"}, VerdictError, "E-GLIBC"),
    "machine": ({"platform": "aarch64-manylinux_2_17"}, HostError, "E-HOST-PYTHON"),
    "python": ({"python": "3.99"}, HostError, "E-HOST-PYTHON"),
}


@pytest.mark.parametrize(("change", "kind", "code"), HOSTS.values(), ids=HOSTS.keys())
def test_hosts_that_do_not_fit(
    tmp_path: Path, change: dict[str, str], kind: type[EnvbundleError], code: str
) -> None:
    refused(tmp_path, bundle(target=with_target(**change)), kind, code)


def test_all_findings_come_at_once(tmp_path: Path) -> None:
    target = with_target(glibc="2.99", python="3.99", gpus=(Arch("sm_90"),))
    given = bundle(
        target=target, environment={"BAD NAME": "x"}, invariants=({"kind": "path", "path": "/nowhere"},)
    )
    (tmp_path / "env").mkdir()
    error = refused(tmp_path, given, HostError, "E-PREFIX-FOREIGN")
    codes = {finding.code for finding in error.findings}
    assert codes >= {"E-GLIBC", "E-HOST-PYTHON", "E-PREFIX-FOREIGN", "E-ENVIRONMENT", "E-HOST-PATH"}
    found = check_install(*given, InstallOptions(prefix=tmp_path / "env"))
    assert {finding.code for finding in found} == codes


def test_a_lower_serial(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    install(*sample("two", serial=2), InstallOptions(prefix=prefix), now=NOW)
    with pytest.raises(TrustError) as caught:
        install(*sample("one", serial=1), InstallOptions(prefix=prefix), now=LATER)
    assert caught.value.code == "E-DOWNGRADE"
    with pytest.raises(TrustError):
        install(*sample("none"), InstallOptions(prefix=prefix), now=LATER)
    assert output(prefix / "bin/app").startswith("two ")
    options = InstallOptions(prefix=prefix, allow_downgrade=True)
    assert install(*sample("one", serial=1), options, now=LATER).status == "installed"
    with pytest.raises(TrustError):  # the mark stays where it was
        install(*sample("again", serial=1), InstallOptions(prefix=prefix), now=LATER)


def test_two_at_once(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    install(*sample("one"), InstallOptions(prefix=prefix), now=NOW)
    with locked(Prefix.of(prefix)), pytest.raises(HostError) as caught:
        install(*sample("two"), InstallOptions(prefix=prefix), now=LATER)
    assert caught.value.code == "E-LOCKED"
    assert output(prefix / "bin/app").startswith("one ")
    install(*sample("two"), InstallOptions(prefix=prefix), now=LATER)
    assert output(prefix / "bin/app").startswith("two ")
