from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import UserInputError
from envbundle.trust.allowed_signers import AllowedSigners, parse_time
from envbundle.trust.outcome import Refusal, Vouched

from .builders import NOW, golden, golden_key, line, may_refuse, signer, signers

KEY = str(signer().public)
FIDO = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29t"


def judge(text: str, *, by: str = "alice", ns: str = "envbundle", who: tuple[str, ...] | None = None) -> str:
    """Return the principal, or the refusal's code."""
    answer = signers(text).judge(signer(by).public, namespace=ns, now=NOW, principals=who)
    return answer.principal if isinstance(answer, Vouched) else answer.code


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param("", "ok", id="none"),
        pytest.param('namespaces="envbundle"', "ok", id="namespace"),
        pytest.param('namespaces="git,envbundle*"', "ok", id="namespace pattern"),
        pytest.param('namespaces="git"', "E-SIG-NAMESPACE", id="another namespace"),
        pytest.param('namespaces="*,!envbundle"', "E-SIG-NAMESPACE", id="namespace negated"),
        pytest.param('NameSpaces="envbundle"', "ok", id="case of options does not count"),
        pytest.param('valid-after="20260615Z"', "ok", id="from this morning"),
        pytest.param('valid-after="20260615120000Z"', "ok", id="from this second"),
        pytest.param('valid-after="20260615120001Z"', "E-SIG-NOT-YET", id="from the next second"),
        pytest.param('valid-after="20260616"', "E-SIG-NOT-YET", id="from tomorrow"),
        pytest.param('valid-before="20260615120000Z"', "ok", id="until this second"),
        pytest.param('valid-before="20260615115959Z"', "E-SIG-EXPIRED", id="until the second before"),
        pytest.param('valid-before="202606151159"', "E-SIG-EXPIRED", id="until the minute before"),
        pytest.param('valid-before="20260615z"', "E-SIG-EXPIRED", id="until this morning"),
        pytest.param('valid-before="20260616utc"', "ok", id="UTC written out"),
        pytest.param('valid-after="20260101",valid-before="20261231"', "ok", id="span"),
        pytest.param(
            'namespaces="envbundle",valid-after="20250101",valid-before="20260101"',
            "E-SIG-EXPIRED",
            id="past span",
        ),
        pytest.param("cert-authority", "E-SIG-UNSUPPORTED", id="certificate authority"),
        pytest.param('cert-authority,namespaces="envbundle"', "E-SIG-UNSUPPORTED", id="authority and more"),
    ],
)
def test_options(options: str, expected: str) -> None:
    assert judge(line(options=options)) == ("alice@test.example" if expected == "ok" else expected)


@pytest.mark.parametrize(
    ("principals", "who", "expected"),
    [
        pytest.param("a@x", None, "a@x", id="anyone"),
        pytest.param("a@x,b@x", None, "a@x,b@x", id="anyone of a list: the list as it stands"),
        pytest.param("a@x,b@x", ("b@x",), "b@x", id="second of a list"),
        pytest.param("*@x", ("b@x",), "b@x", id="pattern"),
        pytest.param("a@x", ("b@x",), "E-SIG-PRINCIPAL", id="another"),
        pytest.param("a@x", ("b@x", "a@x"), "a@x", id="one of several asked for"),
        pytest.param("!a@x,*@x", ("a@x",), "E-SIG-PRINCIPAL", id="negated"),
        pytest.param("!a@x", None, "E-SIG-PRINCIPAL", id="nobody in the list"),
        pytest.param("a@x", (), "E-SIG-PRINCIPAL", id="nobody asked for"),
        pytest.param('"a b"', ("a b",), "a b", id="quoted"),
    ],
)
def test_principals(principals: str, who: tuple[str, ...] | None, expected: str) -> None:
    assert judge(line(principals=principals), who=who) == expected


def test_an_unknown_key_is_told_by_its_fingerprint() -> None:
    answer = signers(line("bob")).judge(signer().public, namespace="envbundle", now=NOW, principals=None)
    assert isinstance(answer, Refusal)
    assert answer.code == "E-SIG-UNTRUSTED"
    assert signer().public.fingerprint in answer.found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            line(options='valid-before="20200101"') + line(), "alice@test.example", id="second line counts"
        ),
        pytest.param(
            line(options='namespaces="git"') + line(options="cert-authority"), "E-SIG-NAMESPACE", id="nearest"
        ),
        pytest.param(
            line(options='namespaces="git"') + line(options='valid-before="20200101"'),
            "E-SIG-EXPIRED",
            id="later",
        ),
        pytest.param(line("bob") + line(), "alice@test.example", id="other key before"),
        pytest.param(
            line(options="cert-authority") + line(), "alice@test.example", id="authority beside plain"
        ),
        pytest.param(f"fido@x {FIDO}\n" + line(), "alice@test.example", id="FIDO key beside"),
        pytest.param(
            "w@x " + golden("rsa1024.pub").decode() + line(), "alice@test.example", id="weak key beside"
        ),
        pytest.param("d@x " + golden("dsa.pub").decode() + line(), "alice@test.example", id="dsa beside"),
    ],
)
def test_several_lines(text: str, expected: str) -> None:
    assert judge(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("\n  \n\t\n", id="blank lines"),
        pytest.param("# alice@x " + KEY + "\n  # more\n", id="comments"),
    ],
)
def test_a_file_that_trusts_nobody(text: str) -> None:
    assert signers(text).lines == ()
    assert judge(text) == "E-SIG-UNTRUSTED"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"  a@x   {KEY}  a comment # and more\r\n", id="spaces, comment, carriage return"),
        pytest.param(f"a@x\t{KEY}", id="tab, no line feed"),
        pytest.param(f'a@x namespaces="envbundle" \t {KEY}\n', id="spaces behind options"),
        pytest.param(f"# first\n\na@x {KEY}\n", id="behind a comment"),
    ],
)
def test_white_space(text: str) -> None:
    assert judge(text) == "a@x"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a@x\n", "no key", id="principal alone"),
        pytest.param("a@x ssh-ed25519\n", "no key", id="no data"),
        pytest.param(f"{KEY}\n", "no key", id="key alone"),
        pytest.param("a@x ssh-ed25519 !!!\n", "base64", id="no base64"),
        pytest.param("a@x ssh-ed448 AAAA\n", "no key", id="unknown type"),
        pytest.param(f"a@x frobnicate {KEY}\n", "unknown option", id="unknown option"),
        pytest.param(f"a@x namespaces {KEY}\n", "value", id="namespaces without value"),
        pytest.param(f"a@x namespaces=git {KEY}\n", "quotes", id="value without quotes"),
        pytest.param(f'a@x namespaces="" {KEY}\n', "no namespace", id="empty namespaces"),
        pytest.param(f'a@x namespaces="a",namespaces="b" {KEY}\n', "twice", id="option twice"),
        pytest.param(f'a@x namespaces="a", {KEY}\n', "comma", id="comma at the end"),
        pytest.param(f'a@x ,namespaces="a" {KEY}\n', "cannot be read", id="comma at the start"),
        pytest.param(f'a@x namespaces="a"b {KEY}\n', "cannot be read", id="text behind a quote"),
        pytest.param(f'a@x namespaces="a {KEY}\n', "not closed", id="open quote"),
        pytest.param(f'a@x cert-authority="yes" {KEY}\n', "no value", id="authority with value"),
        pytest.param(f'a@x valid-after="2026" {KEY}\n', "YYYYMMDD", id="year alone"),
        pytest.param(f'a@x valid-after="20260230" {KEY}\n', "20260230", id="30 February"),
        pytest.param(f'a@x valid-after="202601012460" {KEY}\n', "202601012460", id="24 o'clock"),
        pytest.param(f'a@x valid-after="00000101Z" {KEY}\n', "00000101Z", id="year 0"),
        pytest.param(f'a@x valid-after="20260101 Z" {KEY}\n', "YYYYMMDD", id="space in a time"),
        pytest.param(f'a@x valid-after="20260102",valid-before="20260101" {KEY}\n', "later", id="empty span"),
        pytest.param(f"a@x,,b@x {KEY}\n", "empty name", id="empty principal"),
        pytest.param(f",a@x {KEY}\n", "empty name", id="comma before"),
        pytest.param(f'"" {KEY}\n', "empty name", id="quoted nothing"),
        pytest.param(f'a"b"@x {KEY}\n', "quote", id="quote inside"),
        pytest.param("a@x ssh-rsa " + KEY.split()[1] + "\n", "the key data", id="type and data differ"),
    ],
)
def test_lines_that_refuse_the_file(text: str, says: str) -> None:
    with pytest.raises(UserInputError) as caught:
        signers(line("bob") + text)
    assert (caught.value.code, caught.value.subject) == ("E-SIGNERS", "signers:2")
    assert says in caught.value.found


def test_every_faulty_line_is_told() -> None:
    with pytest.raises(UserInputError) as caught:
        signers("x\n" + line() + "y\n")
    assert [finding.subject for finding in caught.value.findings] == ["signers:1", "signers:3"]


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        pytest.param(b"a@x \xff\n", 4, id="no UTF-8"),
        pytest.param(b"\xef\xbb\xbfa@x\n", 0, id="byte order mark"),
        pytest.param(b"a@x\0\n", 3, id="NUL"),
        pytest.param(b"#" * (5 << 20), None, id="too big"),
    ],
)
def test_files_that_are_no_text(data: bytes, offset: int | None) -> None:
    with pytest.raises(UserInputError, match="E-SIGNERS") as caught:
        AllowedSigners.parse(data, source="signers")
    assert caught.value.offset == offset


def test_local_times_are_in_the_zone_given() -> None:
    east = timezone(timedelta(hours=9))
    assert parse_time("20260615", east) == datetime(2026, 6, 14, 15, tzinfo=timezone.utc)
    assert parse_time("20260615Z", east) == datetime(2026, 6, 15, tzinfo=timezone.utc)


def test_without_a_zone_times_are_this_machines() -> None:
    assert parse_time("202606151230", None) == datetime(2026, 6, 15, 12, 30).astimezone()


@pytest.mark.parametrize("name", ["ed25519", "nistp256", "nistp384", "nistp521", "rsa"])
def test_every_kind_of_key_can_be_listed(name: str) -> None:
    key = golden_key(name)
    listed = AllowedSigners.parse(b"a@x " + golden(f"{name}.pub"), source="s")
    assert isinstance(listed.judge(key, namespace="envbundle", now=NOW, principals=None), Vouched)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from('a@x,"!*= \t\n#\\') | st.characters(), max_size=60), st.booleans())
def test_any_text_is_read_or_refused(text: str, with_key: bool) -> None:
    data = (f"{text} {KEY}\n" if with_key else text).encode("utf-8", "surrogatepass")
    with may_refuse("E-SIGNERS"):
        parsed = AllowedSigners.parse(data, source="s")
        assert all(entry.principals for entry in parsed.lines)


@settings(max_examples=100, deadline=None)
@given(st.text('namespcvlid-fterboTZ="0123456789,\\ ', max_size=40))
def test_any_options_are_read_or_refused(options: str) -> None:
    with may_refuse("E-SIGNERS"):
        assert len(signers(line(options=options)).lines) == 1
