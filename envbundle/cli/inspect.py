"""``envbundle inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle inspect sgl_kernel-0.3.21-cp310-abi3-manylinux2014_x86_64.whl --arch sm_103"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="binaries, wheels, or folders such as an environment"
    )
    parser.add_argument(
        "--arch", action="append", default=[], metavar="GPU", help="a GPU arch to judge for (repeatable)"
    )
    parser.add_argument(
        "--driver", default=None, metavar="V", help="the driver that would run it, as 580 (judges PTX)"
    )
    parser.add_argument("--kernels", action="store_true", help="name the kernels of missing modules")


def execute(args: argparse.Namespace, out: Output) -> int:
    """Show what files hold; exit 1 on damage or where an asked-for arch gets nothing."""
    from envbundle.api.inspect import inspect

    answer = inspect(
        args.paths, archs=args.arch, driver=args.driver, kernels=args.kernels, reporter=out.reporter()
    )
    out.findings(answer.findings)
    for file in answer.value["files"]:
        _show(file, out, verbose=bool(args.arch) or out.verbose or len(answer.value["files"]) < 40)
    for distribution in answer.value["distributions"]:
        verdicts = ", ".join(f"{arch} {row['verdict']}" for arch, row in distribution["verdicts"].items())
        out.line(f"{distribution['name']} {distribution['version']}: {verdicts}")
    out.answer(answer.value, answer.findings)
    return answer.status


def _show(file: dict[str, Any], out: Output, *, verbose: bool) -> None:
    if not file["entries"] and not out.verbose:
        return
    modules = file["modules"]
    out.line(f"{file['path']}: {modules['total']} device modules, {modules['empty']} without kernels")
    if not verbose:
        return
    for entry in file["entries"]:
        isa = f" (PTX ISA {entry['isa']})" if entry["isa"] else ""
        out.line(
            f"    {entry['kind']:5} {entry['arch']:13} {entry['modules']:6} modules  {entry['section']}{isa}"
        )
    for arch, row in file["verdicts"].items():
        counts = f"{row['native']} native, {row['jit']} by PTX, {row['missing']} missing"
        out.line(f"    {arch:8} {row['verdict']:12} {counts}")
    for arch, names in file.get("kernels_missing", {}).items():
        for name in names:
            out.line(f"    {arch:8} missing kernel {name}")
