from __future__ import annotations

import ast
from pathlib import Path

import pytest

import envbundle.transfer
from envbundle.errors import HostError, UserInputError
from envbundle.transfer.location import TRANSPORTS, open_destination, open_location, parse_location


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("dist", "dist"),
        ("./dist", "./dist"),
        ("/srv/my store", "/srv/my store"),
        ("dir:host:path", "host:path"),
        ("./host:path", "./host:path"),
        ("/a/b:c", "/a/b:c"),
        ("dir:x.tar", "x.tar"),
        ("x.tar/", "x.tar/"),
        ("~/dist", "~/dist"),
    ],
)
def test_a_folder(text: str, path: str) -> None:
    location = parse_location(text)
    assert (location.kind, location.path, str(location)) == ("dir", path, text)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("ssh://root@host:22/srv/store", "rsync"),
        ("SSH://host/x", "rsync"),
        ("https://host/store", "wget"),
        ("http://host/store", "wget"),
        ("oci://registry/repo:tag", "skopeo copy docker://"),
    ],
)
def test_what_is_not_built_yet_says_what_to_use(text: str, instead: str) -> None:
    with pytest.raises(UserInputError) as caught:
        parse_location(text)
    assert caught.value.code == "E-LOCATION"
    assert "not built yet" in caught.value.found
    assert instead in caught.value.hint


@pytest.mark.parametrize("text", ["", "a\nb", "\x1b[2J", "ftp://host/x", "host:path", "me@host:path", "dir:"])
def test_what_is_no_location(text: str) -> None:
    with pytest.raises(UserInputError) as caught:
        parse_location(text)
    assert caught.value.code == "E-LOCATION"
    assert "not built" not in caught.value.found
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "kind"), [("bundle.tar", "archive"), ("/a b/x.tar", "archive"), ("-", "pipe"), ("./-", "dir")]
)
def test_other_kinds(text: str, kind: str) -> None:
    assert parse_location(text).kind == kind


def test_a_pipe_is_no_store_to_ask() -> None:
    with pytest.raises(UserInputError) as caught:
        open_location(parse_location("-"))
    assert caught.value.code == "E-LOCATION"


def test_opening(tmp_path: Path) -> None:
    location = parse_location(str(tmp_path / "s"))
    with pytest.raises(HostError) as caught:
        open_location(location)
    assert caught.value.code == "E-NOT-FOUND"
    open_location(location, create=True).put(b"x")
    assert len(list(open_location(location).blobs())) == 1


def test_a_dry_run_makes_no_destination(tmp_path: Path) -> None:
    location = parse_location(str(tmp_path / "s"))
    assert open_destination(location, dry_run=True).tags() == ()
    assert list(tmp_path.iterdir()) == []
    open_destination(location, dry_run=False).put(b"x")
    assert len(list(open_destination(location, dry_run=True).blobs())) == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(HostError):
        open_destination(parse_location(str(tmp_path / "other")), dry_run=False)


def test_every_transport_is_in_the_table() -> None:
    """A module of this room with an ``open_...`` function is a transport; the table must know it."""
    folder = Path(envbundle.transfer.__file__).parent
    opens = {
        node.name
        for path in folder.glob("*.py")
        if path.name != "location.py"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("open_")
    }
    assert opens == {transport.__name__ for transport in TRANSPORTS.values()}
