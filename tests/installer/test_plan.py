"""What the plan accepts can be written as it stands, whatever the names are; what it refuses is E-PATH."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import IntegrityError
from envbundle.host.tree import Tree
from envbundle.installer.layout import is_reserved
from envbundle.installer.plan import Plan, plan
from envbundle.spec.descriptor import Content, LayerRef
from envbundle.spec.digest import Digest
from envbundle.spec.layer import Layer, LayerEntry, sort_entries

from .builders import PYTHON, TARGET

NAMES = st.sampled_from(
    ["a", "b", "bin", "lib", f"python{PYTHON}", "site-packages", "python3", "lib64", "__pycache__"]
)
PATHS = st.builds(
    lambda scheme, parts: "/".join((scheme, *parts)),
    st.sampled_from(["purelib", "platlib", "scripts", "data", "headers"]),
    st.lists(NAMES, min_size=1, max_size=4),
)
LINKS = st.lists(st.sampled_from(["a", "b", "..", "."]), min_size=1, max_size=4).map("/".join)


def entry(path: str, link: str | None) -> LayerEntry:
    if link is not None:
        return LayerEntry(path=path, type="symlink", link=link)
    return LayerEntry(path=path, size=1, sha256=Digest.of(b"x"), inline=b"x")


ENTRIES = st.lists(
    st.tuples(PATHS, st.one_of(st.none(), LINKS)), min_size=1, max_size=8, unique_by=lambda row: row[0]
)


def stays_inside(path: str, link: str) -> bool:
    depth = path.count("/") - 1
    for part in link.split("/"):
        depth += {"..": -1, ".": 0}.get(part, 1)
        if depth < 0:
            return False
    return True


@given(ENTRIES)
@settings(max_examples=150, deadline=None)
def test_what_is_planned_can_be_written(rows: list[tuple[str, str | None]]) -> None:
    good = [(path, link) for path, link in rows if link is None or stays_inside(path, link)]
    layer = Layer(
        kind="distribution",
        distribution="d",
        version="1",
        entries=sort_entries(entry(path, link) for path, link in good),
    )
    ref = LayerRef(
        list=Digest.of(b""),
        list_size=0,
        kind="distribution",
        distribution="d",
        version="1",
        origin="published",
        files=len(good),
        bytes=0,
    )
    content = Content(name="n", version="1", target=TARGET, layers=(ref,), lock=Digest.of(b""))
    try:
        made = plan(content, [layer])
    except IntegrityError as fault:
        code = fault.code
    else:
        code = ""
        write(made)
    assert code in ("", "E-PATH", "E-PROVIDES")


def write(made: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder, Tree.create(Path(folder) / "root") as tree:
        for path, (_, item) in made.places.items():
            assert not is_reserved(path, PYTHON)
            if item.type == "symlink":
                tree.symlink(path, item.link)
            else:
                tree.write(path, b"x", item.mode)
        assert {path for path, _ in tree.walk()} == set(made.places)
        root = (Path(folder) / "root").resolve()
        for path in made.places:
            with contextlib.suppress(OSError, RuntimeError):  # a ring of links leads nowhere
                assert (root / path).resolve().is_relative_to(root)
