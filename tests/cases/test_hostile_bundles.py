"""Bundles whose signature is good and whose maker means harm: the signer's key was stolen, or worse.

A good signature says who, never that paths are safe, sizes are true or names are names.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from .forge import Forgery, digest
from .kit import PLATFORM, PYTHON, SITE, Case

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A packed project of two distributions and one overlay, shared; each test forges a copy of its store."""
    case = Case.make(tmp_path_factory.mktemp("honest"))
    case.wheel(
        "app",
        "1.0",
        {"app/__init__.py": "", "app/a.py": "value = 1\n", "app/b.py": "x = 1\n"},
        entry_points={"console_scripts": {"run": "app.a:main"}},
        scripts={"tool": "#!python\nprint('tool')\n"},
    )
    case.wheel("lib", "1.0", {"lib/__init__.py": "", "lib/big.bin": bytes(range(256)) * 9000})
    case.overlay("app", {"app/a.py": "value = 2\n"})
    case.manifest("app==1.0", "lib==1.0", gpu="none", more='[[overlay]]\ndistribution = "app"\npath = "overlays/app"')
    (case.folder / "envbundle.toml").write_text(
        (case.folder / "envbundle.toml").read_text().replace("[target.none]", "[target.t]")
    )
    case.packed()
    return case


@pytest.fixture
def bundle(case: Case, honest: Case) -> Case:
    """The honest store in a project of this test's own, with the honest project's key."""
    shutil.copytree(honest.store, case.store)
    for name in ("key", "signers"):
        shutil.copy2(honest.folder / name, case.folder / name)
    return case


def _refused(case: Case, *codes: str, preflight: bool = True) -> None:
    """Refused by install and verify, and nothing is written; by preflight where no file's bytes are needed."""
    outside = case.root / "outside"
    outside.mkdir(exist_ok=True)
    before = case.listing()
    install = ("install", "dist", "--prefix", case.prefix, "--no-device")
    for words in (install, *([(*install, "--check")] if preflight else []), ("verify", "dist")):
        done = case.run(*words)
        assert (done.status, bool(set(done.codes) & set(codes))) == (3, True), (words, done.answer)
        assert case.listing() == before


def test_the_forger_changes_nothing_but_what_he_wants(bundle: Case) -> None:
    """The base of all rows below: taken apart and put together, the bundle installs."""
    Forgery.of(bundle.store).write(bundle.folder / "key")
    assert bundle.run("verify", "dist").status == 0
    prefix = bundle.installed()
    assert (prefix / SITE / "app/a.py").read_text() == "value = 2\n"
    bundle.ok("verify", prefix)


# --- B71: paths and links

BAD_PATHS = [
    "purelib/../x", "purelib/../../../../../outside/x", "purelib/a/../../../../../x", "purelib/./../x", "/etc/x", "purelib//x",
    "purelib/app/./x", "scripts/../x", "data/../x", "headers/../../x", "purelib/a\\..\\x", "purelib/x\n", "purelib/\x7f", "..", "",
    "purelib", "purelib/", "etc/x", "purelib/" + "x" * 256, "purelib/" + "a/" * 2100 + "x",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS, ids=lambda p: ascii(p[:30]))
def test_B71_path_of_an_entry(bundle: Case, path: str) -> None:
    forgery = Forgery.of(bundle.store)
    forgery.rename("purelib/app/b.py", path)
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-PATH", "E-FORMAT")
    assert not list((bundle.root / "outside").iterdir())


def test_B71_a_lone_surrogate(bundle: Case) -> None:
    forgery = Forgery.of(bundle.store)
    forgery.rename("purelib/app/b.py", "purelib/app/\udc80.py")
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-PATH", "E-FORMAT")


BAD_LINKS = [
    "/tmp", "/etc/passwd", "../../../../../../outside", "..", "../..", "a/../../..", "", "x\n", "a\\b", "../../lib/../../../x", "./../../x/..",
]  # fmt: skip


@pytest.mark.parametrize("link", BAD_LINKS)
def test_B71_link_that_leaves(bundle: Case, link: str) -> None:
    forgery = Forgery.of(bundle.store)
    forgery.add({"path": "purelib/d", "type": "symlink", "link": link})
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-PATH", "E-FORMAT")


@pytest.mark.parametrize(
    ("path", "link", "through"),
    [
        ("purelib/d", "app", "purelib/d/x.py"),
        ("purelib/app/d", "../lib", "purelib/app/d/x.py"),
        ("data/d", "bin", "data/d/x"),
        ("scripts/d", "tool", "scripts/d/x"),
        ("data/share", "lib", "data/share/x"),
    ],
)
def test_B71_written_through_a_link(bundle: Case, path: str, link: str, through: str) -> None:
    forgery = Forgery.of(bundle.store)
    forgery.add({"path": path, "type": "symlink", "link": link})
    forgery.add_file(through, b"evil")
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-PATH", "E-FORMAT")


def test_B71_links_through_links(bundle: Case) -> None:
    forgery = Forgery.of(bundle.store)
    forgery.add({"path": "purelib/p/q/r/one", "type": "symlink", "link": "../../.."})
    forgery.add({"path": "purelib/two", "type": "symlink", "link": "p/q/r/one/../../../../../outside"})
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-PATH", "E-FORMAT")


OWN_PLACES = [
    "data/bin/python", "data/bin/python3", f"data/bin/python{PYTHON}", "scripts/python", "scripts/activate", "data/pyvenv.cfg",
    "data/lib64/x", "data/lib64", "data/.envbundle/receipt.json", "data/.envbundle", "data/env.sh", "data/env.conf", "scripts/activate.fish",
    f"data/{SITE}/_envbundle_pin.py", f"data/{SITE}/00_envbundle.pth", f"data/{SITE}/~envbundle.pth", "purelib/_envbundle_pin.py",
    "data/bin", "data/lib", f"data/{SITE}", "purelib/app/__pycache__",
]  # fmt: skip


@pytest.mark.parametrize("path", OWN_PLACES)
def test_B71_a_place_that_only_envbundle_writes(bundle: Case, path: str) -> None:
    forgery = Forgery.of(bundle.store)
    forgery.add_file(path, b"evil")
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-PATH")


def test_B71_a_prefix_that_is_the_start_of_another(bundle: Case) -> None:
    """``/p/env`` is no folder of ``/p/env-evil``: text is not compared with text."""
    forgery = Forgery.of(bundle.store)
    forgery.add({"path": "data/d", "type": "symlink", "link": "../env-evil/x"})
    forgery.write(bundle.folder / "key")
    (bundle.root / "env-evil").mkdir()
    _refused(bundle, "E-PATH")


# --- B72: names

BAD_NAMES = ["../../x", "a/b", "..", "", "X", "a b", "$(x)", "a\n", ".x", "x" * 200]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda n: ascii(n[:20]))
@pytest.mark.parametrize("where", ["name", "target"])
def test_B72_name_of_a_bundle(bundle: Case, name: str, where: str) -> None:
    forgery = Forgery.of(bundle.store)
    if where == "name":
        forgery.content["name"] = name
    else:
        forgery.content["target"]["name"] = name
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-NAME", "E-TARGET-NAME", "E-TAG-MISMATCH", "E-STORE-INDEX", "E-FORMAT")
    before = bundle.listing()
    assert bundle.run("copy", "dist", bundle.root / "there").status == 3
    assert bundle.listing() == before


@pytest.mark.parametrize("tag", ["../../x", "/x", "a b", "", "x" * 200, "t\n"], ids=lambda n: ascii(n[:20]))
def test_B72_tag_of_the_index(bundle: Case, tag: str) -> None:
    index = json.loads((bundle.store / "index.json").read_bytes())
    index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] = tag
    (bundle.store / "index.json").write_text(json.dumps(index, separators=(",", ":")))
    before = bundle.listing()
    for words in (("install", "dist", "--prefix", bundle.prefix), ("verify", "dist"), ("copy", "dist", bundle.root / "there")):
        done = bundle.run(*words)
        assert done.status in (2, 3), done.answer
        assert bundle.listing() == before


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "-x", "$(touch X)", "a'b", "x" * 300, "a\nb"], ids=lambda n: ascii(n[:20]))
def test_B72_name_of_a_script(bundle: Case, name: str) -> None:
    forgery = Forgery.of(bundle.store)
    forgery.rename("scripts/run", f"scripts/{name}")
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-NAME", "E-PATH", "E-FORMAT")


@pytest.mark.parametrize(
    "reference",
    ["app.a:main; import os", "app.a:main()", "os:system('x')", "app..a:main", "app.:main", ".a:main", "a:", "a:b.", "a:b:c", "", "a:b\nx", 'a:"b"', "a b:c"],
)  # fmt: skip
def test_B72_reference_of_a_script(bundle: Case, reference: str) -> None:
    forgery = Forgery.of(bundle.store)
    forgery.entry("scripts/run")["reference"] = reference
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-FORMAT", "E-ENTRY-POINT")


# --- B75: sizes


def _zip(mebibytes: int) -> bytes:
    writer = zstandard.ZstdCompressor(level=1).compressobj(size=mebibytes << 20)
    return b"".join(writer.compress(bytes(1 << 20)) for _ in range(mebibytes)) + writer.flush()


def _bomb(forgery: Forgery, stored: bytes, plain_size: int, **changes: Any) -> None:
    """Put ``stored`` in place of the chunk that holds app's files."""
    name = forgery.layers[0]["chunks"][0][0]
    data = forgery.plain(name)
    forgery.put(data, stored=stored, encoding="zstd", name=name, **{"plain_size": plain_size, **changes})


def test_B75_a_chunk_that_holds_more_than_it_says(bundle: Case) -> None:
    forgery = Forgery.of(bundle.store)
    size = forgery.layers[0]["chunks"][0][1]
    _bomb(forgery, _zip(256), size)
    forgery.write(bundle.folder / "key")
    _refused_in_little_memory(bundle, "E-BLOB-BOUND")


def test_B75_a_frame_that_hides_its_size(bundle: Case) -> None:
    forgery = Forgery.of(bundle.store)
    writer = zstandard.ZstdCompressor(level=1, write_content_size=False).compressobj()
    stored = b"".join(writer.compress(bytes(1 << 20)) for _ in range(256)) + writer.flush()
    _bomb(forgery, stored, forgery.layers[0]["chunks"][0][1])
    forgery.write(bundle.folder / "key")
    _refused_in_little_memory(bundle, "E-BLOB-DECODE")


def test_B75_a_chunk_above_every_bound(bundle: Case) -> None:
    forgery = Forgery.of(bundle.store)
    layer, big = forgery.layers[0], 3 << 30
    old = layer["chunks"][0]
    _bomb(forgery, _zip(3072), big)
    old[1] = big
    forgery.write(bundle.folder / "key")
    _refused_in_little_memory(bundle, "E-BLOB-BOUND")


def test_B75_a_window_above_every_bound(bundle: Case) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, compression_level=1, write_content_size=True)
    forgery = Forgery.of(bundle.store)
    name = forgery.layers[0]["chunks"][0][0]
    data = forgery.plain(name) + bytes(140 << 20)
    stored = zstandard.ZstdCompressor(compression_params=parameters).compress(data)
    _bomb(forgery, stored, len(data))
    forgery.layers[0]["chunks"][0][1] = len(data)
    forgery.write(bundle.folder / "key")
    _refused_in_little_memory(bundle, "E-BLOB-BOUND")


@pytest.mark.parametrize("tail", [b"\0", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18\1\0\0\0x"], ids=["a byte", "another frame", "a skippable frame"])
def test_B75_bytes_behind_the_frame(bundle: Case, tail: bytes) -> None:
    forgery = Forgery.of(bundle.store)
    name = forgery.layers[0]["chunks"][0][0]
    data = forgery.plain(name)
    _bomb(forgery, zstandard.ZstdCompressor().compress(data) + tail, len(data))
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-BLOB-DECODE", preflight=False)


def _refused_in_little_memory(case: Case, code: str) -> None:
    """Refused with an address space of 1 GiB, which the interpreter and its modules share."""
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
        "from envbundle.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    before = case.listing()
    done = subprocess.run(
        [sys.executable, "-c", program, "install", "dist", "--prefix", case.prefix, "--no-device", "--json"],
        capture_output=True, text=True, check=False, cwd=case.folder, env=case.env,
    )  # fmt: skip
    assert done.returncode == 3, (done.stdout, done.stderr[-2000:])
    assert code in done.stdout
    assert case.listing() == before
    assert case.run("verify", "dist").status == 3


# --- a bundle that contradicts itself


def _bytes_of(forgery: Forgery, data: bytes) -> None:
    """Have app/b.py be other bytes than its digest says."""
    name = forgery.put(data)
    layer = forgery.layers[0]
    layer["chunks"].append([name, len(data)])
    forgery.entry("purelib/app/b.py").update(size=len(data), segments=[[name, 0, len(data)]])


def _overlap(forgery: Forgery) -> None:
    forgery.add_file("purelib/app/b.py", b"other", layer=1)


def _provides(value: Any, path: str = f"{SITE}/app/a.py") -> Callable[[Forgery], None]:
    def change(forgery: Forgery) -> None:
        forgery.content["provides"][path] = value

    return change


def _ref(key: str, value: Any) -> Callable[[Forgery], None]:
    def change(forgery: Forgery) -> None:
        forgery.content["layers"][0][key] = value

    return change


def _layer(key: str, value: Any) -> Callable[[Forgery], None]:
    def change(forgery: Forgery) -> None:
        forgery.layers[0][key] = value

    return change


def _entry(**values: Any) -> Callable[[Forgery], None]:
    def change(forgery: Forgery) -> None:
        forgery.entry("purelib/app/b.py").update(values)

    return change


def _segment(position: int, value: Any) -> Callable[[Forgery], None]:
    def change(forgery: Forgery) -> None:
        forgery.entry("purelib/app/b.py")["segments"][0][position] = value

    return change


def _twice(forgery: Forgery) -> None:
    forgery.add(dict(forgery.entry("purelib/app/b.py")))


def _both_schemes(forgery: Forgery) -> None:
    forgery.add_file("platlib/app/b.py", b"other")


def _drop_blob(forgery: Forgery) -> None:
    del forgery.blobs[forgery.layers[0]["chunks"][0][0]]


CONTRADICTIONS: dict[str, tuple[Callable[[Forgery], None], tuple[str, ...]]] = {
    "a file of other bytes": (lambda f: _bytes_of(f, b"x = 2\n"), ("E-FILE-HASH",)),
    "a file of more bytes": (lambda f: _bytes_of(f, b"x = 1\n" * 2), ("E-FILE-HASH",)),
    "two layers, one path": (_overlap, ("E-PROVIDES",)),
    "one layer, two schemes, one path": (_both_schemes, ("E-PROVIDES",)),
    "one path twice": (_twice, ("E-FORMAT",)),
    "provided by a layer that does not hold it": (_provides(1), ("E-PROVIDES",)),
    "provided by no layer": (_provides(99), ("E-FORMAT",)),
    "provided by minus one": (_provides(-1), ("E-FORMAT",)),
    "provided by a text": (_provides("0"), ("E-FORMAT",)),
    "provided by true": (_provides(True), ("E-FORMAT",)),
    "provides outside": (_provides(0, "../x"), ("E-PATH", "E-FORMAT")),
    "provides nothing there": (_provides(0, "lib/nothing"), ("E-PROVIDES",)),
    "another distribution": (_ref("distribution", "other"), ("E-LAYER-MISMATCH",)),
    "another version": (_ref("version", "2"), ("E-LAYER-MISMATCH",)),
    "another kind": (_ref("kind", "overlay"), ("E-LAYER-MISMATCH",)),
    "an unknown origin": (_ref("origin", "heaven"), ("E-FORMAT",)),
    "an unknown field of a layer": (_layer("more", 1), ("E-FORMAT",)),
    "another format of a layer": (_layer("format", "envbundle.layer.v2"), ("E-FORMAT-VERSION", "E-FORMAT")),
    "another format": (lambda f: f.descriptor.update(format="envbundle.descriptor.v9"), ("E-FORMAT-VERSION", "E-FORMAT")),
    "an unknown field of the content": (lambda f: f.content.update(more=1), ("E-FORMAT",)),
    "a missing field of the content": (lambda f: f.content.pop("lock"), ("E-FORMAT",)),
    "setuid": (_entry(mode=0o4755), ("E-FORMAT",)),
    "writable for all": (_entry(mode=0o666), ("E-FORMAT",)),
    "a negative size": (_entry(size=-1), ("E-FORMAT",)),
    "a huge size": (_entry(size=1 << 62), ("E-FORMAT",)),
    "a size that is true": (_entry(size=True), ("E-FORMAT",)),
    "a fraction": (_entry(size=1.5), ("E-FORMAT",)),
    "no digest": (_entry(sha256="md5:00"), ("E-FORMAT",)),
    "a segment before the chunk": (_segment(1, -1), ("E-FORMAT",)),
    "a segment behind the chunk": (_segment(1, 1 << 40), ("E-FORMAT",)),
    "a segment of a chunk that is not listed": (_segment(0, "sha256:" + "0" * 64), ("E-FORMAT",)),
    "a chunk that no blob is named for": (_drop_blob, ("E-LAYER-MISMATCH", "E-BLOB-UNNAMED")),
    "inline bytes that are others": (lambda f: f.entry("scripts/tool").update(inline="AAAA"), ("E-FORMAT",)),
    "inline that is no base64": (lambda f: f.entry("scripts/tool").update(inline="*"), ("E-FORMAT",)),
    "an unknown role": (_entry(role="driver"), ("E-FORMAT",)),
    "an unknown type": (_entry(type="device"), ("E-FORMAT",)),
    "layers that are no list": (lambda f: f.content.update(layers={}), ("E-FORMAT",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_3_a_bundle_that_contradicts_itself(bundle: Case, name: str) -> None:
    change, codes = CONTRADICTIONS[name]
    forgery = Forgery.of(bundle.store)
    change(forgery)
    if name == "layers that are no list":
        forgery.descriptor["content_id"] = digest(b"")
        forgery.seal(bundle.folder / "key", {})
    else:
        forgery.write(bundle.folder / "key")
    _refused(bundle, *codes, preflight=codes != ("E-FILE-HASH",))


def test_3_counts_that_are_wrong(bundle: Case) -> None:
    for key, value in (("files", 0), ("files", 1 << 40), ("bytes", 0), ("bytes", 1 << 60)):
        forgery = Forgery.of(bundle.store)
        before = forgery.content["layers"][0][key]
        forgery.content["layers"][0][key] = value
        forgery.write(bundle.folder / "key", counted=False)
        _refused(bundle, "E-LAYER-MISMATCH")
        forgery.content["layers"][0][key] = before


def test_3_entries_out_of_order(bundle: Case) -> None:
    forgery = Forgery.of(bundle.store)
    forgery.layers[0]["entries"].reverse()
    forgery.write(bundle.folder / "key", ordered=False)
    _refused(bundle, "E-FORMAT")


def test_3_removed_by_an_overlay_and_installed_all_the_same(bundle: Case) -> None:
    forgery = Forgery.of(bundle.store)
    base = forgery.entry("purelib/app/b.py")
    overlay = next(i for i, layer in enumerate(forgery.layers) if layer["kind"] == "overlay")
    forgery.layers[overlay]["removes"] = [{"path": "purelib/app/b.py", "sha256": base["sha256"]}]
    forgery.write(bundle.folder / "key")
    _refused(bundle, "E-PROVIDES")


VALUES: dict[str, Callable[[Forgery], None]] = {
    "a variable's name": lambda f: f.content["environment"].update({"A;touch X;B": "1"}),
    "a variable's name with =": lambda f: f.content["environment"].update({"A=B": "1"}),
    "an empty variable": lambda f: f.content["environment"].update({"": "1"}),
    "a value with a newline": lambda f: f.content["environment"].update({"A": "1\ntouch X"}),
    "a value with a NUL": lambda f: f.content["environment"].update({"A": "1\0"}),
    "a prefix with a newline": lambda f: f.content["layout"].update({"prefix": "/opt/a\nb", "mode": "fixed"}),
    "a prefix that is no text": lambda f: f.content["layout"].update({"prefix": 7, "mode": "fixed"}),
    "an interpreter with a NUL": lambda f: f.content["layout"].update({"interpreter-path": "/usr/bin/py\0thon"}),
    "an interpreter with a newline": lambda f: f.content["layout"].update({"interpreter-path": "/usr/bin/py\nthon"}),
    "an interpreter that is a number": lambda f: f.content["layout"].update({"interpreter-path": 7}),
    "an unknown invariant": lambda f: f.content["invariants"].append({"kind": "moon"}),
    "an invariant without fields": lambda f: f.content["invariants"].append({"kind": "path"}),
    "an invariant of other types": lambda f: f.content["invariants"].append({"kind": "tool", "tool": 7}),
    "an invariant with a NUL": lambda f: f.content["invariants"].append({"kind": "path", "path": "/a\0b"}),
    "a space invariant of text": lambda f: f.content["invariants"].append({"kind": "space", "path": "/", "bytes": "x"}),
    "a model that is a list": lambda f: f.content["invariants"].append({"kind": "model", "path": ["/x"]}),
    "an env invariant of other types": lambda f: f.content["invariants"].append({"kind": "env", "name": 1}),
    "a check of an unknown kind": lambda f: f.content["checks"].append({"dance": True}),
    "a check of other types": lambda f: f.content["checks"].append({"run": "rm -rf /"}),
    "a check with a negative timeout": lambda f: f.content["checks"].append({"import": ["app"], "timeout": -1}),
    "a requirement that is no version": lambda f: f.content["requires"].update({"glibc": "new"}),
    "a driver that is no version": lambda f: f.content["requires"].update({"driver": "; rm"}),
    "another Python": lambda f: f.content["target"].update({"python": "3.1/../x"}),
    "another glibc": lambda f: f.content["target"].update({"glibc": "x"}),
    "a serial that is true": lambda f: f.content.update({"serial": True}),
    "a negative serial": lambda f: f.content.update({"serial": -1}),
    "a huge serial": lambda f: f.content.update({"serial": 1 << 200}),
}


@pytest.mark.parametrize("name", VALUES)
def test_hostile_values_never_end_in_a_traceback(bundle: Case, name: str) -> None:
    forgery = Forgery.of(bundle.store)
    VALUES[name](forgery)
    forgery.write(bundle.folder / "key")
    before = bundle.listing()
    for words in (("--check",), ()):
        done = bundle.install(*words)
        assert done.status in (1, 2, 3, 4), (words, done.answer)
        assert done.codes
        assert bundle.listing() == before
    for line in (("verify", "dist"), ("copy", "dist", str(bundle.root / "there"), "--dry-run")):
        assert bundle.run(*line).status in (0, 3)
        assert bundle.listing() == before


# --- B76: who vouches


def _signature(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    index = json.loads((case.store / "index.json").read_bytes())
    image = json.loads(_read(case, index["manifests"][0]["digest"]))
    return index, image


def _read(case: Case, name: str) -> bytes:
    return (case.store / "blobs/sha256" / name.removeprefix("sha256:")).read_bytes()


def _sign_with(case: Case, data: bytes | None) -> None:
    """Put ``data`` in place of the signature (None: none at all)."""
    index, image = _signature(case)
    image["layers"] = [item for item in image["layers"] if "sshsig" not in item["mediaType"]]
    blobs = case.store / "blobs/sha256"
    if data is not None:
        (blobs / digest(data)[7:]).write_bytes(data)
        image["layers"].append({"mediaType": "application/vnd.envbundle.signature.v1.sshsig", "digest": digest(data), "size": len(data)})
    from .forge import canonical

    text = canonical(image)
    (blobs / digest(text)[7:]).write_bytes(text)
    index["manifests"][0] |= {"digest": digest(text), "size": len(text)}
    (case.store / "index.json").write_bytes(canonical(index))


def _other_bundles_signature(case: Case) -> bytes:
    from envbundle.trust.key_files import read_private_key
    from envbundle.trust.sshsig import sign

    return sign(b'{"another":"descriptor"}', read_private_key((case.folder / "key").read_bytes()), namespace="envbundle")


def _flipped(case: Case) -> bytes:
    _, image = _signature(case)
    data = bytearray(_read(case, image["layers"][-1]["digest"]))
    at = len(data) - 60
    data[at] = ord("A") if data[at] != ord("A") else ord("B")
    return bytes(data)


BAD_SIGNATURES: dict[str, Callable[[Case], bytes]] = {
    "a flipped character": _flipped,
    "of another bundle": _other_bundles_signature,
    "an empty file": lambda case: b"",
    "no armor": lambda case: b"signature\n",
    "armor around nothing": lambda case: b"-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n",
    "armor around noise": lambda case: b"-----BEGIN SSH SIGNATURE-----\nU1NIU0lHAAAA\n-----END SSH SIGNATURE-----\n",
    "bytes": lambda case: bytes(range(256)),
}


@pytest.mark.parametrize("words", [(), ("--allow-unsigned",)], ids=["plain", "--allow-unsigned"])
@pytest.mark.parametrize("name", BAD_SIGNATURES)
def test_B76_a_bad_signature_is_fatal(bundle: Case, name: str, words: tuple[str, ...]) -> None:
    _sign_with(bundle, BAD_SIGNATURES[name](bundle))
    before = bundle.listing()
    for command in (("install", "dist", "--prefix", bundle.prefix, "--no-device"), ("copy", "dist", bundle.root / "there")):
        done = bundle.run(*command, *words)
        assert (done.status, done.codes) == (3, ["E-SIG-BAD"]), done.answer
        assert bundle.listing() == before
    seen = bundle.run("verify", "dist", *words)
    assert (seen.status, seen.answer["signature"]["status"]) == (3, "bad")


def test_B76_no_signature(bundle: Case) -> None:
    _sign_with(bundle, None)
    found = bundle.refused(3, "E-SIG-MISSING", "install", "dist", "--prefix", bundle.prefix, "--no-device")
    assert found["subject"]
    assert bundle.run("verify", "dist").answer["signature"]["status"] == "unsigned"
    assert "W-UNSIGNED" in bundle.install("--allow-unsigned").told


def test_B76_a_key_that_comes_with_the_bundle(bundle: Case) -> None:
    """The signature is good, by a key that stands beside the store, in it, and in the project's folder."""
    from .kit import new_key

    key, public = new_key(bundle.folder, "mine")
    Forgery.of(bundle.store).write(key)
    for place in (bundle.store, bundle.folder, bundle.folder / "there"):
        place.mkdir(exist_ok=True)
        (place / "allowed_signers").write_text(f"* {public}\n")
    (bundle.folder / "mine.pub").write_text(public)
    found = bundle.refused(3, "E-SIG-UNTRUSTED", "install", "dist", "--prefix", bundle.prefix, "--no-device")
    assert "SHA256:" in found["found"] + found["subject"] + found["hint"]
    assert bundle.run("verify", "dist").status == 3


def test_B76_the_target_is_what_was_signed(bundle: Case) -> None:
    """Whoever holds no key changes the GPU and mends every digest around it."""
    from .kit import new_key

    forgery = Forgery.of(bundle.store)
    good = _read(bundle, _signature(bundle)[1]["layers"][-1]["digest"])
    forgery.content["target"]["gpus"] = ["sm_120"]
    forgery.write(new_key(bundle.folder, "mine")[0])
    _sign_with(bundle, good)
    bundle.refused(3, "E-SIG-BAD", "install", "dist", "--prefix", bundle.prefix, "--no-device")


# --- B77: files that nobody named


def test_B77_an_extra_blob_in_the_bundle(bundle: Case) -> None:
    index, image = _signature(bundle)
    from .forge import canonical

    blobs = bundle.store / "blobs/sha256"
    (blobs / digest(b"extra")[7:]).write_bytes(b"extra")
    image["layers"].append({"mediaType": "application/vnd.envbundle.chunk.v1", "digest": digest(b"extra"), "size": 5})
    text = canonical(image)
    (blobs / digest(text)[7:]).write_bytes(text)
    index["manifests"][0] |= {"digest": digest(text), "size": len(text)}
    (bundle.store / "index.json").write_bytes(canonical(index))
    _refused(bundle, "E-MANIFEST-MISMATCH")
    assert bundle.run("copy", "dist", bundle.root / "there").codes == ["E-MANIFEST-MISMATCH"]


def test_B77_a_blob_that_is_changed_after_verify(bundle: Case) -> None:
    """What is used is hashed as it is used: that ``verify`` said yes before helps nobody."""
    bundle.ok("verify", "dist")
    for path in sorted((bundle.store / "blobs/sha256").iterdir()):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        before = bundle.listing()
        done = bundle.install()
        assert done.status == 3, (path.name, done.answer)
        assert bundle.listing() == before
        path.write_bytes(data)


def test_B77_an_extra_file_in_the_store_is_told(bundle: Case) -> None:
    (bundle.store / "README").write_text("x")
    (bundle.store / "blobs/sha256" / ("0" * 64)).write_text("x")
    done = bundle.run("verify", "dist")
    assert "W-STORE-EXTRA" in done.told
    assert done.status == 3  # a blob whose name is not its digest is an error, another file a warning
    (bundle.store / "blobs/sha256" / ("0" * 64)).unlink()
    assert bundle.run("verify", "dist").status == 0


def test_platform_and_python_of_another_machine(bundle: Case) -> None:
    forgery = Forgery.of(bundle.store)
    machine = "aarch64" if "x86_64" in PLATFORM else "x86_64"
    forgery.content["target"]["platform"] = f"{machine}-manylinux_2_28"
    forgery.write(bundle.folder / "key")
    before = bundle.listing()
    done = bundle.install()
    assert done.status in (1, 4)
    assert "E-PLATFORM" in done.codes
    assert bundle.listing() == before
