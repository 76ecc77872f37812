"""What the environment needs around it: paths, model folders, libraries, as invariants of the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.errors import EnvbundleError, UserInputError
from envbundle.spec.finding import Finding
from envbundle.spec.manifest import Invariant
from envbundle.spec.text_checks import absolute_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .process import Process

_HOMES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDNN_HOME",
    "NCCL_HOME",
    "NVSHMEM_HOME",
    "TRITON_PTXAS_PATH",
    "MPI_HOME",
)
_WEIGHTS = ("*.safetensors.index.json", "*.safetensors", "*.gguf", "*.bin.index.json")


def demands(
    paths: Iterable[str],
    variables: Mapping[str, str],
    process: Process | None,
    prefixes: Sequence[str],
) -> tuple[tuple[Invariant, ...], tuple[Finding, ...]]:
    """Return invariants for paths that a person named, for variables that name a place, for a server.

    ``prefixes`` are the paths of the environment itself: what lies in it is no demand. Raises
    ``UserInputError`` (E-NOT-FOUND) for a named path that is not there.
    """
    found: dict[tuple[str, str], Invariant] = {}
    findings = []

    def take(kind: str, key: str, **fields: Any) -> None:
        found.setdefault((kind, key), Invariant(kind=kind, fields=tuple(fields.items())))

    def place(text: str) -> None:
        path = Path(text)
        if path.is_dir() and is_model(path):
            take("model", text, path=text)
        else:
            take("path", text, path=text, type="dir" if path.is_dir() else "file")

    for text in paths:
        absolute = Path(text).absolute()
        if not absolute.exists():
            raise UserInputError(
                "E-NOT-FOUND", f"--path {text}", expected="a file or folder", found="nothing"
            )
        place(_checked(str(absolute)))
    for name, value in sorted(variables.items()):
        inside = next(
            (prefix for prefix in prefixes if value == prefix or value.startswith(prefix + "/")), None
        )
        if inside is not None:
            findings.append(_inside(name, value))
        elif name in _HOMES and value.startswith("/") and Path(value).exists():
            place(value)
    if process is not None:
        for folder in process.models:
            take("model" if is_model(Path(folder)) else "path", folder, path=folder)
        for folder in process.caches:
            if Path(folder).is_dir():
                take("path", folder, path=folder, type="dir", writable=True)
        for soname in process.outside:
            take("library", soname, soname=soname)
    return tuple(found.values()), tuple(findings)


def is_model(folder: Path) -> bool:
    """Say whether a folder holds model weights."""
    return any(next(folder.glob(pattern), None) is not None for pattern in _WEIGHTS)


def _checked(text: str) -> str:
    try:
        return absolute_path(text)
    except EnvbundleError as fault:
        raise UserInputError(
            "E-VALUE", f"--path {text!a}", expected=fault.expected, found=fault.found
        ) from fault


def _inside(name: str, value: str) -> Finding:
    return Finding(
        code="W-CAPTURE-VARIABLE",
        severity="warning",
        subject=name,
        expected="a value that holds at any prefix",
        found=f"{value}, inside the environment's present place",
        hint='fix it in [environment] once you know the prefix, or set [layout] mode = "fixed"',
    )
