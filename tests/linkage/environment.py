"""Small environments for these tests: true ELF files, scanned as a wheel's members are."""

from __future__ import annotations

from typing import Any

from envbundle.inspection.scan import scan_file
from envbundle.resolver.closure import Linkage
from envbundle.resolver.placed import PlacedFile
from tests.builders import shared_object

SITE = "lib/python3.12/site-packages/"


def placed(
    path: str, *, owner: str = "", version: str = "1.0", data: bytes | None = None, **elf: Any
) -> PlacedFile:
    """Return one file below site-packages (``path``), built by ``shared_object`` unless ``data`` is given."""
    content = shared_object(**elf) if data is None else data
    scan = scan_file(path, content, size=len(content))
    assert scan.needs is not None, scan.findings
    return PlacedFile(
        path=SITE + path,
        distribution=owner or path.partition("/")[0].replace("_", "-"),
        version=version,
        scan=scan,
    )


def linkage(*files: PlacedFile, **more: Any) -> Linkage:
    """Return the links of ``files`` for Python 3.12 on x86_64."""
    return Linkage(files, python="3.12", machine="x86_64", **more)
