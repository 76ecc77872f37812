"""Listing, going back, collecting, and the log."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import UserInputError
from envbundle.host.run import run
from envbundle.installer.generations import gc, generations, history, managed, previous, rollback
from envbundle.installer.install import install
from envbundle.installer.layout import GenerationName, Prefix
from envbundle.installer.options import InstallOptions
from envbundle.installer.verify import verify_environment

from .builders import LATER, NOW, bundle, output, sample, sample_items

if TYPE_CHECKING:
    from pathlib import Path


def put(prefix: Path, *values: str, **more: object) -> list[str]:
    return [
        install(*sample(v, **more), InstallOptions(prefix=prefix, compile=False), now=NOW).generation
        for v in values
    ]


def value(prefix: Path) -> str:
    return output(prefix / "bin/app").split(" ", 1)[0]


def test_going_back_follows_what_was_live(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    one, two, three = put(prefix, "one", "two", "three")
    assert rollback(prefix, now=LATER).name == two
    (four,) = put(prefix, "four")
    assert four.startswith("0004-")
    assert previous(Prefix.of(prefix)) == two  # not three, which was left behind
    assert rollback(prefix, now=LATER).name == two
    assert rollback(prefix, now=LATER).name == one
    with pytest.raises(UserInputError) as caught:
        rollback(prefix, now=LATER)
    assert caught.value.code == "E-NO-GENERATION"
    assert rollback(prefix, to=three, now=LATER).name == three
    assert value(prefix) == "three"
    with pytest.raises(UserInputError):
        rollback(prefix, to="0009-000000000000", now=LATER)
    assert [g.name for g in generations(prefix) if g.live] == [three]


def test_going_back_without_a_log(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    one, _two = put(prefix, "one", "two")
    (prefix.parent / "env.generations/log.jsonl").write_bytes(b'{"cut')
    assert rollback(prefix, now=LATER).name == one


def test_going_back_needs_no_serial(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    put(prefix, "one", serial=1)
    put(prefix, "two", serial=2)
    rollback(prefix, now=LATER)
    assert value(prefix) == "one"


def test_the_log_says_who_did_what(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    one, two = put(prefix, "one", "two")
    rollback(prefix, now=LATER)
    rows = history(managed(prefix))
    assert [(row["action"], row.get("from"), row["generation"]) for row in rows] == [
        ("install", None, one),
        ("install", one, two),
        ("rollback", two, one),
    ]
    assert rows[-1]["time"] == "2026-12-02T12:00:00Z"
    assert rows[-1]["user"]
    for line in (prefix.parent / "env.generations/log.jsonl").read_text().splitlines():
        json.loads(line)


def test_collecting_keeps_what_may_be_needed(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    names = put(prefix, "one", "two", "three", "four", "five")
    rollback(prefix, to=names[1], now=LATER)  # live: two; before it: one
    dry = gc(prefix, keep=1, dry_run=True, now=LATER)
    assert [g.name for g in generations(prefix)] == names
    done = gc(prefix, keep=1, now=LATER)
    assert done == dry
    assert done.removed == (names[2], names[3])
    assert done.kept == {names[0]: "previous", names[1]: "live", names[4]: "recent"}
    assert done.bytes > 0
    assert [g.name for g in generations(prefix)] == [names[0], names[1], names[4]]
    assert verify_environment(prefix).ok  # its links are its own
    (six,) = put(prefix, "six")
    assert six.startswith("0006-")


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("how", ["interpreter", "script", "cwd"])
def test_what_is_in_use_is_not_collected(tmp_path: Path, how: str, pinned: bool) -> None:
    prefix = tmp_path / "env"
    layout = {"mode": "relocatable", "pin-processes": pinned}
    names = []
    options = InstallOptions(prefix=prefix, compile=False)
    names.append(install(*bundle(*sample_items("one"), layout=layout), options, now=NOW).generation)
    wait = "import app, time; print('ready', flush=True); time.sleep(60)"
    argv = {
        "interpreter": [f"{prefix}/bin/python", "-c", wait],
        "script": [f"{os.path.realpath(prefix)}/bin/python", "-c", wait],
        "cwd": ["sh", "-c", 'cd "$1/" && cd -P . && echo ready && sleep 60', "sh", str(prefix)],
    }[how]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for number in ("two", "three", "four"):
                given = bundle(*sample_items(number), layout=layout)
                names.append(install(*given, options, now=NOW).generation)
            done = gc(prefix, keep=0, now=LATER)
            assert "in use by process" in done.kept[names[0]]
            assert names[0] not in done.removed
        finally:
            os.killpg(process.pid, 9)
    assert names[0] in gc(prefix, keep=0, now=LATER).removed
    assert verify_environment(prefix, runner=run).ok


def test_names_of_generations() -> None:
    name = GenerationName.parse("0012-0123456789ab")
    assert name is not None
    assert (name.seq, name.content, str(name)) == (12, "0123456789ab", "0012-0123456789ab")
    for other in (
        "12-0123456789ab",
        "0012-0123456789AB",
        "0012-0123",
        ".stage-x",
        "../0012-0123456789ab",
        "",
    ):
        assert GenerationName.parse(other) is None
    assert GenerationName.parse("10000-0123456789ab") > name  # type: ignore[operator]
