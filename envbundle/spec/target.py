"""Targets: the class of machines that a bundle is for.

* A GPU architecture is written as the field does: ``sm_90``, ``sm_90a``, ``sm_100f`` (SASS names); an AMD
  one as ``gfx942``. What runs on what is not decided here (``envbundle.inspection.cuda``).
* A platform is ``<machine>-manylinux_<major>_<minor>``, as uv names it: it states the glibc floor.
* A target's name is ``[a-z0-9_-]+``: it becomes part of a file name, and a pylock name may hold no dot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from envbundle.errors import FormatError

from .fields import Fields

_SM = re.compile(r"sm_([1-9][0-9]{1,3})([af]?)")
_GFX = re.compile(r"gfx[0-9a-f]{3,5}")
_PLATFORM = re.compile(r"(x86_64|aarch64)-manylinux_([0-9]{1,2})_([0-9]{1,3})")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PYTHON = re.compile(r"3\.[0-9]{1,2}")
_DRIVER = re.compile(r"[0-9]{3,4}(\.[0-9]{1,4}){0,2}")


@dataclass(frozen=True, slots=True, order=True)
class Arch:
    """One GPU architecture. ``number`` and ``suffix`` are those of an ``sm_`` name, 0 and '' of a ``gfx``."""

    name: str

    def __post_init__(self) -> None:
        if not (_SM.fullmatch(self.name) or _GFX.fullmatch(self.name)):
            raise FormatError(
                "E-ARCH-NAME",
                "GPU architecture",
                expected="sm_90, sm_103a, sm_100f or gfx942",
                found=repr(self.name),
            )

    @classmethod
    def parse(cls, text: str) -> Arch:
        """Read an architecture's name; raises ``FormatError`` (E-ARCH-NAME)."""
        return cls(text)

    @classmethod
    def sm(cls, number: int, suffix: str = "") -> Arch:
        """Return the NVIDIA architecture ``sm_<number><suffix>``; ``number`` is 10 * major + minor."""
        return cls(f"sm_{number}{suffix}")

    def __str__(self) -> str:
        return self.name

    @property
    def vendor(self) -> str:
        """``nvidia`` or ``amd``."""
        return "nvidia" if self.name.startswith("sm_") else "amd"

    @property
    def number(self) -> int:
        """10 * major + minor of the compute capability."""
        match = _SM.fullmatch(self.name)
        return int(match[1]) if match else 0

    @property
    def suffix(self) -> str:
        """'' for a plain architecture, 'a' for architecture-specific, 'f' for family-specific code."""
        match = _SM.fullmatch(self.name)
        return match[2] if match else ""


def check_target_name(text: str) -> str:
    """Return ``text`` if it may name a target, else raise ``FormatError`` (E-TARGET-NAME)."""
    if not _NAME.fullmatch(text):
        raise FormatError(
            "E-TARGET-NAME", "target name", expected="[a-z0-9][a-z0-9_-]*", found=repr(text[:80])
        )
    return text


def check_python(text: str) -> str:
    """Return ``text`` if it is ``3.N``, else raise ``FormatError`` (E-PYTHON-VERSION)."""
    if not _PYTHON.fullmatch(text):
        raise FormatError("E-PYTHON-VERSION", "python", expected='"3.N", as in "3.12"', found=repr(text[:40]))
    return text


def check_platform(text: str) -> str:
    """Return ``text`` if it is a platform as described in the module, else raise ``FormatError``."""
    if not _PLATFORM.fullmatch(text):
        raise FormatError(
            "E-PLATFORM",
            "platform",
            expected='"x86_64-manylinux_2_39" or "aarch64-manylinux_2_39"',
            found=repr(text[:80]),
        )
    return text


def check_driver(text: str) -> str:
    """Return ``text`` if it is an NVIDIA driver version or branch (``580``, ``580.65.06``)."""
    if not _DRIVER.fullmatch(text):
        raise FormatError(
            "E-DRIVER-VERSION", "driver", expected='"580" or "580.65.06"', found=repr(text[:40])
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A class of machines.

    ``gpus`` are the architectures that every judgement must pass for (empty: a target without GPU).
    ``python`` is ``3.N``; ``glibc`` is ``2.N``; ``driver`` is a driver version or branch, or None when the
    manifest declares none; ``offline`` says that the machine reaches no network at run time.
    """

    name: str
    gpus: tuple[Arch, ...]
    python: str
    platform: str
    glibc: str
    driver: str | None = None
    offline: bool = True

    @property
    def machine(self) -> str:
        """``x86_64`` or ``aarch64``."""
        return self.platform.partition("-")[0]

    @classmethod
    def from_dict(cls, value: Any, where: str = "target") -> Target:
        """Read the JSON form; raises ``FormatError``."""
        fields = Fields(value, where)
        target = cls(
            name=fields.parsed("name", check_target_name),
            gpus=tuple(Arch.parse(name) for name in fields.texts("gpus")),
            python=fields.parsed("python", check_python),
            platform=fields.parsed("platform", check_platform),
            glibc=fields.text("glibc"),
            driver=fields.opt_text("driver"),
            offline=fields.boolean("offline", default=True),
        )
        fields.done()
        return target

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        value: dict[str, Any] = {
            "name": self.name,
            "gpus": [str(gpu) for gpu in self.gpus],
            "python": self.python,
            "platform": self.platform,
            "glibc": self.glibc,
            "offline": self.offline,
        }
        if self.driver is not None:
            value["driver"] = self.driver
        return value


def platform_glibc(platform: str) -> str:
    """Return the glibc floor that a platform states, ``2.39`` for ``x86_64-manylinux_2_39``."""
    match = _PLATFORM.fullmatch(platform)
    if match is None:
        raise FormatError("E-PLATFORM", "platform", found=repr(platform[:80]))
    return f"{match[2]}.{match[3]}"
