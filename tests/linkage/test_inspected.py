"""`inspect ENV`: an environment's files judged against each other, with no manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.api.inspect import inspect
from tests.builders import shared_object

if TYPE_CHECKING:
    from pathlib import Path

SITE = "lib/python3.12/site-packages"


def environment(root: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        path = root / SITE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    info = root / SITE / "ext-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    return str(root)


def test_a_missing_library_of_an_environment(tmp_path: Path) -> None:
    module = shared_object(
        needed=["libcudart.so.13", "libown.so"], runpath="$ORIGIN/lib", versions={"libc.so.6": ["GLIBC_2.34"]}
    )
    files = {"ext/_m.abi3.so": module, "ext/lib/libown.so": shared_object(soname="libown.so")}
    answer = inspect([environment(tmp_path / "venv", files)])
    found = {finding.code: finding for finding in answer.findings}
    assert set(found) == {"E-SONAME", "N-RUNTIME-FLOOR"}
    assert found["E-SONAME"].expected.startswith("libcudart.so.13")
    assert found["E-SONAME"].subject.startswith("ext 1.0 ")
    assert found["N-RUNTIME-FLOOR"].found == "glibc 2.34"
    assert answer.status == 1


def test_a_folder_that_is_no_environment_is_not_judged_so(tmp_path: Path) -> None:
    (tmp_path / "a.abi3.so").write_bytes(shared_object(needed=["libcudart.so.13"]))
    answer = inspect([str(tmp_path)])
    assert (answer.findings, answer.status) == ((), 0)


def test_b12_every_bundled_compiler_is_shown(tmp_path: Path) -> None:
    banner = b"\0Cuda compilation tools, release 12.9, V12.9.86\0\0sm_75\0sm_103a\0"
    (tmp_path / "ptxas").write_bytes(shared_object({".rodata": banner}))
    (finding,) = inspect([str(tmp_path / "ptxas")]).findings
    assert (finding.code, finding.found) == ("N-COMPILER", "ptxas 12.9.86, knows sm_50 to sm_103")
