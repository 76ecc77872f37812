from __future__ import annotations

import ast
from pathlib import Path

import pytest

import envbundle.transfer
from envbundle.errors import HostError, UserInputError
from envbundle.transfer.location import TRANSPORTS, open_destination, open_location, parse_location
from envbundle.transfer.ssh import REMOTE_COMMAND, SshAddress, parse_ssh


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
    "text",
    ["", "a\nb", "\x1b[2J", "ftp://host/x", "host:path", "me@host:path", "dir:", "https://", "oci://x"],
)
def test_what_is_no_location(text: str) -> None:
    with pytest.raises(UserInputError) as caught:
        parse_location(text)
    assert caught.value.code == "E-LOCATION"
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bundle.tar", "archive"),
        ("/a b/x.tar", "archive"),
        ("-", "pipe"),
        ("./-", "dir"),
        ("https://host/store", "http"),
        ("HTTP://host:80/store/", "http"),
        ("oci://registry/repo:tag", "oci"),
    ],
)
def test_other_kinds(text: str, kind: str) -> None:
    assert parse_location(text).kind == kind


@pytest.mark.parametrize(
    ("text", "host", "path", "user", "port"),
    [
        ("ssh://root@host:22/srv/store", "host", "/srv/store", "root", 22),
        ("SSH://host/x", "host", "/x", "", None),
        ("ssh://host/~/x", "host", "~/x", "", None),
        ("ssh://a@b/~me/x", "b", "~me/x", "a", None),
        ("ssh://[fe80::1%eth0]:2222/x", "fe80::1%eth0", "/x", "", 2222),
        ("ssh://host/a b/it's", "host", "/a b/it's", "", None),
        ("ssh://host/a%20b", "host", "/a b", "", None),
        ("ssh://my_alias-1.x/100%", "my_alias-1.x", "/100%", "", None),
    ],
)
def test_a_host(text: str, host: str, path: str, user: str, port: int | None) -> None:
    location = parse_location(text)
    assert location.kind == "ssh"
    assert parse_ssh(location.path) == SshAddress(host=host, path=path, user=user, port=port)


@pytest.mark.parametrize(
    "text",
    [
        "ssh://",
        "ssh://host",
        "ssh://host/",
        "ssh:///x",
        "ssh://-oProxyCommand=x/x",
        "ssh://-l@host/x",
        "ssh://a b@host/x",
        "ssh://ho st/x",
        "ssh://host:0/x",
        "ssh://host:ssh/x",
        "ssh://host:70000/x",
        "ssh://$(touch p)/x",
        "ssh://host%00/x",
        "ssh://host/a%00b",
        "ssh://::1/x",
    ],
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(UserInputError) as caught:
        parse_location(text)
    assert caught.value.code == "E-LOCATION"


def test_a_host_is_never_an_option() -> None:
    words = SshAddress(host="h", path="/x", user="u", port=22).words
    assert words == ("-p", "22", "--", "u@h")


def test_the_remote_command_is_one_constant_without_quotes_to_break() -> None:
    assert REMOTE_COMMAND.count("'") == 2
    assert not set("$`\\!\n") & set(REMOTE_COMMAND)


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
