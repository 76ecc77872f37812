"""Locked wheels in small: ``WheelScan`` values made from files, as the scanner makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.inspection.scan import scan_file
from envbundle.resolver.contents import Member, WheelScan
from envbundle.spec.digest import Digest
from envbundle.spec.target import Arch, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def wheel(
    name: str,
    version: str = "1.0",
    files: Mapping[str, bytes] | None = None,
    *,
    requires: Iterable[str] = (),
    python: str = "",
    declared: Iterable[str] = (),
) -> WheelScan:
    """Return what a wheel with ``files`` holds."""
    content = dict(files or {})
    scans = [scan_file(path, data, size=len(data)) for path, data in content.items()]
    return WheelScan(
        name=name,
        version=version,
        members=tuple(
            Member(path=f"purelib/{path}", member=path, sha256=Digest.of(data), size=len(data))
            for path, data in content.items()
        ),
        files=tuple(scan for scan in scans if scan.kind != "other"),
        requires=tuple(requires),
        requires_python=python,
        declared=tuple(declared),
    )


def scans(*wheels: WheelScan) -> dict[str, WheelScan]:
    """Return wheels by name."""
    return {one.name: one for one in wheels}


def target(*gpus: str, offline: bool = True, driver: str | None = None) -> Target:
    """Return a target of Python 3.12 on x86_64."""
    return Target(
        name="t",
        gpus=tuple(Arch.parse(gpu) for gpu in gpus),
        python="3.12",
        platform="x86_64-manylinux_2_39",
        glibc="2.39",
        driver=driver,
        offline=offline,
    )
