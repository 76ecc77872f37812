"""Accepting gaps: the exemption is there, everything else is as it was, comments included."""

from __future__ import annotations

from dataclasses import replace
from difflib import SequenceMatcher
from fnmatch import fnmatchcase

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbundle.spec.manifest import Manifest, PackagePolicy
from envbundle.spec.manifest_edit import accept_gaps, exemption_lines
from envbundle.spec.manifest_render import render_manifest
from envbundle.spec.manifest_text import parse_manifest

from .manifests import manifests, paths, words

TEXT = """\
# top
[bundle]
name = "d"   # name
version = "1"
python = "3.12"

# first
[target.sm_90]
gpu = "sm_90"  # h
platform = "x86_64-manylinux_2_39"
{own}
# second
[target.sm_100]
gpu = "sm_100"
platform = "x86_64-manylinux_2_39"
# end of it

[[overlay]]  # o
distribution = "x"
path = "p"
"""
SHAPES = {
    "nothing there": "",
    "another package": '\n[target.sm_90.package.foo]\ncoverage="files" # c\n',
    "package without exempt": '\n[target.sm_90.package.foo-bar]\ncoverage="files" # c\n# behind\n',
    "package with nothing": "\n[target.sm_90.package.foo_bar]\n",
    "one line": '\n[target.sm_90.package.foo-bar]\nexempt = ["a"] # c2\n',
    "another spelling": '\n[target.sm_90.package."Foo.Bar"]\nexempt = []\n',
    "many lines": '\n[target.sm_90.package.foo-BAR]\nexempt = ["a", # c1\n  "b", # c2\n]\n',
    "many lines, no last comma": '\n[target.sm_90.package.foo-bar]\nexempt = [\n  "a", # c1\n  "b" # c2\n]\n',
    "inline": "package = {foo-bar={exempt=['z']}} # i\n",
    "inline without it": "package = {} # i\n",
    "inline without exempt": "package = {foo-bar={coverage='any'}} # i\n",
    "dotted": 'package.foo-bar.exempt = ["q"] # d\n',
    "dotted, another": 'package.foo.coverage="any" # d\n',
    "with an index": '\n[[target.sm_90.index]]\nname="x"\nurl="https://e.example/s" # u\n',
    "with a build": '\n[target.sm_90.package.foo-bar.build]\nsource="x" # b\n',
    "text that looks like a table": '\n[target.sm_90.package.foo.build]\nsource="x"\nenv.A="""[target.sm_90.package.foo-bar]""" # t\n',
}  # fmt: skip
GAPS = [("Foo_Bar", "sgl/x[1]*.so"), ("foo.bar", "b.so")]


def exempted(manifest: Manifest, target: str, name: str, patterns: tuple[str, ...]) -> Manifest:
    specs = []
    for spec in manifest.targets:
        policies = dict(spec.packages)
        if spec.target.name == target:
            policy = policies.get(name, PackagePolicy())
            policies[name] = replace(policy, exempt=(*policy.exempt, *patterns))
        specs.append(replace(spec, packages=tuple(sorted(policies.items(), key=lambda item: item[0]))))
    return replace(manifest, targets=tuple(specs))


def comments(text: str) -> list[str]:
    return [line.partition("#")[2].strip() for line in text.splitlines() if "#" in line]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("own", SHAPES.values(), ids=SHAPES)
def test_a_gap_is_added_and_nothing_else_changes(own: str, line_end: str) -> None:
    text = TEXT.format(own=own).replace("\n", line_end)
    edited = accept_gaps(text, "sm_90", GAPS)
    expected = exempted(parse_manifest(text), "sm_90", "foo-bar", ("sgl/x[[]1][*].so", "b.so"))
    assert parse_manifest(edited) == expected
    assert comments(edited) == comments(text)
    assert accept_gaps(edited, "sm_90", [*GAPS, GAPS[0]]) == edited
    # every line that was there is there still, in its order, but for the one that was added to
    matching = SequenceMatcher(
        None, text.splitlines(), edited.splitlines(), autojunk=False
    ).get_matching_blocks()
    assert sum(block.size for block in matching) >= len(text.splitlines()) - 1


def test_a_new_table_stands_below_its_target_and_above_the_next_one_s_comment() -> None:
    edited = accept_gaps(TEXT.format(own=""), "sm_90", GAPS)
    added = '\n[target.sm_90.package.foo-bar]\nexempt = ["sgl/x[[]1][*].so", "b.so"]\n'
    assert edited == TEXT.format(own=added)


def test_the_last_line_may_lack_its_end() -> None:
    text = TEXT.format(own="").split("\n# second")[0].rstrip("\n")
    edited = accept_gaps(text, "sm_90", [("a.b", "x.so")])
    assert edited == text + '\n\n[target.sm_90.package.a-b]\nexempt = ["x.so"]\n'


def test_an_unknown_target_is_a_wrong_call() -> None:
    with pytest.raises(KeyError):
        accept_gaps(TEXT.format(own=""), "sm_120", GAPS)


def test_the_lines_to_add_by_hand_are_toml_that_matches_the_files_alone() -> None:
    lines = exemption_lines("sm_90", "Foo.Bar", ['a"b[1].so'])
    assert lines == ("[target.sm_90.package.foo-bar]", 'exempt = ["a\\"b[[]1].so"]')


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    manifests(),
    st.lists(st.tuples(words, paths.filter(lambda p: p[0] != "/")), min_size=1, max_size=3),
    st.data(),
)
def test_any_manifest_takes_any_gap(
    manifest: Manifest, gaps: list[tuple[str, str]], data: st.DataObject
) -> None:
    target = data.draw(st.sampled_from(manifest.targets)).target.name
    text = render_manifest(
        manifest, comments={"bundle": "kept", f"target.{target}": "kept too", "layout": "and this"}
    )
    edited = accept_gaps(text, target, gaps)
    again = parse_manifest(edited)
    assert [x for x in edited.split("\n") if x[:1] == "#"] == [x for x in text.split("\n") if x[:1] == "#"]
    for name, path in gaps:
        assert any(fnmatchcase(path, pattern) for pattern in again.policy(target, name).exempt)
    without = [replace(spec, packages=()) for spec in manifest.targets]
    assert replace(again, targets=()) == replace(manifest, targets=())
    assert [replace(spec, packages=()) for spec in again.targets] == without
    assert accept_gaps(edited, target, gaps) == edited
