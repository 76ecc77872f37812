"""Anonymous memory of every verb that reads or writes content, over one environment of three large wheels.

1.66 GB in few files, 1.9 GB in 16,000 files, and 450 MB of noise that nothing compresses.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from typing import TYPE_CHECKING

from .figure import Figure
from .measure import most_memory
from .place import CUBINS, KERNELS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .place import Place

LIMIT = 300
NOISE = "noise-1.0-py3-none-any.whl"
MIB = 1 << 20


def run(place: Place) -> list[Figure]:
    """Run the verbs in the order of the story."""
    noise = place.work / "noise"
    noise.mkdir(exist_ok=True)
    write_noise(noise / NOISE)
    pins = ["sgl-kernel==0.3.21", "flashinfer-cubin==0.6.13", "noise==1.0"]
    place.remove("cache", "large-store", "large-copy", "large.tar", "large", "large.generations", "captured")
    project = place.project("environment", ["noise==1.0"], [noise])
    text = (project / "envbundle.toml").read_text()
    text = text.replace('"noise==1.0"', ", ".join(f'"{pin}"' for pin in pins))
    text = text.replace("find-links = [", f'find-links = ["{place.wheels.absolute()}", ')
    (project / "envbundle.toml").write_text(text)
    place.remove("cache")
    key, signers = (str(path) for path in place.key)
    store, prefix = str(place.work / "large-store"), str(place.work / "large")
    captured = str(place.work / "captured")
    links = ["--find-links", str(place.wheels.absolute()), "--find-links", str(noise)]
    trust = ["--allowed-signers", signers]
    quick = ["--no-compile", "--no-device"]
    verbs: list[tuple[str, Sequence[str]]] = [
        ("`inspect` of sgl-kernel 0.3.21", ["inspect", str(place.wheel(KERNELS))]),
        ("`inspect` of flashinfer-cubin 0.6.13", ["inspect", "--json", str(place.wheel(CUBINS))]),
        ("`lock` of all three", ["lock"]),
        ("`plan`", ["plan", "--arch", "gpu"]),
        ("first `pack`", ["pack", "--key", key, "-o", store]),
        ("second `pack`", ["pack", "--key", key, "-o", store]),
        ("`verify` of the store", ["verify", store, *trust]),
        ("`copy` to another store", ["copy", store, str(place.work / "large-copy"), *trust]),
        ("`copy` to an archive", ["copy", store, str(place.work / "large.tar"), *trust]),
        ("`install`", ["install", store, "--prefix", prefix, *trust, *quick]),
        ("`install` again", ["install", store, "--prefix", prefix, *trust, *quick]),
        ("`verify` of the environment", ["verify", prefix]),
        ("`inspect` of the environment", ["inspect", "--json", prefix]),
        ("`capture` of the environment", ["capture", prefix, "-o", captured, "--offline", *links]),
        ("`gc` of the store", ["gc", store]),
    ]
    figures = []
    for what, words in verbs:
        most, cost = most_memory([*place.envbundle, *words], cwd=project, env=place.env, statuses=(0, 1))
        figures.append(
            Figure(
                what=what,
                peer="-",
                kind="MiB",
                value=most / MIB,
                limit=LIMIT,
                low=most / MIB,
                high=most / MIB,
                runs=1,
                ours=cost.cpu,
            )
        )
    place.remove("large-store", "large-copy", "large.tar", "large", "large.generations", "captured", "noise")
    return figures


def write_noise(path: Path) -> None:
    """Write a wheel of bytes that do not compress: one of 256 MiB, ten of 8 MiB, 4,000 of 32 KiB."""
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, blocks: int, size: int) -> None:
            state = hashlib.sha256()
            with archive.open(name, "w", force_zip64=True) as sink:
                for _ in range(blocks):
                    block = os.urandom(size)
                    state.update(block)
                    sink.write(block)
            digest = base64.urlsafe_b64encode(state.digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{blocks * size}\n")

        add("noise/big.bin", 256, MIB)
        for number in range(10):
            add(f"noise/middle/{number}.bin", 8, MIB)
        for number in range(4000):
            add(f"noise/small/{number // 100}/{number}.bin", 1, 32 << 10)
        info = "noise-1.0.dist-info"
        texts = {
            f"{info}/METADATA": "Metadata-Version: 2.1\nName: noise\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        for name, text in texts.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(text)}\n")
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(record) + f"{info}/RECORD,,\n")
