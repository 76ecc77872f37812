"""What NVIDIA code runs where: the rules as tables above the code.

* SASS ``sm_N``, plain or 'f': same major and N <= the device's number, and never between desktop and Tegra
  chips. SASS 'a': that very number. (CUDA programming guide, binary compatibility.)
* PTX ``compute_N``: the device's number >= N; 'a': that very number; 'f': same family and >= N; in each case
  only where the driver knows the PTX ISA version. LTO-IR is not compiled at load and counts as nothing.
* A module with both: fitting SASS wins, highest N first, else the PTX that asks least of the driver.
* sm_101 (CUDA 12) and sm_110 (CUDA 13) are two names of one chip: PTX crosses, SASS is not promised to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from envbundle.errors import UserInputError
from envbundle.spec.target import check_driver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envbundle.spec.coverage import Image

RULES_VERSION = "2026.12"

#: Devices that share 'f' code; a device in none of these is a family of its own.
FAMILIES: tuple[frozenset[int], ...] = (
    frozenset({100, 103, 107}),
    frozenset({110}),
    frozenset({120, 121}),
)
#: Numbers of Tegra chips (Jetson, DRIVE). 8.8 is taken for one; NVIDIA has not said.
TEGRA: frozenset[int] = frozenset({53, 62, 72, 87, 88, 101, 110})
#: Numbers that CUDA 13 renamed.
RENAMED: dict[int, int] = {101: 110}

#: First CUDA release that writes (and whose driver reads) a PTX ISA version.
CUDA_OF_ISA: dict[tuple[int, int], tuple[int, int]] = {
    (6, 0): (9, 0),
    (6, 1): (9, 1),
    (6, 2): (9, 2),
    (6, 3): (10, 0),
    (6, 4): (10, 1),
    (6, 5): (10, 2),
    **{(7, n): (11, n) for n in range(9)},
    **{(8, n): (12, n) for n in range(6)},
    (8, 6): (12, 7),
    (8, 7): (12, 8),
    (8, 8): (12, 9),
    **{(9, n): (13, n) for n in range(10)},
}
#: Driver branch -> the CUDA version it brings. What nvidia-smi says on the machine wins over this table.
CUDA_OF_DRIVER: dict[int, tuple[int, int]] = {
    450: (11, 0),
    455: (11, 1),
    460: (11, 2),
    465: (11, 3),
    470: (11, 4),
    495: (11, 5),
    510: (11, 6),
    515: (11, 7),
    520: (11, 8),
    525: (12, 0),
    530: (12, 1),
    535: (12, 2),
    545: (12, 3),
    550: (12, 4),
    555: (12, 5),
    560: (12, 6),
    565: (12, 7),
    570: (12, 8),
    575: (12, 9),
    580: (13, 0),
    590: (13, 1),
}
#: Lowest driver branch on which a CUDA major's runtime and SASS run (minor-version compatibility).
DRIVER_OF_CUDA_MAJOR: dict[int, int] = {11: 450, 12: 525, 13: 580}

How = Literal["native", "jit", "missing"]


@dataclass(frozen=True, slots=True)
class Service:
    """How a module serves a device: by which image, and for PTX the ISA version that the driver must know.

    ``refused_isa`` is set where only the driver stands in the way: the ISA it would have to know.
    """

    how: How
    image: Image | None = None
    isa: tuple[int, int] | None = None
    refused_isa: tuple[int, int] | None = None


def serve(images: Iterable[Image], number: int, max_isa: tuple[int, int] | None) -> Service:
    """Say how a module that holds ``images`` serves the device ``number`` (10 * major + minor).

    ``max_isa`` is the highest PTX ISA version that the driver knows; None where no driver was named.
    """
    sass = [image for image in images if image.kind == "sass" and sass_fault(image, number) is None]
    if sass:
        return Service("native", max(sass, key=lambda image: image.number))
    texts = [image for image in images if image.kind == "ptx" and ptx_fault(image, number) is None]
    if not texts:
        return Service("missing")
    best = min(texts, key=lambda image: (isa_of(image), -image.number))
    isa = isa_of(best)
    if max_isa is not None and isa > max_isa:
        return Service("missing", refused_isa=isa)
    return Service("jit", best, isa)


def sass_fault(image: Image, number: int) -> str | None:
    """Return why SASS does not run on the device ``number``, or None where it does."""
    own, device = image.number, f"sm_{number}"
    if own == number:
        return None
    if RENAMED.get(own, own) == RENAMED.get(number, number):
        old, new = min(own, number), max(own, number)
        return (
            f"{image.arch}: sm_{old} is the CUDA 12 name of this chip; CUDA 13 calls it sm_{new}; "
            "binaries of one name do not load as the other"
        )
    if own // 10 != number // 10:
        return f"{image.arch}: other major"
    if image.suffix == "a":
        return f"{image.arch}: exact-only, not {device}"
    if (own in TEGRA) != (number in TEGRA):
        return (
            f"{image.arch}: {image.arch} SASS does not run on "
            f"{'Tegra' if number in TEGRA else 'desktop GPU'} {device} (NVIDIA's rule)"
        )
    return f"{image.arch}: newer than {device}" if own > number else None


def ptx_fault(image: Image, number: int) -> str | None:
    """Return why PTX cannot be compiled for the device ``number``, or None where it can."""
    own, device = RENAMED.get(image.number, image.number), RENAMED.get(number, number)
    if image.suffix == "a" and own != device:
        return f"{image.arch}: exact-only, not sm_{number}"
    if image.suffix == "f" and family(own) != family(device):
        return f"{image.arch}: other family"
    return f"{image.arch}: newer than sm_{number}" if own > device else None


def fault(image: Image, number: int, max_isa: tuple[int, int] | None) -> str | None:
    """Return why an image does not serve the device ``number``, or None where it does."""
    if image.kind == "sass":
        return sass_fault(image, number)
    if image.kind == "nvvm":
        return f"lto_{image.target}: LTO-IR is not compiled at load"
    why = ptx_fault(image, number)
    if why is None and max_isa is not None and isa_of(image) > max_isa:
        return f"{image.arch}: PTX ISA {image.isa} is newer than the driver's {max_isa[0]}.{max_isa[1]}"
    return why


def family(number: int) -> frozenset[int]:
    """Return the devices that run the same 'f' code as ``number``."""
    return next((group for group in FAMILIES if number in group), frozenset({number}))


def isa_of(image: Image) -> tuple[int, int]:
    """Return the PTX ISA version of a PTX image."""
    major, _, minor = image.isa.partition(".")
    return int(major), int(minor)


def cuda_of_driver(driver: str) -> tuple[int, int]:
    """Return the CUDA version that a driver (``580`` or ``580.65.06``) brings, by its branch.

    A branch between two known ones brings what the lower one does. Raises ``UserInputError``
    (E-DRIVER-VERSION) for a branch below all known ones.
    """
    branch = int(check_driver(driver).partition(".")[0])
    known = [own for own in CUDA_OF_DRIVER if own <= branch]
    if not known:
        lowest = min(CUDA_OF_DRIVER)
        raise UserInputError("E-DRIVER-VERSION", "driver", expected=f"at least {lowest}", found=repr(driver))
    return CUDA_OF_DRIVER[max(known)]


def isa_of_cuda(cuda: tuple[int, int]) -> tuple[int, int]:
    """Return the highest PTX ISA version that a CUDA release knows."""
    return max(isa for isa, first in CUDA_OF_ISA.items() if first <= cuda)


def isa_of_driver(driver: str) -> tuple[int, int]:
    """Return the highest PTX ISA version that a driver knows; raises as ``cuda_of_driver``."""
    return isa_of_cuda(cuda_of_driver(driver))


def driver_for_isa(isa: tuple[int, int]) -> str:
    """Return the driver that a PTX ISA version needs, for people: ``580``, or ``that of CUDA 13.4``."""
    cuda = CUDA_OF_ISA.get(isa, isa)
    branch = next((own for own, has in sorted(CUDA_OF_DRIVER.items()) if has >= cuda), None)
    return str(branch) if branch else f"that of CUDA {cuda[0]}.{cuda[1]}"
