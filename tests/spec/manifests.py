"""Hypothesis strategies for whole manifests that must be readable, and texts with known positions."""

from __future__ import annotations

from hypothesis import strategies as st

from envbundle.spec.manifest import (
    Build,
    Check,
    Group,
    IndexSource,
    Invariant,
    Layout,
    Manifest,
    Overlay,
    PackagePolicy,
    Resolve,
    Source,
    TargetSpec,
)
from envbundle.spec.target import Arch, Target

# characters that a careless writer or reader of TOML gets wrong
texts = st.text(st.sampled_from("ab Z09-_.\"'\\#=[]{},é☃\U0001f409"), min_size=1, max_size=12)
paths = st.lists(
    texts.map(lambda t: t.replace("\\", "_")).filter(lambda t: t not in (".", "..")), min_size=1, max_size=3
).map("/".join)
words = st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,4})?", fullmatch=True)
variables = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)
versions = st.sampled_from(["1", "2.9.0", "1.0rc1", "2.9.0+cu130", "0.5.9.post1"])
gpus = st.sampled_from(["sm_75", "sm_80", "sm_90", "sm_100", "sm_103", "sm_120"])
platforms = st.sampled_from(["x86_64-manylinux_2_28", "x86_64-manylinux_2_39", "aarch64-manylinux_2_39"])
drivers = st.sampled_from(["580", "580.65.06"])
glibcs = st.sampled_from(["2.28", "2.34", "2.39"])


def tuples(
    items: st.SearchStrategy[str], *, least: int = 0, most: int = 3
) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(items, min_size=least, max_size=most, unique=True).map(tuple)


def tables(
    keys: st.SearchStrategy[str], values: st.SearchStrategy[str]
) -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    return st.dictionaries(keys, values, max_size=3).map(lambda d: tuple(sorted(d.items())))


requirements = st.builds(
    lambda name, end: name + end,
    words,
    st.sampled_from(
        [">=1,<3", "[extra]>=2", "", " @ ./wheels/x-1-py3-none-any.whl", "; python_version < '3.13'"]
    ),
)
policies = st.builds(
    PackagePolicy,
    coverage=st.sampled_from([None, "files", "any"]),
    jit=st.sampled_from([None, "allow", "refuse"]),
    exempt=tuples(paths.filter(lambda p: p[0] != "/")),
    build=st.none()
    | st.builds(
        Build,
        source=st.sampled_from(["src/x", "../x", "x-1.tar.gz", "git+https://h.example/x@v1.0"]),
        env=tables(variables, texts),
        requires=tuples(requirements),
    ),
)
packages = st.dictionaries(words, policies, max_size=2).map(lambda d: tuple(sorted(d.items())))
invariants = st.one_of(
    st.builds(lambda p, t: {"kind": "path", "path": f"/{p}", "type": t}, paths, st.sampled_from(["file", "dir", "any"])),
    st.builds(lambda t, a: {"kind": "tool", "tool": t, "version-args": a, "min": "12.9"}, words, st.lists(texts, max_size=2)),
    st.builds(lambda t: {"kind": "library", "soname": f"lib{t}.so.1"}, words),
    st.builds(
        lambda p, d: {"kind": "model", "path": f"/{p}", "digests": d},
        paths,
        st.dictionaries(paths, st.just("sha256:" + "0" * 64), max_size=2),
    ),
    st.builds(lambda v: {"kind": "driver", "min": v}, drivers),
    st.builds(lambda n, g: {"kind": "gpu", "min-count": n, "arch": [g]}, st.integers(1, 9), gpus),
    st.builds(lambda n: {"kind": "space", "bytes": n}, st.integers(1, 2**60)),
    st.builds(lambda n: {"kind": "env", "name": n, "matches": "[0-9]+"}, variables),
).map(lambda d: Invariant(kind=str(d.pop("kind")), fields=tuple(sorted(d.items()))))  # fmt: skip
checks = st.one_of(
    st.builds(Check, imports=tuples(st.sampled_from(["a", "b.c", "_d"]), least=1), timeout=st.integers(1, 9)),
    st.builds(
        Check,
        run=st.lists(texts, min_size=1, max_size=3).map(tuple),
        network=st.sampled_from(["denied", "allowed"]),
    ),
)


@st.composite
def resolves(draw: st.DrawFn, prefix: str, *, common: bool) -> Resolve:
    names = draw(tuples(words, most=2))
    names = tuple(f"{prefix}-{name}" for name in names)
    indexes = tuple(
        IndexSource(name=name, url=f"https://{name}.example/simple", explicit=draw(st.booleans()))
        for name in names
    )
    sources = draw(tables(words, st.sampled_from(names))) if names else ()
    return Resolve(
        requirements=draw(tuples(requirements)),
        requirement_files=draw(tuples(paths.filter(lambda p: p[0] != "-"))),
        constraints=draw(tuples(st.sampled_from(["a<3", "limits.txt", "b.c!=1.0"]))),
        find_links=draw(tuples(st.sampled_from(["wheels", "../more wheels", "https://h.example/links"]))),
        max_tries=draw(st.integers(1, 9)) if common else 5,
        indexes=indexes,
        sources=sources,
    )


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """A manifest without faults, over every section."""
    python = draw(st.sampled_from(["3.10", "3.12", "3.14"]))
    specs = []
    for name in draw(st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), min_size=1, max_size=3, unique_by=lambda n: n.replace("_", ""))):  # fmt: skip
        target = Target(
            name=name,
            gpus=tuple(map(Arch, draw(tuples(gpus)))),
            python=python,
            platform=draw(platforms),
            glibc=draw(glibcs),
            driver=draw(st.none() | drivers),
            offline=draw(st.booleans()),
        )
        specs.append(
            TargetSpec(
                target=target, resolve=draw(resolves(f"t-{name}", common=False)), packages=draw(packages)
            )
        )
    overlaid = draw(tuples(words))
    overlays = tuple(
        Overlay(
            distribution=name,
            path=draw(paths),
            base=draw(st.none() | versions),
            mode=(mode := draw(st.sampled_from(["merge", "replace"]))),  # type: ignore[arg-type]
            remove=draw(tuples(paths)) if mode == "merge" else (),
        )
        for name in overlaid
    )
    prefix = draw(st.none() | st.sampled_from(["/opt/env", "/a b/ünï", "/root/venv_sglang211"]))
    return Manifest(
        name=draw(st.sampled_from(["demo", "a.b-c_d", "0"])),
        version=draw(st.sampled_from(["1", "1.0+x", "2026!1"])),
        python=python,
        serial=draw(st.none() | st.integers(0, 2**63 - 1)),
        resolve=draw(resolves("c", common=True)),
        targets=tuple(specs),
        overlays=overlays,
        packages=draw(packages),
        layout=Layout(
            prefix=prefix,
            mode="relocatable" if prefix is None else draw(st.sampled_from(["fixed", "relocatable"])),
            interpreter=(interpreter := draw(st.sampled_from(["host", "bundled"]))),  # type: ignore[arg-type]
            interpreter_path=draw(st.none() | st.just("/usr/bin/python3.12"))
            if interpreter == "host"
            else None,
            pin_processes=draw(st.booleans()),
        ),
        invariants=draw(st.lists(invariants, max_size=3).map(tuple)),
        environment=draw(tables(variables, texts)),
        checks=draw(st.lists(checks, max_size=2).map(tuple)),
        groups=draw(
            st.lists(tuples(words, least=2), max_size=2).map(
                lambda g: tuple(Group(same_version=n) for n in g)
            )
        ),
        source=draw(
            st.none()
            | st.builds(
                Source,
                gpus=tuples(gpus),
                driver=st.none() | drivers,
                glibc=st.none() | glibcs,
                python=st.sampled_from([None, "3.12", "3.12.3"]),
                checks=st.dictionaries(texts, st.booleans(), max_size=2).map(
                    lambda d: tuple(sorted(d.items()))
                ),
            )
        ),
    )
