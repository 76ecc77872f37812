from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbundle.errors import UserInputError
from envbundle.trust.name_rules import NameRules

from .builders import may_refuse

RULES = b"""
# names               who
sglang-*,!sglang-dev  release@x,alice@x
sglang-dev            bob@x
vllm*\tcarol@x
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("sglang-prod", ("release@x", "alice@x"), id="pattern"),
        pytest.param("sglang-dev", ("bob@x",), id="negated in the first line"),
        pytest.param("vllm", ("carol@x",), id="tab"),
        pytest.param("torch", (), id="no line"),
        pytest.param("", (), id="empty"),
    ],
)
def test_the_first_line_that_accepts_the_name_decides(name: str, expected: tuple[str, ...]) -> None:
    assert NameRules.parse(RULES, source="rules").principals_for(name) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param("\x0b", "0 fields", id="a vertical tab alone"),
        pytest.param("sglang-*", "1 fields", id="names alone"),
        pytest.param("a b c", "3 fields", id="three fields"),
        pytest.param("a *@x", "*", id="wildcard principal"),
        pytest.param("a b@x,!c@x", "!", id="negated principal"),
        pytest.param("a b@x,", "empty", id="comma at the end"),
        pytest.param("!a b@x", "no bundle", id="only a negation"),
    ],
)
def test_faulty_lines(line: str, says: str) -> None:
    with pytest.raises(UserInputError) as caught:
        NameRules.parse(b"# rules\n" + line.encode() + b"\nok a@x\nbad\n", source="rules")
    assert caught.value.code == "E-SIGN-POLICY"
    assert [finding.subject for finding in caught.value.findings] == ["rules:2", "rules:4"]
    assert says in caught.value.found


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with may_refuse("E-SIGN-POLICY"):
        rules = NameRules.parse(text.encode("utf-8", "surrogatepass"), source="rules")
        assert all(who for _, who in rules.rules)
