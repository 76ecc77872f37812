"""The embedded example that ``envbundle demo`` moves: two small wheels, one hand patch, one ssh key.

``demo_data/kernels.so`` is a real CUDA library of one kernel (``p[i] = i * 3 + 1``), made with CUDA 13.0 for
sm_80, sm_90, sm_90a, sm_100f, sm_103a and sm_120. It holds nothing for sm_75: that is the refusal to see.
"""

from __future__ import annotations

import base64
import hashlib
import io
import platform
import sys
import zipfile
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from envbundle.errors import HostError
from envbundle.host.files import atomic_write, host_errors

if TYPE_CHECKING:
    from pathlib import Path

_APP = '''"""A small application whose kernels come from another distribution."""

from demo_app.settings import GREETING


def main() -> int:
    """Say who we are, and from where we run."""
    import sys

    import demo_kernels

    print(f"{GREETING}; kernels of {len(demo_kernels.library())} bytes; prefix {sys.prefix}")
    return 0
'''
_SETTINGS = '"""Settings that somebody will patch by hand."""\n\nGREETING = "demo-app as published"\n'
_PATCHED = '"""Settings, patched by hand."""\n\nGREETING = "demo-app with the hand patch"\n'
_KERNELS = '''"""Kernels for several GPUs."""

from pathlib import Path


def library() -> bytes:
    """Return the bytes of the CUDA library."""
    return (Path(__file__).parent / "_kernels.so").read_bytes()
'''

_MANIFEST = """#:schema ./schemas/manifest.schema.json
# What the environment is, for three kinds of machine. `envbundle init` writes a longer one to start from.

[bundle]
name = "demo"
version = "1.0"
python = "{python}"

[resolve]
requirements = ["demo-app==1.0"]
find-links = ["wheels"]
no-index = true

[target.sm_103]  # B300
gpu = "sm_103"
platform = "{platform}"
driver = "580"

[target.sm_120]  # RTX PRO 6000
gpu = "sm_120"
platform = "{platform}"
driver = "580"

[target.sm_75]  # T4: the wheel holds nothing for it
gpu = "sm_75"
platform = "{platform}"
driver = "580"

[[overlay]]  # the patch that was made by hand
distribution = "demo-app"
base = "1.0"
path = "overlays/demo_app"

[environment]
DEMO_MODE = "moved"

[[check]]
import = ["demo_app", "demo_kernels"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Where the example stands."""

    folder: Path
    manifest: Path
    key: Path
    allowed_signers: Path


def write_example(folder: Path) -> Example:
    """Write the example into ``folder`` (empty) and return where its parts are.

    Raises ``HostError`` where this machine is not Linux with glibc on x86_64 or aarch64.
    """
    machine, libc = platform.machine(), platform.libc_ver()
    if sys.platform != "linux" or libc[0] != "glibc" or machine not in ("x86_64", "aarch64"):
        raise HostError(
            "E-HOST-PLATFORM",
            "demo",
            expected="Linux with glibc on x86_64 or aarch64",
            found=f"{sys.platform} {machine}",
        )
    with host_errors(folder):
        for part in ("wheels", "overlays/demo_app", "keys"):
            (folder / part).mkdir(parents=True, exist_ok=True)
    library = (resources.files("envbundle.api") / "demo_data" / "kernels.so").read_bytes()
    tag = f"manylinux_2_17_{machine}"
    _wheel(
        folder / "wheels",
        "demo_app",
        "py3-none-any",
        {"demo_app/__init__.py": _APP.encode(), "demo_app/settings.py": _SETTINGS.encode()},
        requires="Requires-Dist: demo-kernels==1.0\n",
        scripts="[console_scripts]\ndemo-app = demo_app:main\n",
    )
    _wheel(
        folder / "wheels",
        "demo_kernels",
        f"py3-none-{tag}",
        {"demo_kernels/__init__.py": _KERNELS.encode(), "demo_kernels/_kernels.so": library},
    )
    atomic_write(folder / "overlays/demo_app/settings.py", _PATCHED.encode())
    glibc = "_".join(libc[1].split(".")[:2])
    text = _MANIFEST.format(
        python=f"{sys.version_info.major}.{sys.version_info.minor}", platform=f"{machine}-manylinux_{glibc}"
    )
    atomic_write(folder / "envbundle.toml", text.encode())
    key, signers = folder / "keys/id_ed25519", folder / "keys/allowed_signers"
    _write_key(key, signers)
    return Example(folder=folder, manifest=folder / "envbundle.toml", key=key, allowed_signers=signers)


def _write_key(key: Path, signers: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    atomic_write(key, secret, mode=0o600)
    atomic_write(signers, b'demo@example.org namespaces="envbundle,envbundle-bootstrap" ' + public + b"\n")


def _wheel(
    folder: Path, name: str, tag: str, files: dict[str, bytes], *, requires: str = "", scripts: str = ""
) -> None:
    info = f"{name}-1.0.dist-info"
    pure = "true" if tag.endswith("any") else "false"
    members = dict(files)
    members[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}".encode()
    members[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    if scripts:
        members[f"{info}/entry_points.txt"] = scripts.encode()
    rows = [f"{path},sha256={_record_hash(data)},{len(data)}\n" for path, data in members.items()]
    members[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in members.items():
            member = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            member.external_attr = 0o100644 << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)
    atomic_write(folder / f"{name}-1.0-{tag}.whl", out.getvalue())


def _record_hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
