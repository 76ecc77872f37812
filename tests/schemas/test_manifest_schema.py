"""The manifest's schema and its parser agree: on good manifests, and on every fault of structure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbundle import schemas
from envbundle.errors import UserInputError
from envbundle.spec.invariants import KINDS
from envbundle.spec.manifest import COVERAGE_POLICIES, Manifest
from envbundle.spec.manifest_render import render_manifest
from envbundle.spec.manifest_template import manifest_template
from envbundle.spec.manifest_text import parse_manifest
from envbundle.spec.toml_text import read_toml
from tests.spec.manifests import manifests
from tests.spec.test_manifest_faults import ROWS, marked
from tests.spec.test_manifest_text import ACCEPTED, FULL, SMALL

from .validators import faults, mutations

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# What a schema cannot say: how two places belong together, the grammar of PEP 508 and PEP 440, URLs, names.
PARSER_ONLY = {
    *(row for row, (code, _, _) in ROWS.items() if code in ("E-CONTRADICTION", "E-CREDENTIALS")),
    *(
        "requirement",
        "requirement that is an option",
        "requirement that is an sdist",
        "no wheel's name",
        "marker",
    ),
    *("constraint with extras", "index port", "overlay base", "exempt glob", "build without revision"),
    *("prefix with dots", "regular expression", "module name", "group of one twice"),
} - {"check of nothing", "check of both"}


@pytest.mark.parametrize("row", ROWS)
def test_schema_and_parser_refuse_the_same_structure(row: str) -> None:
    text, _ = marked(ROWS[row][2])
    assert bool(faults("manifest", read_toml(text, filename=row))) == (row not in PARSER_ONLY)


@pytest.mark.parametrize(
    "text", [SMALL, FULL, manifest_template(), *(SMALL + more for more in ACCEPTED.values())]
)
def test_what_the_parser_reads_the_schema_takes(text: str) -> None:
    parse_manifest(text)
    assert faults("manifest", read_toml(text, filename="m")) == []


def test_the_schema_takes_the_template_with_every_setting_in_use() -> None:
    text = re.sub(r"(?m)^#(?=[A-Za-z\[])", "", manifest_template())
    assert faults("manifest", read_toml(text, filename="m")) == []


@few
@given(manifests())
def test_whatever_the_parser_accepts_the_schema_accepts(manifest: Manifest) -> None:
    assert faults("manifest", read_toml(render_manifest(manifest), filename="m")) == []


@few
@given(manifests(), st.data())
def test_any_broken_structure_is_refused_by_both(manifest: Manifest, data: st.DataObject) -> None:
    value = read_toml(render_manifest(manifest), filename="m")
    broken = [item for item in mutations(value) if not item[0].endswith("is gone")]
    what, changed = data.draw(st.sampled_from(broken))
    assert faults("manifest", changed), what
    with pytest.raises(UserInputError):
        parse_manifest(tomlkit.dumps(changed))


def test_a_missing_member_is_judged_alike_by_both() -> None:
    value = read_toml(FULL, filename="m")
    # without these the rest contradicts itself, which only the parser sees
    dependent = {("layout", "prefix"), ("resolve", "index"), ("resolve", "index", 0, "name")}
    judged = 0
    for what, changed in mutations(value):
        if not what.endswith("is gone") or any(what.startswith(str(path)) for path in dependent):
            continue
        try:
            parse_manifest(tomlkit.dumps(changed))
            refused = False
        except UserInputError as fault:
            refused = {f.code for f in fault.findings} != {"E-CONTRADICTION"} or "check" in what
        assert bool(faults("manifest", changed)) == refused, what
        judged += 1
    assert judged > 60


def test_the_schema_lists_the_parser_s_choices() -> None:
    definitions = schemas.load("manifest")["definitions"]
    assert tuple(definitions["package"]["properties"]["coverage"]["enum"]) == COVERAGE_POLICIES
    assert definitions["invariant"]["properties"]["kind"]["enum"] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_mirrors_the_table_of_invariants(kind: str) -> None:
    branches = schemas.load("manifest")["definitions"]["invariant"]["allOf"]
    (branch,) = [b["then"] for b in branches if b["if"]["properties"]["kind"]["const"] == kind]
    rule = KINDS[kind]
    assert set(branch["properties"]) - {"kind"} == set(rule.fields)
    assert set(branch["required"]) - {"kind"} == {
        name for name, field in rule.fields.items() if field.required
    }
    for name, field in rule.fields.items():
        assert tuple(branch["properties"][name].get("enum", ())) == field.choices


def test_the_examples_of_the_docs_are_manifests() -> None:
    page = (Path(__file__).parents[2] / "docs" / "manifest-rules.md").read_text(encoding="utf-8")
    examples = re.findall(r"(?s)```toml\n(.*?)```", page)
    assert len(examples) >= 2
    for example in examples:
        parse_manifest(example, filename="docs/manifest-rules.md")
        assert faults("manifest", read_toml(example, filename="docs/manifest-rules.md")) == []
