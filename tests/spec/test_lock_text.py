"""The lock's text: round trip of every value, PEP 751 for others, refusal of everything else."""

from __future__ import annotations

import contextlib
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.pylock import Pylock

from envbundle.errors import EnvbundleError, FormatError, IntegrityError
from envbundle.spec.coverage import Counts, Entry
from envbundle.spec.descriptor import Exemption
from envbundle.spec.digest import Digest
from envbundle.spec.lock import (
    Contested,
    DistributionEvidence,
    FileEvidence,
    Lock,
    LockedOverlay,
    LockedPackage,
    LockedWheel,
    OverlayFile,
)
from envbundle.spec.lock_text import lock_filename, parse_lock, render_lock
from envbundle.spec.target import Arch, Target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GPUS = ("sm_90", "sm_103")
digests = st.binary(max_size=4).map(Digest.of)
names = st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,3})?", fullmatch=True)
versions = st.from_regex(r"[1-9]\.[0-9](rc1)?(\+cu1[23]0)?", fullmatch=True)
parts = st.text(
    st.characters(blacklist_characters="/\\\0\x7f", blacklist_categories=["Cs"], min_codepoint=32),
    min_size=1,
    max_size=8,
).filter(lambda part: part not in (".", ".."))
paths = st.lists(parts, min_size=1, max_size=3).map("/".join)
texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
sizes = st.integers(0, 2**40)
small = st.integers(0, 400)
counts = st.builds(
    Counts,
    native=small,
    jit=small,
    missing=small,
    unknown=st.booleans(),
    spare_jit=small,
    spare_missing=small,
)
all_counts = st.tuples(counts, counts).map(lambda pair: tuple(zip(GPUS, pair, strict=True)))
entries = st.builds(
    Entry,
    kind=st.sampled_from(["sass", "ptx", "nvvm"]),
    arch=st.sampled_from(["sm_90a", "compute_80", "sm_100f"]),
    isa=st.none() | st.just("9.0"),
    section=texts,
    modules=small,
)


@st.composite
def packages(draw: st.DrawFn) -> tuple[LockedPackage, ...]:
    made = []
    for name in sorted(draw(st.sets(names, min_size=1, max_size=4))):
        version = draw(versions)
        filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        local = draw(st.booleans())
        made.append(
            LockedPackage(
                name=name,
                version=version,
                origin=draw(st.sampled_from(["published", "built", "installed-tree"])),
                wheel=LockedWheel(
                    filename=filename,
                    sha256=draw(digests),
                    size=draw(sizes),
                    url=None if local else f"https://example.org/f/{filename.replace('+', '%2B')}",
                    path=f"wheels/{filename}" if local else None,
                    index=None if local else draw(st.none() | st.just("https://example.org/simple")),
                ),
            )
        )
    return tuple(made)


@st.composite
def overlays(draw: st.DrawFn, base: LockedPackage) -> LockedOverlay:
    named = sorted(draw(st.sets(paths, max_size=5)))
    cut = draw(st.integers(0, len(named)))
    return LockedOverlay(
        distribution=base.name,
        path=draw(paths),
        mode=draw(st.sampled_from(["merge", "replace"])),
        base_version=base.version,
        base_wheel=base.wheel.sha256,
        below=draw(st.sampled_from(["", "pkg/"])),
        files=tuple(
            OverlayFile(
                path=path,
                sha256=draw(digests),
                size=draw(sizes),
                mode=draw(st.sampled_from([0o644, 0o755])),
                replaces=draw(st.none() | digests),
            )
            for path in named[:cut]
        ),
        removes=tuple((path, draw(digests)) for path in named[cut:]),
    )


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    locked = draw(packages())
    first = locked[0]
    files = st.builds(
        FileEvidence, path=paths, entries=st.lists(entries, max_size=2).map(tuple), counts=all_counts
    )
    return Lock(
        target=Target(
            name="t-1",
            gpus=tuple(map(Arch.parse, GPUS)),
            python="3.12",
            platform="x86_64-manylinux_2_39",
            glibc="2.39",
            driver=draw(st.none() | st.just("580.65")),
            offline=draw(st.booleans()),
        ),
        manifest=draw(digests),
        tool=draw(texts),
        rules=draw(texts),
        solver=draw(texts),
        packages=locked,
        overlays=draw(st.just(()) | overlays(first).map(lambda one: (one,))),
        coverage=draw(
            st.lists(
                st.builds(
                    DistributionEvidence,
                    distribution=st.just(first.name),
                    counts=all_counts,
                    files=st.lists(files, max_size=2).map(tuple),
                ),
                max_size=1,
            ).map(tuple)
        ),
        contested=draw(
            st.lists(
                st.builds(
                    Contested,
                    path=paths,
                    claims=st.tuples(st.tuples(st.just("a"), digests), st.tuples(st.just("b"), digests)),
                    winner=st.sampled_from(["a", "b"]),
                ),
                max_size=2,
            ).map(tuple)
        ),
        exemptions=draw(
            st.lists(
                st.builds(
                    Exemption, distribution=names, path=texts, gpu=st.just("sm_90"), verdict=st.just("none")
                ),
                max_size=2,
            ).map(tuple)
        ),
        requires=draw(st.dictionaries(st.sampled_from(["glibc", "driver", "odd key"]), texts, max_size=2)),
    )


relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(locks())
@relaxed
def test_a_lock_reads_back_as_itself_and_others_read_it_as_pep_751(lock: Lock) -> None:
    text = render_lock(lock)
    assert parse_lock(text) == lock
    assert render_lock(parse_lock(text)) == text
    pylock = Pylock.from_dict(tomllib.loads(text))
    assert [package.name for package in pylock.packages] == [package.name for package in lock.packages]


@given(locks(), st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_lock_is_refused_or_another_lock_and_never_a_traceback(
    lock: Lock, data: st.DataObject
) -> None:
    text = render_lock(lock)
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = (
        text[:at] + data.draw(st.sampled_from(["", "x", '"', "[", "\n", "0", "=", "\x00"])) + text[at + 1 :]
    )
    with contextlib.suppress(EnvbundleError):
        parse_lock(damaged)


D = Digest.of(b"")
GOOD = render_lock(
    Lock(
        target=Target(
            name="t", gpus=(Arch("sm_90"),), python="3.12", platform="x86_64-manylinux_2_39", glibc="2.39"
        ),
        manifest=D,
        tool="envbundle 1",
        rules="1",
        solver="uv 1",
        packages=(
            LockedPackage(
                name="a",
                version="1.0",
                wheel=LockedWheel(
                    filename="a-1.0-py3-none-any.whl", sha256=D, size=3, path="wheels/a-1.0-py3-none-any.whl"
                ),
            ),
        ),
        overlays=(
            LockedOverlay(
                distribution="a",
                path="overlays/a",
                mode="merge",
                base_version="1.0",
                base_wheel=D,
                files=(OverlayFile(path="a/x.py", sha256=D, size=1, replaces=D),),
            ),
        ),
        coverage=(DistributionEvidence(distribution="a", counts=(("sm_90", Counts(native=1)),)),),
        contested=(Contested(path="lib/x", claims=(("a", D), ("b", D)), winner="a"),),
    )
)

BAD = {
    "path above": ('path = "wheels/a-1.0', 'path = "../wheels/a-1.0', "E-PATH"),
    "absolute path": ('path = "wheels/a-1.0', 'path = "/wheels/a-1.0', "E-PATH"),
    "overlay path above": ('path = "a/x.py"', 'path = "../x.py"', "E-PATH"),
    "overlay folder above": ('path = "overlays/a"', 'path = "../a"', "E-PATH"),
    "contested path above": ('path = "lib/x"', 'path = "lib/../../x"', "E-PATH"),
    "unknown key of ours": ('solver = "uv 1"', 'solver = "uv 1"\nextra = 1', "E-FORMAT"),
    "unknown key of a package": ('version = "1.0"', 'version = "1.0"\nodd = 1', "E-FORMAT"),
    "verdict that the numbers deny": ("native: 1 native", "none: 1 native", "E-FORMAT"),
    "no sha256": ("sha256 = ", "sha512 = ", "E-FORMAT"),
    "short digest": (D.hex, D.hex[1:], "E-FORMAT"),
    "negative size": ("size = 3", "size = -3", "E-FORMAT"),
    "another name in the file name": ('name = "a"\n', 'name = "b"\n', "E-FORMAT"),
    "winner that claims nothing": ('winner = "a"', 'winner = "c"', "E-FORMAT"),
    "overlay of nothing": (
        'distribution = "a"\npath = "overlays',
        'distribution = "z"\npath = "overlays',
        "E-FORMAT",
    ),
    "newer form": ("lock-format = 1", "lock-format = 2", "E-FORMAT-VERSION"),
    "newer pylock": ('lock-version = "1.0"', 'lock-version = "2.0"', "E-FORMAT-VERSION"),
    "no toml": ("[tool.envbundle]", "[tool.envbundle", "E-FORMAT"),
    "a date": ('rules = "1"', "rules = 2026-12-01", "E-FORMAT"),
    "another tool's": ("tool.envbundle", "tool.other", "E-FORMAT"),
    "mode of its own": ("size = 1", 'size = 1, mode = "777"', "E-FORMAT"),
    "a path and a url": (
        "size = 3",
        'size = 3, url = "https://x.example/a-1.0-py3-none-any.whl"',
        "E-FORMAT",
    ),
}


@pytest.mark.parametrize(("old", "new", "code"), BAD.values(), ids=BAD)
def test_what_a_lock_may_not_say(old: str, new: str, code: str) -> None:
    assert old in GOOD
    with pytest.raises(IntegrityError) as caught:
        parse_lock(GOOD.replace(old, new))
    assert caught.value.code == code


@pytest.mark.parametrize(
    "url", ["https://me:pw@x.example/a-1.0-py3-none-any.whl", "ftp://x.example/a-1.0-py3-none-any.whl"]
)
def test_a_url_holds_no_credentials_and_is_of_a_known_kind(url: str) -> None:
    text = GOOD.replace('path = "wheels/a-1.0-py3-none-any.whl"', f'url = "{url}"')
    with pytest.raises(FormatError) as caught:
        parse_lock(text)
    assert "pw" not in str(caught.value)


def test_the_header_says_what_others_install() -> None:
    head = GOOD.split("\n\n")[0]
    assert "**`uv pip sync` and `pip install -r` install the BASE ONLY" in head


def test_the_file_name_is_one_that_pep_751_allows() -> None:
    assert lock_filename("sm_103") == "pylock.sm_103.toml"
    with pytest.raises(FormatError):
        lock_filename("sm.103")
