"""Schemas of the answers of ``--json``: they take the examples of docs/format.md and what the verbs return."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from envbundle import schemas
from envbundle.api.copy import CopyAnswer
from envbundle.api.install import InstallAnswer
from envbundle.api.lock import LockAnswer, TargetLock
from envbundle.api.pack import PackAnswer, PackedBundle
from envbundle.api.verify import VerifyAnswer
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding

from .validators import at, faults, places

VERBS = [name.partition("/")[2] for name in schemas.names() if name.startswith("answers/")]
REFUSAL = Finding(code="E-ARCH-NONE", severity="error", subject="a", expected="b", found="c", hint="d")
ID = str(Digest.of(b"id"))


def example(verb: str) -> dict[str, Any]:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"(?s)\n`{verb}`:\n\n```json\n(.*?)\n```", page)
    value: dict[str, Any] = json.loads(text)
    return value


def test_every_verb_of_the_design_has_its_schema() -> None:
    assert VERBS == ["copy", "inspect", "install", "lock", "pack", "verify"]


@pytest.mark.parametrize("verb", VERBS)
def test_the_documented_example_is_valid(verb: str) -> None:
    assert faults(f"answers/{verb}", example(verb)) == []


@pytest.mark.parametrize("verb", VERBS)
def test_no_documented_key_may_be_missing_or_of_another_type(verb: str) -> None:
    value = example(verb)
    optional = ("kernels_missing", "versions", "rpath", "needs")
    maps = ("verdicts", "targets", "bundles", "versions")  # their keys are names
    refused = 0
    for path in places(value):
        if any(part in path for part in optional):
            continue
        changed = copy.deepcopy(value)
        at(changed, path[:-1])[path[-1]] = {"zz": []}
        assert faults(f"answers/{verb}", changed), path
        refused += 1
        if isinstance(path[-1], str) and not (len(path) > 1 and path[-2] in maps):
            changed = copy.deepcopy(value)
            del at(changed, path[:-1])[path[-1]]
            assert faults(f"answers/{verb}", changed), path
    assert refused > 5


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_that_failed_says_why_and_nothing_else(verb: str) -> None:
    assert faults(f"answers/{verb}", {"findings": [REFUSAL.to_dict()]}) == []
    assert faults(f"answers/{verb}", {"findings": []})
    assert faults(f"answers/{verb}", {})


ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing copied": ("copy", CopyAnswer(results=(), findings=()).to_dict()),
    "preflight alone": (
        "install",
        InstallAnswer(
            status="checked", bundle=ID, content_id=ID, prefix="/p", signature="verified"
        ).to_dict(),
    ),
    "one refused, one written": (
        "lock",
        LockAnswer(
            targets={
                "a": TargetLock(path="pylock.a.toml", status="refused", findings=(REFUSAL,)),
                "b": TargetLock(path="pylock.b.toml", status="written", packages=3, rounds=2),
            }
        ).to_dict(),
    ),
    "one refused, one packed": (
        "pack",
        PackAnswer(
            bundles={
                "a": PackedBundle(findings=(REFUSAL,)),
                "b": PackedBundle(id=ID, content_id=ID, tag="demo-1-b", layers=1),
            }
        ).to_dict(),
    ),
    "a store": ("verify", VerifyAnswer(kind="bundle", ok=True, signature="not judged").to_dict()),
}


@pytest.mark.parametrize(("verb", "value"), ANSWERS.values(), ids=ANSWERS)
def test_what_a_verb_returns_is_valid(verb: str, value: dict[str, Any]) -> None:
    answer = json.loads(json.dumps({**value, "findings": [REFUSAL.to_dict()]}))
    assert faults(f"answers/{verb}", answer) == []


def test_a_packed_bundle_needs_its_id() -> None:
    value = {"bundles": {"a": PackedBundle(tag="demo-1-a").to_dict()}, "findings": []}
    assert faults("answers/pack", value)
