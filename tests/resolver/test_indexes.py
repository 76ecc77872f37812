"""Locking against a real index: search, sources, yanked files, local versions, faults, two locks at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import IntegrityError, TransferError, UserInputError
from tests.builders import make_wheel

from .index_server import Index, serving
from .project import GPU_TAG, Project, codes, only

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def other() -> Iterator[Index]:
    with serving() as served:
        yield served


@pytest.fixture
def online(project: Project, index: Index) -> Project:
    """A project whose only index is the served one."""
    project.resolve = f'[[resolve.index]]\nname = "main"\nurl = "{index.simple}"\ndefault = true'
    return project


def plain(online: Project, index: Index, name: str, version: str, **more: object) -> Path:
    path = make_wheel(online.folder.parent / "served", name, version, **more)  # type: ignore[arg-type]
    index.add(path)
    return path


def gpu(online: Project, index: Index, version: str, *texts: str, name: str = "kern") -> Path:
    path = online.gpu_wheel(name, version, {f"{name}/k.so": texts})
    moved = path.rename(online.folder.parent / path.name)
    index.add(moved)
    return moved


@pytest.mark.parametrize("json", [True, False], ids=["json", "html"])
def test_b55_the_lock_names_index_url_digest_and_build(online: Project, index: Index, json: bool) -> None:
    index.json = json
    path = gpu(online, index, "1.2.0+cu130", "sm_100")
    online.requirements = ["kern==1.2.0+cu130"]
    online.target("sm_100")
    assert online.write("sm_100").status == "written"
    (package,) = online.written("sm_100").packages
    assert package.version == "1.2.0+cu130"
    assert package.wheel.index == index.simple
    assert package.wheel.url == f"{index.url}/files/{path.name.replace('+', '%2B')}"
    assert package.wheel.size == path.stat().st_size
    # The bytes are in the cache now: the lock is made again, and packed, without the file on the index.
    index.files.clear()
    from envbundle.host.fetch import HttpFetcher
    from envbundle.resolver.gather import Gatherer

    gatherer = Gatherer(cache=online.cache, fetcher=HttpFetcher(offline=True), offline=True)
    artifact = gatherer.gather_locked(package.wheel, online.folder)
    assert artifact.path.read_bytes() == path.read_bytes()


def test_what_is_asked_for_is_looked_at_before_its_large_dependencies(online: Project, index: Index) -> None:
    for version in ("1.0", "1.1"):
        gpu(online, index, version, "sm_100a")
    served = online.folder.parent / "served"
    index.add(make_wheel(served, "heavy", "3.0", {"heavy/data.bin": bytes(range(256)) * 400}))
    index.add(make_wheel(served, "app", "1.0", requires=["kern", "heavy"]))
    online.requirements = ["app", "kern>=1.0"]
    online.target("sm_103")
    outcome = online.lock("sm_103")
    refused = [f.subject.split("-")[1] for f in outcome.findings if f.code == "E-ARCH-NONE"]
    assert refused == ["1.1", "1.0"]
    fetched = [path for path in (online.cache / "artifacts").iterdir() if path.is_file()]
    assert len(fetched) == 3, "app, and two versions of kern; heavy was left to a round that never came"
    online.target("sm_100")
    assert [p.name for p in online.write("sm_100").lock.packages] == ["app", "heavy", "kern"]  # type: ignore[union-attr]


def test_b55_a_pin_without_build_does_not_slip_silently(online: Project, index: Index) -> None:
    gpu(online, index, "1.2.0+cu128", "sm_100")
    gpu(online, index, "1.2.0+cu130", "sm_100")
    online.requirements = ["kern==1.2.0"]
    online.target("sm_100")
    outcome = online.lock("sm_100")
    finding = only(outcome, "W-LOCAL-VERSION")
    assert (finding.subject, finding.found) == ("kern==1.2.0", "1.2.0+cu130")


def test_b55_a_cpu_build_is_not_taken_and_the_other_index_is_named(
    online: Project, index: Index, other: Index
) -> None:
    gpu(online, index, "2.9.0", name="torch")
    gpu(online, other, "2.9.0+cu130", "sm_103", name="torch")
    online.resolve += f'\n[[resolve.index]]\nname = "cu130"\nurl = "{other.simple}"\nexplicit = true'
    online.requirements = ["torch==2.9.0"]
    online.more = '[package.torch]\ncoverage = "files"'
    online.target("sm_103")
    refused = online.lock("sm_103")
    assert "E-NO-DEVICE-CODE" in codes(refused)
    assert f"2.9.0+cu130 ({other.simple})" in only(refused, "N-PINNED").hint
    online.more += '\n[resolve.from]\ntorch = "cu130"'
    outcome = online.lock("sm_103")
    assert outcome.lock is not None, codes(outcome)
    assert outcome.lock.packages[0].wheel.index == other.simple


def test_an_indirect_requirement_comes_from_its_index_too(
    online: Project, index: Index, other: Index
) -> None:
    plain(online, index, "app", "1.0", requires=["dep>=1"])
    plain(online, index, "dep", "2.0")
    plain(online, other, "dep", "1.0")
    online.resolve += f'\n[[resolve.index]]\nname = "own"\nurl = "{other.simple}"\nexplicit = true'
    online.resolve += '\n[resolve.from]\ndep = "own"'
    online.requirements = ["app"]
    online.target("cpu", "none")
    made = online.lock("cpu").lock
    assert made is not None
    assert [(one.name, one.version, one.wheel.index) for one in made.packages] == [
        ("app", "1.0", index.simple),
        ("dep", "1.0", other.simple),
    ]


def test_the_search_says_what_each_version_lacked(online: Project, index: Index) -> None:
    for version, module in (("0.3.19", "sm_90"), ("0.3.20", "sm_100a"), ("0.3.21", "sm_120")):
        gpu(online, index, version, module)
    online.requirements = ["kern>=0.3.19,<0.3.22"]
    online.target("sm_103")
    outcome = online.lock("sm_103")
    assert outcome.status == "refused"
    assert outcome.rounds == 4
    lacking = {f.subject.split("-")[1]: f.found for f in outcome.findings if f.code == "E-ARCH-NONE"}
    assert {version: text.split(";")[0] for version, text in lacking.items()} == {
        "0.3.19": "has SASS sm_90",
        "0.3.20": "has SASS sm_100a",
        "0.3.21": "has SASS sm_120",
    }
    assert only(outcome, "E-NO-SOLUTION").found


def test_a_version_that_serves_is_found_and_the_others_are_noted(online: Project, index: Index) -> None:
    gpu(online, index, "1.0", "sm_103")
    gpu(online, index, "1.1", "sm_90")
    online.requirements = ["kern"]
    online.target("sm_103")
    outcome = online.lock("sm_103")
    assert outcome.lock is not None
    assert outcome.lock.packages[0].version == "1.0"
    assert outcome.rounds == 2
    assert "E-ARCH-NONE" in only(outcome, "N-PASSED-OVER").found


def test_the_number_of_tries_is_bounded(online: Project, index: Index) -> None:
    for minor in range(6):
        gpu(online, index, f"1.{minor}", "sm_90")
    online.resolve = "max-tries = 2\n" + online.resolve
    online.requirements = ["kern"]
    online.target("sm_103")
    outcome = online.lock("sm_103")
    assert only(outcome, "E-MAX-TRIES").found == "refused: 1.5, 1.4"
    assert len([path for path in (online.cache / "artifacts").iterdir() if path.is_file()]) == 2


def test_an_exact_pin_is_never_moved(online: Project, index: Index) -> None:
    gpu(online, index, "1.0", "sm_103")
    gpu(online, index, "1.1", "sm_90")
    online.requirements = ["kern==1.1"]
    online.target("sm_103")
    outcome = online.lock("sm_103")
    assert outcome.lock is None
    assert outcome.rounds == 1
    assert f"1.0 ({index.simple})" in only(outcome, "N-PINNED").hint


@pytest.mark.parametrize("reason", ["broken build", ""])
def test_b60_a_pinned_yanked_file_is_taken_with_its_reason(
    online: Project, index: Index, reason: str
) -> None:
    path = plain(online, index, "lib", "1.0")
    index.files[path.name].yanked = reason
    online.requirements = ["lib==1.0"]
    online.target("cpu", "none")
    outcome = online.lock("cpu")
    assert outcome.lock is not None, codes(outcome)
    assert only(outcome, "W-YANKED").found == f"yanked: {reason or 'no reason given'}"


def test_b60_a_range_does_not_take_a_yanked_file(online: Project, index: Index) -> None:
    path = plain(online, index, "lib", "1.0")
    index.files[path.name].yanked = "broken build"
    online.requirements = ["lib>=1"]
    online.target("cpu", "none")
    outcome = online.lock("cpu")
    assert outcome.lock is None
    assert only(outcome, "E-YANKED").found == "only yanked ones: broken build"


@pytest.mark.parametrize(
    "tag",
    ["cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_aarch64", "cp312-cp312-win_amd64"],
)
def test_a_wheel_for_another_python_or_platform_only(online: Project, index: Index, tag: str) -> None:
    path = plain(online, index, "lib", "1.0", tag=tag)
    online.requirements = ["lib"]
    online.target("cpu", "none")
    outcome = online.lock("cpu")
    assert outcome.lock is None
    assert only(outcome, "E-NO-WHEEL").found == path.name


def test_an_index_whose_hash_is_not_the_file_s(online: Project, index: Index) -> None:
    path = plain(online, index, "lib", "1.0")
    index.files[path.name].sha256 = "0" * 64
    online.requirements = ["lib"]
    online.target("cpu", "none")
    with pytest.raises(IntegrityError) as caught:
        online.lock("cpu")
    assert caught.value.code == "E-HASH"
    assert caught.value.expected == "sha256:" + "0" * 64
    assert not [kept for kept in (online.cache / "artifacts").rglob("*") if kept.is_file()]


def test_an_index_whose_size_is_not_the_file_s(online: Project, index: Index) -> None:
    path = plain(online, index, "lib", "1.0")
    index.files[path.name].size = 12
    online.requirements = ["lib"]
    online.target("cpu", "none")
    with pytest.raises(IntegrityError) as caught:
        online.lock("cpu")
    assert caught.value.code == "E-SIZE"


def test_an_index_without_hashes_is_hashed_by_us(online: Project, index: Index) -> None:
    index.hashes, index.json = False, False
    path = plain(online, index, "lib", "1.0")
    online.requirements = ["lib"]
    online.target("cpu", "none")
    outcome = online.lock("cpu")
    assert outcome.lock is not None
    assert outcome.lock.packages[0].wheel.size == path.stat().st_size


def test_an_index_that_does_not_answer(project: Project) -> None:
    with serving() as gone:
        url = gone.simple
    project.resolve = f'[[resolve.index]]\nname = "main"\nurl = "{url}"\ndefault = true'
    project.requirements = ["lib"]
    project.target("cpu", "none")
    with pytest.raises(TransferError) as caught:
        project.lock("cpu")
    assert caught.value.code == "E-INDEX-UNREACHABLE"


def test_a_cut_download_refuses_and_the_next_lock_goes_on(online: Project, index: Index) -> None:
    path = plain(online, index, "lib", "1.0", files={"lib/data.bin": bytes(range(256)) * 2000}, level=0)
    online.requirements = ["lib==1.0"]
    online.resolve = "complete = true\n" + online.resolve
    online.target("cpu", "none")
    index.cut_after = 200_000
    with pytest.raises(TransferError) as caught:
        online.lock("cpu")
    assert caught.value.code == "E-DOWNLOAD-CUT"
    assert online.lock("cpu").lock is not None
    assert index.asked(path.name)[-1].endswith("bytes=200000-")


def test_two_locks_on_one_cache_at_once(online: Project, index: Index) -> None:
    for number in range(4):
        plain(online, index, f"lib{number}", "1.0")
    online.requirements = [f"lib{number}==1.0" for number in range(4)]
    online.resolve = "complete = true\n" + online.resolve
    online.target("cpu", "none")
    made = []
    threads = [threading.Thread(target=lambda: made.append(online.lock("cpu"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.status for outcome in made] == ["stale"] * 3
    assert len({str(outcome.lock) for outcome in made}) == 1
    assert len(index.asked("GET /files")) == 4


def test_offline_uses_what_is_there(online: Project, index: Index) -> None:
    from envbundle.host.fetch import HttpFetcher

    plain(online, index, "lib", "1.0")
    online.requirements = ["lib"]
    online.target("cpu", "none")
    first = online.lock("cpu")
    asked = len(index.log)
    again = online.lock("cpu", fetcher=HttpFetcher(offline=True), offline=True, previous=first.lock)
    assert again.status == "unchanged"
    assert len(index.log) == asked


def test_previous_versions_stay_unless_they_are_upgraded(online: Project, index: Index) -> None:
    plain(online, index, "one", "1.0")
    plain(online, index, "two", "1.0")
    online.requirements = ["one", "two"]
    online.target("cpu", "none")
    online.write("cpu")
    previous = online.written("cpu")
    plain(online, index, "one", "1.1")
    plain(online, index, "two", "1.1")

    def versions(**context: object) -> list[str]:
        made = online.lock("cpu", previous=previous, **context).lock
        assert made is not None
        return [package.version for package in made.packages]

    import shutil

    shutil.rmtree(online.cache / "uv")  # an index page lives ten minutes in uv's cache
    assert versions() == ["1.0", "1.0"]
    assert versions(upgrade_packages=("two",)) == ["1.0", "1.1"]
    assert versions(upgrade=True) == ["1.1", "1.1"]


def test_credentials_are_used_and_not_written(
    online: Project, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(online, index, "lib", "1.0")
    index.user = ("me", "s3cret")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    online.requirements = ["lib"]
    online.target("cpu", "none")
    outcome = online.write("cpu")
    assert outcome.status == "written", codes(outcome)
    assert "s3cret" not in online.path("cpu").read_text("utf-8")
    kept = [
        p for p in online.cache.rglob("*") if p.is_file() and "uv" not in p.relative_to(online.cache).parts
    ]
    assert not [p for p in kept if b"s3cret" in p.read_bytes()]


class TestComplete:
    """A full freeze: no solver is asked."""

    def test_pins_are_taken_as_they_are(self, online: Project, index: Index) -> None:
        plain(online, index, "a", "1.0", requires=["b>=99"])  # does not solve, and nobody asks
        plain(online, index, "b", "2.0")
        online.resolve = "complete = true\n" + online.resolve
        online.requirements = ["a==1.0", "b==2.0"]
        online.target("cpu", "none")
        outcome = online.write("cpu")
        assert outcome.status == "written", codes(outcome)
        assert (outcome.rounds, online.written("cpu").solver) == (0, "none (complete)")

    def test_a_long_mixed_freeze(self, online: Project, index: Index) -> None:
        names = [f"nvidia-lib{number}-cu{12 + number % 2}" for number in range(200)]
        for name in names:
            plain(online, index, name, "1.0", files={f"{name}.txt": name})
        (online.folder / "freeze.txt").write_text("".join(f"{name}==1.0  # seen\n" for name in names))
        online.resolve = 'complete = true\nrequirement-files = ["freeze.txt"]\n' + online.resolve
        online.target("cpu", "none")
        outcome = online.lock("cpu")
        assert outcome.packages == 200

    def test_the_best_wheel_for_the_target_is_chosen(self, online: Project, index: Index) -> None:
        for tag in ("py3-none-any", GPU_TAG, "cp311-cp311-manylinux_2_28_x86_64"):
            plain(online, index, "lib", "1.0", tag=tag)
        online.resolve = "complete = true\n" + online.resolve
        online.requirements = ["lib==1.0"]
        online.target("cpu", "none")
        made = online.lock("cpu").lock
        assert made is not None
        assert made.packages[0].wheel.filename == f"lib-1.0-{GPU_TAG}.whl"

    def test_every_missing_pin_is_told_at_once(self, online: Project, index: Index) -> None:
        plain(online, index, "a", "1.0")
        online.resolve = "complete = true\n" + online.resolve
        online.requirements = ["a==1.1", "b==1.0"]
        online.target("cpu", "none")
        found = [(f.subject, f.found) for f in online.lock("cpu").findings if f.code == "E-NO-WHEEL"]
        assert found == [("a==1.1", "versions 1.0"), ("b==1.0", "no wheel of it for the target")]

    def test_two_builds_of_a_pin_need_a_choice(self, online: Project, index: Index) -> None:
        plain(online, index, "a", "1.0+cu128")
        plain(online, index, "a", "1.0+cu130")
        online.resolve = "complete = true\n" + online.resolve
        online.requirements = ["a==1.0"]
        online.target("cpu", "none")
        assert only(online.lock("cpu"), "E-LOCAL-VERSION").found == "1.0+cu130, 1.0+cu128"

    def test_what_is_not_pinned_is_refused(self, online: Project) -> None:
        (online.folder / "freeze.txt").write_text("a==1.0\nb>=2\n")
        online.resolve = 'complete = true\nrequirement-files = ["freeze.txt"]\n' + online.resolve
        online.target("cpu", "none")
        with pytest.raises(UserInputError) as caught:
            online.lock("cpu")
        assert (caught.value.code, caught.value.subject) == ("E-NOT-PINNED", "freeze.txt:2")

    def test_a_hash_chooses_the_file(self, online: Project, index: Index) -> None:
        wanted = plain(online, index, "a", "1.0")
        plain(online, index, "a", "1.0", tag=GPU_TAG)
        from envbundle.spec.digest import Digest

        digest = Digest.of(wanted.read_bytes())
        (online.folder / "freeze.txt").write_text(f"a==1.0 \\\n    --hash={digest}\n")
        online.resolve = 'complete = true\nrequirement-files = ["freeze.txt"]\n' + online.resolve
        online.target("cpu", "none")
        made = online.lock("cpu").lock
        assert made is not None
        assert made.packages[0].wheel.sha256 == digest
