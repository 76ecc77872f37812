"""C++ names for people: the part of the Itanium ABI's mangling that exported functions use.

Names, nesting, templates, substitutions, constructors, operators, built-in and function types, literals,
special names (vtables, guards). What it does not know comes back mangled: a message must never fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long",
    "x": "long long", "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float",
    "d": "double", "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
_EXTENDED = {"Dn": "decltype(nullptr)", "Da": "auto", "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t"}
_STANDARD = {
    "St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string",
    "Si": "std::istream", "So": "std::ostream", "Sd": "std::iostream",
}  # fmt: skip
_OPERATORS = {
    "nw": "new", "na": "new[]", "dl": "delete", "da": "delete[]", "co": "~", "pl": "+", "mi": "-", "ml": "*",
    "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=", "pL": "+=", "mI": "-=", "mL": "*=",
    "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=", "ls": "<<", "rs": ">>", "lS": "<<=",
    "rS": ">>=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "ss": "<=>", "nt": "!",
    "aa": "&&", "oo": "||", "pp": "++", "mm": "--", "cm": ",", "pm": "->*", "pt": "->", "cl": "()",
    "ix": "[]", "ps": "+", "ng": "-", "ad": "&", "de": "*",
}  # fmt: skip
_SPECIAL = {
    "TV": "vtable for ", "TT": "VTT for ", "TI": "typeinfo for ", "TS": "typeinfo name for ",
    "GV": "guard variable for ", "TW": "thread-local wrapper routine for ", "TH": "thread-local init for ",
}  # fmt: skip
_LITERALS = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}
_MAX_DEPTH = 64
_MAX_LENGTH = 1 << 14


class _UnknownError(Exception):
    """A form that is not known here."""


def demangle(name: str) -> str:
    """Return a mangled name as C++ writes it, or unchanged where it cannot be read."""
    if not name.startswith("_Z") or len(name) > _MAX_LENGTH:
        return name
    reader = _Reader(name[2:])
    try:
        text = reader.encoding()
    except (_UnknownError, RecursionError, ValueError, IndexError):
        return name
    return name if not text or reader.rest() or len(text) > 4 * _MAX_LENGTH else text


@dataclass(slots=True)
class _Name:
    """A name and what decides how its function's type is read."""

    text: str
    returns: bool = False
    suffix: str = ""


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = 0
    known: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    depth: int = 0
    _made: bool = False  # whether the last component was a constructor or destructor

    def rest(self) -> str:
        """What was not read; a compiler's clone suffix does not count."""
        rest = self.text[self.at :]
        return "" if rest.startswith((".", "@")) else rest

    def take(self, *prefixes: str) -> str:
        """Take one of the prefixes if it is next, else ''."""
        for prefix in prefixes:
            if self.text.startswith(prefix, self.at):
                self.at += len(prefix)
                return prefix
        return ""

    def expect(self, prefix: str) -> None:
        """Take what must be next."""
        if not self.take(prefix):
            raise _UnknownError

    def peek(self, count: int = 1) -> str:
        """The next characters."""
        return self.text[self.at : self.at + count]

    def learn(self, text: str) -> None:
        """Keep a candidate for substitution; a short name may stand for an endless one."""
        if len(text) > _MAX_LENGTH:
            raise _UnknownError
        self.known.append(text)

    def number(self) -> int:
        """A decimal number."""
        start = self.at
        while self.peek().isdigit():
            self.at += 1
        return int(self.text[start : self.at])

    # --- names

    def encoding(self) -> str:
        """A function with its parameters, or data, or a special name."""
        special = self.take(*_SPECIAL)
        if special in ("TV", "TT", "TI", "TS"):
            return _SPECIAL[special] + self.type()
        if special:
            return _SPECIAL[special] + self.name().text
        name = self.name()
        if not self.peek() or self.peek() in "E.@":
            return name.text + name.suffix
        result = f"{self.type()} " if name.returns else ""
        return f"{result}{name.text}({self.parameters()}){name.suffix}"

    def parameters(self) -> str:
        """The types up to the end."""
        types = []
        while self.peek() and self.peek() not in "E.@":
            types.append(self.type())
        return "" if types == ["void"] else ", ".join(types)

    def name(self) -> _Name:
        """A name: nested, local, in std, or plain."""
        if self.take("N"):
            return self.nested()
        if self.take("Z"):
            return self.local()
        if self.peek(2) == "St" or self.peek() != "S":
            prefix = "std::" if self.take("St") else ""
            text = prefix + self.unqualified(prefix)
            if self.peek() == "I":
                self.learn(text)
                return _Name(text + self.template(), returns=True)
            return _Name(text)
        text = self.substitution()
        return _Name(text + self.template(), returns=True)

    def nested(self) -> _Name:
        """A qualified name up to its E."""
        suffix = ""
        while (sign := self.take("r", "V", "K")) != "":
            suffix = {"r": " restrict", "V": " volatile", "K": " const"}[sign] + suffix
        suffix += {"": "", "R": " &", "O": " &&"}[self.take("R", "O")]
        text, returns, last = "", False, ""
        while not self.take("E"):
            if self.peek() == "I":
                text += self.template()
                returns = not last.startswith(("~", "operator ")) and last != "\0"
            elif self.peek() == "S" and self.peek(2) != "St":
                text, last = self.substitution(), ""
                continue
            elif self.take("St"):
                text, last = "std", "std"
                continue
            elif self.peek() == "T":
                text, last = self.parameter(), ""
            else:
                part = self.unqualified(text)
                last = "\0" if part.rpartition("::")[2] == _plain(text) and self._made else part
                text = f"{text}::{part}" if text else part
                returns = False
            if self.peek() != "E":
                self.learn(text)
        return _Name(text, returns=returns, suffix=suffix)

    def local(self) -> _Name:
        """An entity inside a function."""
        function = self.encoding()
        self.expect("E")
        text = "string literal" if self.take("s") else self.name().text
        if self.take("_"):
            self.take("_")
            self.number()
        return _Name(f"{function}::{text}")

    def unqualified(self, scope: str) -> str:
        """One component; ``scope`` names the class of a constructor."""
        self._made = False
        self.take("L")
        if self.peek().isdigit():
            length = self.number()
            text = self.text[self.at : self.at + length]
            if not text or len(text) != length:
                raise _UnknownError
            self.at += length
            text = "(anonymous namespace)" if text.startswith("_GLOBAL__N_") else text
        elif self.take("C1", "C2", "C3", "C4", "C5"):
            self._made, text = True, _plain(scope)
        elif self.take("D0", "D1", "D2", "D4", "D5"):
            self._made, text = True, "~" + _plain(scope)
        elif self.take("cv"):
            text = "operator " + self.type()
        elif (sign := self.take(*_OPERATORS)) != "":
            word = _OPERATORS[sign]
            text = f"operator {word}" if word[0].isalpha() else f"operator{word}"
        elif self.take("Ut"):
            text = f"{{unnamed type#{self._ordinal()}}}"
        elif self.take("Ul"):
            types = self.parameters()
            self.expect("E")
            text = f"{{lambda({types})#{self._ordinal()}}}"
        else:
            raise _UnknownError
        while self.take("B"):
            length = self.number()
            text += f"[abi:{self.text[self.at : self.at + length]}]"
            self.at += length
        return text

    def _ordinal(self) -> int:
        count = 1 if self.peek() == "_" else self.number() + 2
        self.expect("_")
        return count

    # --- substitutions and templates

    def substitution(self) -> str:
        """``S_``, ``S0_`` ... or one of the abbreviations of std."""
        short = self.take(*_STANDARD)
        if short:
            text = _STANDARD[short]
            while self.take("B"):
                length = self.number()
                text += f"[abi:{self.text[self.at : self.at + length]}]"
                self.at += length
                self.learn(text)
            return text
        self.expect("S")
        return self.known[self._index()]

    def _index(self) -> int:
        if self.take("_"):
            return 0
        start = self.at
        while self.peek().isdigit() or self.peek().isupper():
            self.at += 1
        value = int(self.text[start : self.at], 36) + 1
        self.expect("_")
        return value

    def parameter(self) -> str:
        """``T_``, ``T0_``: a template's argument."""
        self.expect("T")
        if self.take("_"):
            index = 0
        else:
            index = self.number() + 1
            self.expect("_")
        return self.arguments[index] if index < len(self.arguments) else "auto"

    def template(self) -> str:
        """The arguments of a template, in angle brackets."""
        self.expect("I")
        found = []
        while not self.take("E"):
            found += self.argument()
        self.arguments = found
        inner = ", ".join(one for one in found if one)
        if len(inner) > _MAX_LENGTH:
            raise _UnknownError
        return f"<{inner}>"

    def argument(self) -> list[str]:
        """One argument: a type, a literal, or a pack."""
        if self.take("J"):
            pack = []
            while not self.take("E"):
                pack += self.argument()
            return [", ".join(pack)]
        if self.take("L"):
            return [self.literal()]
        if self.peek() == "X":
            raise _UnknownError
        return [self.type()]

    def literal(self) -> str:
        """A literal up to its E."""
        if self.take("_Z"):
            text = self.encoding()
            self.expect("E")
            return text
        kind = self.peek()
        word = self.type()
        start = self.at
        while self.peek() and self.peek() != "E":
            self.at += 1
        value = self.text[start : self.at].replace("n", "-", 1)
        self.expect("E")
        if kind == "b":
            return {"0": "false", "1": "true"}.get(value, value)
        return value + _LITERALS[kind] if kind in _LITERALS else f"({word}){value}"

    # --- types

    def type(self) -> str:
        """One type; it becomes a candidate for substitution where the ABI says so."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _UnknownError
        try:
            return self._type()
        finally:
            self.depth -= 1

    def _type(self) -> str:
        head = self.peek()
        if head in _BUILTIN and head:
            self.at += 1
            return _BUILTIN[head]
        extended = self.take(*_EXTENDED)
        if extended:
            return _EXTENDED[extended]
        if head == "S" and self.peek(2) != "St":
            text = self.substitution()
            if self.peek() == "I":
                text += self.template()
                self.learn(text)
            return text
        if self.take("Dp"):
            text = self.type()
        elif head and head in "PROKVr":
            text = self._qualified()
        elif self.take("F"):
            text = self._function("")
        elif self.take("A"):
            size = self.number() if self.peek().isdigit() else 0
            self.expect("_")
            text = f"{self.type()} [{size or ''}]"
        elif self.take("M"):
            owner = self.type()
            text = self._function(f"{owner}::*") if self.take("F") else f"{self.type()} {owner}::*"
        elif head == "T":
            text = self.parameter()
            if self.peek() == "I":
                self.learn(text)
                text += self.template()
        elif head.isdigit() or head in "NZSL":
            arguments = self.arguments
            text = self.name().text
            self.arguments = arguments
        else:
            raise _UnknownError
        self.learn(text)
        return text

    def _qualified(self) -> str:
        """A pointer, a reference, or const and volatile."""
        sign = self.take("P", "R", "O", "K", "V", "r")
        if sign in "PRO":
            mark = {"P": "*", "R": "&", "O": "&&"}[sign]
            if self.take("F"):
                text = self._function(mark)
                self.learn(text.replace(f"({mark})", "", 1))
                return text
            inner = self.type()
            if inner.endswith(")") and " (" in inner and "(*)" in inner:
                return inner.replace("(*", "(*" + mark, 1)
            if inner.endswith("&&") and sign != "P":
                return inner if sign == "O" else inner[:-1]
            return inner if inner.endswith("&") and sign != "P" else inner + mark
        words = [sign]
        while (more := self.take("K", "V", "r")) != "":
            words.append(more)
        inner = self.type()
        for word in reversed(words):
            mark = {"K": " const", "V": " volatile", "r": " restrict"}[word]
            inner += "" if inner.endswith(mark) else mark
        return inner

    def _function(self, mark: str) -> str:
        self.take("Y")
        result = self.type()
        parameters = self.parameters()
        self.expect("E")
        return f"{result} ({mark})({parameters})" if mark else f"{result} ({parameters})"


def _plain(scope: str) -> str:
    """Return the last component of a qualified name, without its template arguments."""
    depth = 0
    end = len(scope)
    for index in range(len(scope) - 1, -1, -1):
        letter = scope[index]
        if letter == ">":
            depth += 1
        elif letter == "<":
            depth -= 1
            if depth == 0:
                end = index
        elif depth == 0 and scope.startswith("::", index - 1):
            return scope[index + 1 : end]
    return scope[:end]
