"""Make the wheel of the CUDA probe: ``probe_wheel.py TREE OUT VERSION`` (see hardware_trial.sh).

``TREE`` holds the package with its built library; the wheel gets its console script and a RECORD.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

TAG = "py3-none-manylinux_2_28_x86_64"


def main(tree: Path, out: Path, version: str) -> None:
    """Write ``out/cuda_probe-VERSION-TAG.whl``."""
    info = f"cuda_probe-{version}.dist-info"
    members = {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }
    members[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: cuda-probe\nVersion: {version}\n".encode()
    members[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode()
    members[f"{info}/entry_points.txt"] = b"[console_scripts]\ncuda-probe = cuda_probe:main\n"
    rows = []
    for path, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    members[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    with zipfile.ZipFile(out / f"cuda_probe-{version}-{TAG}.whl", "w") as wheel:
        for path, data in members.items():
            member = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            member.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            wheel.writestr(member, data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
