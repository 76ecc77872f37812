"""Who provides a contested path; every refusal names the claimants."""

from __future__ import annotations

import pytest

from envbundle.bundler.precedence import decide
from envbundle.errors import VerdictError
from envbundle.spec.digest import Digest
from envbundle.spec.layer import BaseFile, Layer, LayerEntry, sort_entries

SITE = "lib/python3.12/site-packages"


def file(path: str, data: bytes = b"x", mode: int = 0o644) -> LayerEntry:
    return LayerEntry(path=path, mode=mode, size=len(data), sha256=Digest.of(data), inline=data)


def point(name: str, reference: str) -> LayerEntry:
    return LayerEntry(path=f"scripts/{name}", type="entry-point", mode=0o755, reference=reference)


def dist(name: str, *entries: LayerEntry) -> Layer:
    return Layer(kind="distribution", distribution=name, version="1", entries=sort_entries(entries))


def over(name: str, *entries: LayerEntry, removes: dict[str, bytes] | None = None) -> Layer:
    gone = tuple(BaseFile(path=path, sha256=Digest.of(data)) for path, data in (removes or {}).items())
    return Layer(kind="overlay", distribution=name, version="1", entries=sort_entries(entries), removes=gone)


X = file("purelib/x.py", b"one")
Y = file("purelib/x.py", b"two")


@pytest.mark.parametrize(
    ("layers", "winners", "provides"),
    [
        pytest.param(
            [dist("a", X), dist("b", file("purelib/y.py"))], {}, {}, id="nothing contested, nothing said"
        ),
        pytest.param([dist("a", X), dist("b", X)], {}, {f"{SITE}/x.py": 0}, id="equal bytes: the first"),
        pytest.param(
            [dist("a", X), dist("b", Y)], {f"{SITE}/x.py": "b"}, {f"{SITE}/x.py": 1}, id="the winner"
        ),
        pytest.param([dist("a", X), over("a", Y)], {}, {f"{SITE}/x.py": 1}, id="the overlay"),
        pytest.param(
            [dist("a", X), dist("b", Y), over("a", file("purelib/x.py", b"three"))],
            {f"{SITE}/x.py": "b"},
            {f"{SITE}/x.py": 1},
            id="the winner before another's overlay",
        ),
        pytest.param(
            [dist("a", X), dist("b", Y), over("a", file("purelib/x.py", b"three"))],
            {f"{SITE}/x.py": "a"},
            {f"{SITE}/x.py": 2},
            id="the winner's overlay before the winner",
        ),
        pytest.param(
            [dist("a", X), dist("b", Y), over("a", Y)],
            {},
            {f"{SITE}/x.py": 1},
            id="an overlay that makes bytes equal",
        ),
        pytest.param(
            [dist("a", X), over("a", removes={X.path: b"one"})], {}, {f"{SITE}/x.py": None}, id="removed"
        ),
        pytest.param(
            [dist("a", X), dist("b", Y), over("a", removes={X.path: b"one"})],
            {},
            {f"{SITE}/x.py": 1},
            id="removed, and the other's then",
        ),
        pytest.param(
            [dist("a", X), dist("b", file("platlib/x.py", b"one"))],
            {},
            {f"{SITE}/x.py": 0},
            id="two schemes, one place",
        ),
        pytest.param(
            [dist("a", file("scripts/python")), over("a", removes={"scripts/python": b"x"})],
            {},
            {"bin/python": None},
            id="a reserved path, removed",
        ),
        pytest.param(
            [dist("a", file("scripts/t", b"s")), dist("b", file("scripts/t", b"s", 0o755))],
            {},
            {"bin/t": 1},
            id="equal bytes: one that may be executed",
        ),
        pytest.param(
            [dist("a", point("t", "m:f")), dist("b", point("t", "m:f"))], {}, {"bin/t": 0}, id="entry points"
        ),
        pytest.param(
            [dist("a", file("data/share/m", b"1")), dist("b", file("data/share/m", b"2"))],
            {"share/m": "a"},
            {"share/m": 0},
            id="outside site-packages",
        ),
    ],
)
def test_provider(layers: list[Layer], winners: dict[str, str], provides: dict[str, int | None]) -> None:
    assert decide(layers, python="3.12", winners=winners).provides == provides


@pytest.mark.parametrize(
    ("layers", "code", "said"),
    [
        pytest.param(
            [dist("a", X), dist("b", Y)],
            "E-OVERLAP",
            ["a 1", "b 1", str(X.sha256), str(Y.sha256)],
            id="bytes",
        ),
        pytest.param(
            [dist("a", point("t", "m:f")), dist("b", point("t", "n:f"))],
            "E-OVERLAP",
            ["m:f", "n:f"],
            id="entry points",
        ),
        pytest.param(
            [dist("a", file("scripts/t")), dist("b", point("t", "n:f"))],
            "E-OVERLAP",
            ["n:f"],
            id="script and entry point",
        ),
        pytest.param(
            [dist("a", file("purelib/p")), dist("b", file("purelib/p/q/r.py"))],
            "E-OVERLAP",
            ["a 1 has a file", "p/q/r.py"],
            id="a file that another needs as a folder",
        ),
        pytest.param(
            [dist("a", X), dist("b", X), over("a", Y)],
            "E-OVERLAP",
            ["overlay of a 1", "b 1"],
            id="overlay and another",
        ),
        pytest.param(
            [dist("a", X), dist("b", X), over("a", Y), over("b", file("purelib/x.py", b"three"))],
            "E-OVERLAP",
            ["overlay of a", "overlay of b"],
            id="two overlays",
        ),
        pytest.param(
            [dist("a", X, file("platlib/x.py", b"one"))],
            "E-OVERLAP",
            ["purelib/x.py", "platlib/x.py"],
            id="twice in one",
        ),
        *(
            pytest.param([dist("a", file(path))], "E-RESERVED-PATH", ["a 1"], id=path)
            for path in (
                "scripts/python",
                "scripts/python3",
                "scripts/python3.12",
                "scripts/activate",
                "scripts/activate.fish",
                "scripts/Activate.ps1",
                "data/bin/python",
                "data/pyvenv.cfg",
                "data/.envbundle/receipt.json",
                "data/lib64",
                "data/lib64/libx.so",
                "data/bin",
                "data/lib/python3.12/site-packages",
                "purelib/~envbundle.pth",
                "purelib/00_envbundle.pth",
                "purelib/_envbundle_pin.py",
            )
        ),
    ],
)
def test_refused(layers: list[Layer], code: str, said: list[str]) -> None:
    with pytest.raises(VerdictError) as caught:
        decide(layers, python="3.12", winners={})
    finding = caught.value.findings[0]
    assert finding.code == code
    assert all(text in finding.found for text in said), finding.found


@pytest.mark.parametrize(
    "path",
    ["scripts/python-config-tool", "scripts/pythonize", "data/bin/activate-global", "data/x/pyvenv.cfg"],
)
def test_names_that_only_look_reserved(path: str) -> None:
    assert decide([dist("a", file(path))], python="3.12", winners={}).provides == {}


def test_all_conflicts_are_said_at_once() -> None:
    layers = [dist("a", X, file("data/m", b"1")), dist("b", Y, file("data/m", b"2"), file("scripts/python"))]
    with pytest.raises(VerdictError) as caught:
        decide(layers, python="3.12", winners={})
    assert [f.subject for f in caught.value.findings] == ["bin/python", f"{SITE}/x.py", "m"]


def test_names_that_differ_by_case_are_noted() -> None:
    found = decide(
        [dist("a", file("purelib/Read.py")), dist("b", file("purelib/read.py"))], python="3.12", winners={}
    )
    assert [(f.code, f.subject, f.found) for f in found.findings] == [
        ("W-CASE", f"{SITE}/read.py", f"{SITE}/Read.py")
    ]
