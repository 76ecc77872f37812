"""The scanner of positions: against a writer that knows where it wrote, and against the parser's own keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import UserInputError
from envbundle.spec.toml_positions import KeyPath, Position, dotted, scan
from envbundle.spec.toml_text import decode_toml, read_toml
from envbundle.spec.toml_writer import key_of, value_of

from .manifests import texts

if TYPE_CHECKING:
    from collections.abc import Callable

few = settings(max_examples=60, deadline=None)
bare = st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True)


class Writer:
    """Writes TOML in many styles and notes where each key and element begins."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.text = draw, ""
        self.places: dict[KeyPath, Position] = {}

    def put(self, text: str) -> None:
        self.text += text

    def here(self, path: KeyPath) -> None:
        line = self.text.count("\n") + 1
        self.places.setdefault(path, Position(line, len(self.text) - self.text.rfind("\n")))

    def space(self) -> None:
        self.put(self.draw(st.sampled_from(["", " ", "\t"])))

    def gap(self) -> None:
        """What may stand between array elements."""
        self.put(self.draw(st.sampled_from(["", " ", "\n", ' # ] } , = "\n', "\n\n  "])))

    def key(self, name: str) -> None:
        spelled = [value_of(name)]
        if "'" not in name and name.isprintable():
            spelled.append(f"'{name}'")
        if key_of(name) == name:
            spelled.append(name)
        self.put(self.draw(st.sampled_from(spelled)))

    def dotted(self, path: KeyPath, names: list[str]) -> KeyPath:
        for number, name in enumerate(names):
            if number:
                self.space()
                self.put(".")
                self.space()
            path = (*path, name)
            self.here(path)
            self.key(name)
        return path

    def value(self, path: KeyPath, depth: int) -> None:
        scalars = [
            "1", "-0.5e3", "true", "0xdead_beef", "1979-05-27 07:32:00Z", "1979-05-27", "07:32:00", "inf",
            '"x"', '"a\\"]\\\\"', "'a\\'", '""', '"""a"b""c\\""""', '"""\n[x]\n# y = "\\\n  """', "'''\n'a''b\n'''",
            '""""""', '"""""a"""""', "''''a''''", '"#"', "'[{'",
        ]  # fmt: skip
        kind = self.draw(st.sampled_from(["scalar", "array", "inline"] if depth else ["scalar"]))
        if kind == "scalar":
            self.put(self.draw(st.sampled_from(scalars)))
        elif kind == "array":
            count = self.draw(st.integers(0, 3))
            self.put("[")
            for number in range(count):
                self.gap()
                self.here((*path, number))
                self.value((*path, number), depth - 1)
                self.gap()
                if number < count - 1 or self.draw(st.booleans()):
                    self.put(",")
            self.gap()
            self.put("]")
        else:
            names = self.draw(st.lists(bare | texts, max_size=3, unique=True))
            self.put("{")
            for number, name in enumerate(names):
                self.put(", " if number else " ")
                inner = self.dotted(path, [name])
                self.put(" = ")
                self.value(inner, depth - 1)
            self.put(" }")

    def statements(self, path: KeyPath, names: list[str]) -> None:
        for name in names:
            self.put(self.draw(st.sampled_from(["", "\n", '# [no.table] "\n', "  "])))
            more = self.draw(st.sampled_from([[], ["sub"], ["sub", "a b"]]))
            inner = self.dotted(path, [name, *more])
            self.space()
            self.put("=")
            self.space()
            self.value(inner, 2)
            self.space()
            self.put(self.draw(st.sampled_from(["\n", " # = \" '''\n"])))


@st.composite
def documents(draw: st.DrawFn) -> Writer:
    writer = Writer(draw)
    names = draw(st.lists(bare | texts, max_size=5, unique=True))
    split = draw(st.integers(0, len(names)))
    writer.statements((), names[:split])
    for name in names[split:]:
        kind = draw(st.sampled_from(["table", "nested", "array", "array in array"]))
        inner = draw(st.lists(bare, max_size=2, unique=True).map(lambda n: [f"k{x}" for x in n]))
        if kind in ("table", "nested"):
            writer.put("[")
            writer.space()
            path = writer.dotted((), [name] if kind == "table" else [name, "deep"])
            writer.put("]\n")
            writer.statements(path, inner)
            continue
        for number in range(draw(st.integers(1, 2))):
            writer.put("[[")
            writer.here((name,))
            writer.here((name, number))
            writer.key(name)
            writer.put("]] # x\n")
            writer.statements((name, number), inner)
            if kind == "array in array":
                writer.put("[[")
                writer.key(name)
                writer.put(".")
                writer.here((name, number, "in"))
                writer.here((name, number, "in", 0))
                writer.put("in]]\n")
                writer.statements((name, number, "in", 0), inner)
    return writer


def paths_of(value: Any, path: KeyPath = ()) -> set[KeyPath]:
    found = {path} if path else set()
    if isinstance(value, dict):
        for key, item in value.items():
            found |= paths_of(item, (*path, str(key)))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            found |= paths_of(item, (*path, number))
    return found


@few
@given(documents())
def test_every_key_and_element_is_where_it_was_written(writer: Writer) -> None:
    text = writer.text
    document = read_toml(text, filename="m.toml")
    assert scan(text).places == writer.places
    assert set(writer.places) == paths_of(document)


@few
@given(documents())
def test_line_ends_of_another_system_move_nothing(writer: Writer) -> None:
    text = writer.text.replace("\n", "\r\n")
    read_toml(text, filename="m.toml")
    assert scan(text).places == writer.places


@settings(max_examples=40, deadline=None)
@given(documents())
def test_tomlkit_sees_the_same_keys(writer: Writer) -> None:
    assert paths_of(tomlkit.parse(writer.text).unwrap()) == set(scan(writer.text).places)


@few
@given(st.text(max_size=60))
def test_text_that_is_no_toml_ends_the_scan_and_nothing_else(text: str) -> None:
    scan(text)


@few
@given(st.lists(st.text(max_size=6), min_size=1, max_size=4))
def test_a_dotted_key_reads_back(names: list[str]) -> None:
    text = f"{dotted(tuple(names))} = 1\n"
    value: Any = read_toml(text, filename="m.toml")
    for name in names:
        value = value[name]
    assert value == 1
    assert tuple(names) in scan(text).places


def test_what_stands_nowhere_is_where_its_nearest_table_is() -> None:
    positions = scan("a = 1\n\n[b]\nc = {d = [1, 2]}\n")
    assert positions.at(("b", "x", 3)) == (3, 2)
    assert positions.at(("b", "c", "d", 1)) == (4, 14)
    assert positions.at(("z",)) == (1, 1)
    assert positions.at(()) == (1, 1)


def test_blocks_end_behind_their_last_statement() -> None:
    text = 'x = 1\n[a]\ny = """\n[no]\n"""  # c\n\n# about b\n[[b]]\n'
    assert [(block.path, text[: block.end][-3:]) for block in scan(text).blocks] == [
        (("a",), '"""'),
        (("b", 0), "b]]"),
    ]


DEEP = {
    "arrays": lambda depth: "a = " + "[" * depth + "]" * depth,
    "inline tables": lambda depth: "a = " + "{b = " * depth + "1" + "}" * depth,
    "dotted key": lambda depth: "a" + ".b" * depth + " = 1",
}


@pytest.mark.parametrize("make", DEEP.values(), ids=DEEP)
def test_depth_exhausts_neither_stack_nor_memory(make: Callable[[int], str]) -> None:
    assert len(scan(make(100)).places) >= 100
    assert len(scan(make(100_000)).places) < 1000


BYTES = {
    "latin-1": (b'a = 1\nb = "\xe9"\n', "m.toml:2:6"),
    "behind wider letters": ('a = "é'.encode() + b"\xff", "m.toml:1:7"),
}


@pytest.mark.parametrize(("data", "subject"), BYTES.values(), ids=BYTES)
def test_bytes_that_are_no_utf8_have_a_place(data: bytes, subject: str) -> None:
    with pytest.raises(UserInputError) as caught:
        decode_toml(data, filename="m.toml")
    assert (caught.value.code, caught.value.subject) == ("E-TOML", subject)


def test_a_byte_order_mark_is_dropped() -> None:
    assert decode_toml("\ufeffa = 'é'\n".encode(), filename="m.toml") == "a = 'é'\n"
