"""Reading dynamic symbols, keeping them, and naming them for people."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import FormatError
from envbundle.inspection.demangle import demangle
from envbundle.inspection.scan import scan_file
from envbundle.inspection.symbols import namespace
from envbundle.spec.coverage import FileScan
from envbundle.spec.symbols import Symbols, hashes_of, symbol_hash
from tests.builders import shared_object

WANTED = ["_ZN3c104warnEv", "_Z3foov"]
EXPORTED = ["_ZN2at4cuda3runEv", "_ZNSt6vectorIiE4pushEv", "PyInit__m", "plain_c"]


def scanned(data: bytes) -> FileScan:
    return scan_file("m.so", data, size=len(data))


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("gnu", [False, True], ids=["sysv hash", "gnu hash"])
@pytest.mark.parametrize("sections", [True, False], ids=["sections", "stripped"])
def test_symbols_of_every_form_of_file(bits: int, order: str, gnu: bool, sections: bool) -> None:
    data = shared_object(
        undefined=[*WANTED, "Py_BuildValue", "malloc"],
        exported=EXPORTED,
        bits=bits,
        order=order,
        gnu_hash=gnu,
        section_headers=sections,
    )
    symbols = scanned(data).symbols
    assert symbols is not None
    assert symbols.wanted == tuple(sorted(WANTED))
    assert list(symbols.exported_hashes) == sorted(
        symbol_hash(n.encode()) for n in EXPORTED if n.startswith("_Z")
    )
    assert symbols.namespaces == ("at",)
    assert symbols.modules == ("_m",)
    assert symbols.python


def test_weak_and_versioned_names_are_not_wanted() -> None:
    data = shared_object(
        undefined=["_ZN1a1bEv", "_ZN1c1dEv", "_ZN1e1fEv", "_ZN1g1hEv"],
        weak=["_ZN1a1bEv"],
        versions={"libstdc++.so.6": ["GLIBCXX_3.4"], "libown.so.1": ["OWN_1"]},
        symbol_versions={"_ZN1c1dEv": "GLIBCXX_3.4", "_ZN1e1fEv": "OWN_1"},
    )
    symbols = scanned(data).symbols
    assert symbols is not None
    assert symbols.wanted == ("_ZN1e1fEv", "_ZN1g1hEv")


def test_a_scan_keeps_its_symbols_through_json() -> None:
    data = shared_object(undefined=WANTED, exported=EXPORTED, needed=["libc.so.6"])
    scan = scanned(data)
    assert FileScan.from_dict(json.loads(json.dumps(scan.to_dict()))) == scan


@given(
    wanted=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1), max_size=5),
    exported=st.lists(st.binary(min_size=1, max_size=9), max_size=5),
)
@settings(max_examples=40)
def test_symbols_round_trip(wanted: list[str], exported: list[bytes]) -> None:
    symbols = Symbols(wanted=tuple(wanted), exported=hashes_of(exported), modules=("m",), python=True)
    assert Symbols.from_dict(json.loads(json.dumps(symbols.to_dict()))) == symbols


@pytest.mark.parametrize(
    "value",
    [{"wanted": "no base64!"}, {"wanted": "AAAA"}, {"exported": "AAAA"}, {"exported": "?"}, {"more": 1}],
)
def test_a_damaged_cache_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(FormatError):
        Symbols.from_dict(value)


@given(st.data())
@settings(max_examples=60)
def test_no_damage_raises(data: st.DataObject) -> None:
    """Any byte of the dynamic tables may be wrong: a finding at most, never an exception."""
    content = bytearray(
        shared_object(
            undefined=WANTED, exported=EXPORTED, needed=["libx.so"], gnu_hash=data.draw(st.booleans())
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(16, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    scanned(bytes(content))


def test_an_endless_chain_of_symbols_is_a_finding() -> None:
    """DT_HASH that claims more symbols than any file has."""
    data = bytearray(shared_object(undefined=WANTED, exported=EXPORTED))
    at = data.find(struct.pack("<II", 1, 7))
    assert at > 0
    struct.pack_into("<I", data, at + 4, 1 << 30)
    scan = scanned(bytes(data))
    assert scan.symbols is None
    assert [(f.code, f.severity) for f in scan.findings] == [("E-ELF", "warning")]


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("_ZN3c104cuda3fooEv", "c10"),
        ("_ZNK2at6Tensor4sizeEl", "at"),
        ("_ZTVN5torch3jit5GraphE", "torch"),
        ("_ZN3c104warnERKNS_7WarningE", "c10"),
        ("_ZNSt6vectorIiE4pushEv", None),
        ("_ZN9__gnu_cxx3fooEv", None),
        ("_Z3foov", None),
        ("_ZN99shortEv", None),
        ("plain", None),
    ],
)
def test_namespaces(name: str, space: str | None) -> None:
    assert namespace(name.encode()) == space


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_Z3foov", "foo()"),
        ("_Z6rotatePfi", "rotate(float*, int)"),
        (
            "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib",
            "c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, int, bool)",
        ),
        ("_ZN3c1013MessageLoggerC1EPKcii", "c10::MessageLogger::MessageLogger(char const*, int, int)"),
        ("_ZN3c1013MessageLoggerD0Ev", "c10::MessageLogger::~MessageLogger()"),
        ("_ZN2at4cuda24getCurrentCUDABlasHandleEv", "at::cuda::getCurrentCUDABlasHandle()"),
        ("_ZNK2at6Tensor4itemIlEET_v", "long at::Tensor::item<long>() const"),
        (
            "_ZN5torch7Library4_defEON3c1014FunctionSchemaEPNS1_12OperatorNameE",
            "torch::Library::_def(c10::FunctionSchema&&, c10::OperatorName*)",
        ),
        ("_ZN1AplERKS_", "A::operator+(A const&)"),
        ("_ZN1AcvbEv", "A::operator bool()"),
        ("_ZTVN1a1bE", "vtable for a::b"),
        ("_ZN1a1bE", "a::b"),
        ("_Z1fPFivE", "f(int (*)())"),
        ("_Z1fILi3ELb1EEvv", "void f<3, true>()"),
        ("_Z1fSt6vectorIiSaIiEE", "f(std::vector<int, std::allocator<int>>)"),
        ("_ZN1aB5cxx113fooEv", "a[abi:cxx11]::foo()"),
        ("_Z1fDnz", "f(decltype(nullptr), ...)"),
        ("_ZZ1fvE1x", "f()::x"),
        ("not mangled", "not mangled"),
        ("_Z", "_Z"),
        ("_Zno such", "_Zno such"),
        ("_ZN3c1", "_ZN3c1"),
    ],
)
def test_names_for_people(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


@given(st.text(st.sampled_from("NKSTIELPRO_0123456789abcdvizsFAMDCtCJXU"), max_size=60))
@settings(max_examples=200)
def test_reading_a_name_never_fails(rest: str) -> None:
    assert demangle("_Z" + rest)


def test_a_short_name_that_stands_for_an_endless_one() -> None:
    """Each template has the one before twice: 40 of them would be a terabyte."""
    name = "_Z1f1a" + "".join(f"S_I{_seen(n)}{_seen(n)}E" for n in range(40))
    assert demangle(name) == name
    assert demangle("_Z1f1aS_IS_S_ES_IS0_S0_E") == "f(a, a<a, a>, a<a<a, a>, a<a, a>>)"


def _seen(number: int) -> str:
    """The substitution with that number."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return (
        "S_"
        if number == 0
        else f"S{(digits[(number - 1) // 36] if number > 36 else '') + digits[(number - 1) % 36]}_"
    )
