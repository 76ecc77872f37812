"""Which wheel of a version serves a target: PyPA's compatibility tags, made from the target alone.

The order is that of ``packaging.tags``; of two wheels with equally good tags the higher build number wins,
then the file name, so that the choice does not hang on the order of a page.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from envbundle.spec.names import normalise_name
from envbundle.spec.target import platform_glibc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.version import Version

    from envbundle.spec.target import Target


class Named(Protocol):
    """Anything with a wheel's file name."""

    @property
    def filename(self) -> str:
        """The file's name, unquoted."""


N = TypeVar("N", bound=Named)

_LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
_OLDEST = {"x86_64": 5, "aarch64": 17}


def platforms(machine: str, glibc: str) -> tuple[str, ...]:
    """Return the platform tags that a machine with that glibc (``2.N``) takes, best first."""
    minor = int(glibc.partition(".")[2])
    tags = []
    for each in range(minor, _OLDEST[machine] - 1, -1):
        tags.append(f"manylinux_2_{each}_{machine}")
        if (2, each) in _LEGACY:
            tags.append(f"{_LEGACY[2, each]}_{machine}")
    return (*tags, f"linux_{machine}")


@lru_cache(maxsize=32)
def target_tags(python: str, machine: str, glibc: str) -> tuple[Tag, ...]:
    """Return the tags of wheels for CPython ``3.N`` on such a machine, best first."""
    version = tuple(int(part) for part in python.split("."))
    plain = f"cp{version[0]}{version[1]}"
    known = platforms(machine, glibc)
    return (
        *cpython_tags(version, abis=[plain], platforms=known),
        *compatible_tags(version, interpreter=plain, platforms=known),
    )


def rank(filename: str, target: Target) -> tuple[int, tuple[int, str], str] | None:
    """Return a sort key (lower is better) of a wheel for ``target``, or None where it does not fit.

    A file name that is no wheel's does not fit.
    """
    try:
        _, _, build, tags = parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return None
    for position, tag in enumerate(
        target_tags(target.python, target.machine, platform_glibc(target.platform))
    ):
        if tag in tags:
            number, rest = build or (0, "")
            return position, (-number, rest), filename
    return None


def choose(wheels: Iterable[N], target: Target) -> N | None:
    """Return the wheel that serves ``target`` best, or None."""
    ranked = [(key, wheel) for wheel in wheels if (key := rank(wheel.filename, target)) is not None]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def name_and_version(filename: str) -> tuple[str, Version] | None:
    """Return the normalised name and the version in a wheel's file name, or None for another file."""
    try:
        name, version, _, _ = parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return None
    return normalise_name(name), version
