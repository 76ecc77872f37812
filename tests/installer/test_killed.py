"""B66: kill -9 at any moment leaves the old or the new environment, and the next run finishes.

The kill comes from an audit hook in a forked child: at the Nth call that changes the file system.
"""


from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import IntegrityError
from envbundle.installer.generations import names, remove_generation, rollback
from envbundle.installer.install import install
from envbundle.installer.layout import Prefix
from envbundle.installer.options import InstallOptions
from envbundle.installer.verify import verify_environment
from envbundle.store.memory import MemoryStore

from .builders import LATER, NOW, listing, output, sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHANGES = frozenset(
    (
        "os.mkdir",
        "os.rename",
        "os.symlink",
        "os.link",
        "os.remove",
        "os.chmod",
        "os.rmdir",
        "os.utime",
        "os.truncate",
    )
)


def run_until(number: int, work: Callable[[], object]) -> bool:
    """Do ``work`` in a child that is killed at its ``number``-th change; say whether it came to its end."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
            if event in CHANGES or opens:
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(hook)
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child never returns
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        return True
    assert os.WTERMSIG(status) == signal.SIGKILL
    return False


def test_b66_a_killed_upgrade(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    place = Prefix.of(prefix)
    one, two = sample("one"), sample("two")
    options = InstallOptions(prefix=prefix, compile=False, workers=1)
    install(*one, options, now=NOW)
    seen: set[str] = set()
    stride, number, points = 11, 1, 0
    while True:
        done = run_until(number, lambda: install(*two, options, now=LATER))
        value = output(prefix / "bin/app").split(" ", 1)[0]
        assert value in ("one", "two")
        assert verify_environment(prefix).ok
        seen.add(value)
        again = install(*two, options, now=LATER)
        assert again.status in ("installed", "switched", "unchanged")
        assert output(prefix / "bin/app").startswith("two ")
        assert verify_environment(prefix).ok
        left = [name for name in os.listdir(place.home) if name.startswith((".stage", ".switch"))]
        assert left == []
        if done:
            break
        points += 1
        rollback(prefix, to=names(place)[0], now=LATER)
        for name in names(place)[1:]:
            remove_generation(place, name)
        number += stride
    assert points > 5
    assert seen == {"one", "two"}


def test_b66_a_killed_first_install(tmp_path: Path) -> None:
    given = sample("one")
    number, points = 1, 0
    while True:
        prefix = tmp_path / str(number) / "deep" / "env"
        prefix.parent.parent.mkdir()
        options = InstallOptions(prefix=prefix, compile=False, workers=1)
        done = run_until(number, lambda options=options: install(*given, options, now=NOW))  # type: ignore[misc]
        if not os.path.lexists(prefix):
            assert not done
        else:
            assert verify_environment(prefix).ok
        result = install(*given, options, now=LATER)
        assert output(prefix / "bin/app").startswith("one ")
        assert verify_environment(prefix).ok
        home = prefix.parent / "env.generations"
        assert [name for name in os.listdir(home) if name.startswith((".stage", ".switch"))] == []
        if done:
            assert result.status == "unchanged"
            break
        points += 1
        number += 2 if number < 10 else 13
    assert points > 6


def test_a_failing_run_cleans_up_after_a_killed_one(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    options = InstallOptions(prefix=prefix, compile=False, workers=1)
    assert not run_until(25, lambda: install(*sample("one"), options, now=NOW))
    assert any(name.startswith(".stage") for name in os.listdir(tmp_path / "env.generations"))
    trusted, _ = sample("two")
    with pytest.raises(IntegrityError):
        install(trusted, MemoryStore(), options, now=NOW)
    assert "env.generations" in os.listdir(tmp_path)  # what preflight refuses touches nothing
    given, store = sample("two")
    store.remove(given.descriptor.blobs[given.descriptor.manifest].blob)
    with pytest.raises(IntegrityError):
        install(given, store, options, now=NOW)
    assert listing(tmp_path) == {}
