from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbundle.trust.patterns import accepts_anyone, matches, matches_list


@pytest.mark.parametrize(
    ("text", "patterns", "expected"),
    [
        pytest.param("alice@x", "alice@x", True, id="literal"),
        pytest.param("alice@x", "Alice@x", False, id="case counts"),
        pytest.param("alice@x", "*@x", True, id="star"),
        pytest.param("@x", "*@x", True, id="star of nothing"),
        pytest.param("alice@x.y", "*@x", False, id="whole text"),
        pytest.param("ed@x", "?d@x", True, id="question mark"),
        pytest.param("d@x", "?d@x", False, id="question mark needs one"),
        pytest.param("bob@x", "alice@x,bob@x", True, id="second of a list"),
        pytest.param("ed@x", "!ed@x,*@x", False, id="negation first"),
        pytest.param("ed@x", "*@x,!ed@x", False, id="negation last"),
        pytest.param("al@x", "!ed@x,*@x", True, id="negation of another"),
        pytest.param("al@x", "!ed@x", False, id="only a negation"),
        pytest.param("a.c", "a[.]c", False, id="brackets are plain"),
        pytest.param("", "*", True, id="empty text"),
        pytest.param("abcabd", "*ab?", True, id="star goes on after a false start"),
    ],
)
def test_pattern_lists(text: str, patterns: str, expected: bool) -> None:
    assert matches_list(text, patterns) is expected


@given(st.text("ab*?!", max_size=8), st.text("ab", max_size=8))
def test_a_pattern_is_the_regular_expression_it_stands_for(pattern: str, text: str) -> None:
    expression = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern)
    assert matches(text, pattern) == bool(re.fullmatch(expression, text))


def test_many_stars_take_no_exponential_time() -> None:
    assert not matches("a" * 2000, "*a" * 200 + "b")


@pytest.mark.parametrize(("patterns", "expected"), [("a", True), ("!a", False), ("!a,*", True), ("", False)])
def test_a_list_of_negations_accepts_nobody(patterns: str, expected: bool) -> None:
    assert accepts_anyone(patterns) is expected
