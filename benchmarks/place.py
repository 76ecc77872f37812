"""Where the benchmarks work: wheels, tools, a folder of their own, a key, projects that are locked."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .measure import command

CUOBJDUMP = "nvidia_cuda_cuobjdump"
KERNELS = "sgl_kernel-0.3.21"
CUBINS = "flashinfer_cubin-0.6.13"
TOOLS = ("unzip", "zstd", "openssl", "sh")


@dataclass
class Place:
    """``wheels`` is a folder of wheels, ``work`` a folder that may be filled and emptied (about 15 GB)."""

    wheels: Path
    work: Path

    def check(self) -> None:
        """Stop with one line about what is missing."""
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        missing += [f"{name}-*.whl" for name in (CUOBJDUMP, KERNELS, CUBINS) if not self._found(name)]
        if missing:
            raise SystemExit(f"missing: {', '.join(missing)}")
        self.work.mkdir(parents=True, exist_ok=True)

    def _found(self, name: str) -> list[Path]:
        return sorted(self.wheels.glob(f"{name}-*.whl"))

    def wheel(self, name: str) -> Path:
        """Return the wheel whose file name begins with ``name``, its bytes in the page cache."""
        path = self._found(name)[0].absolute()
        with path.open("rb") as stream:
            while stream.read(1 << 24):
                pass
        return path

    @cached_property
    def envbundle(self) -> list[str]:
        """The program, as people start it."""
        return [str(Path(sys.executable).with_name("envbundle"))]

    @cached_property
    def uv(self) -> str:
        """The uv that envbundle itself uses."""
        beside = Path(sys.executable).with_name("uv")
        return str(beside) if beside.exists() else str(shutil.which("uv"))

    @cached_property
    def cuobjdump(self) -> str:
        """The program, unpacked from its wheel."""
        folder = self.work / "cuobjdump"
        with zipfile.ZipFile(self.wheel(CUOBJDUMP)) as archive:
            member = next(name for name in archive.namelist() if name.endswith("/bin/cuobjdump"))
            program = Path(archive.extract(member, folder))
        program.chmod(0o755)
        return str(program)

    def member(self, wheel: str, path: str) -> Path:
        """Unpack one member of a wheel and return where it is, its bytes in the page cache."""
        with zipfile.ZipFile(self.wheel(wheel)) as archive:
            return Path(archive.extract(path, self.work / "unpacked"))

    @property
    def env(self) -> dict[str, str]:
        """Variables for envbundle: a cache of its own."""
        return {"ENVBUNDLE_CACHE": str(self.work / "cache")}

    @cached_property
    def key(self) -> tuple[Path, Path]:
        """A fresh key, and the file of allowed signers that trusts it."""
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

        private = Ed25519PrivateKey.generate()
        key, signers = self.work / "key", self.work / "allowed_signers"
        key.unlink(missing_ok=True)
        key.touch(0o600)
        form, plain = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        key.write_bytes(private.private_bytes(serialization.Encoding.PEM, form, plain))
        encodings = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        signers.write_text(f"bench {private.public_key().public_bytes(*encodings).decode()}\n")
        return key, signers

    def project(self, name: str, pins: list[str], folders: list[Path]) -> Path:
        """Make and lock a project of exact pins for one GPU that they serve; returns its folder."""
        folder = self.work / name
        folder.mkdir(exist_ok=True)
        quoted = ", ".join(f'"{pin}"' for pin in pins)
        links = ", ".join(f'"{path.absolute()}"' for path in folders)
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        (folder / "envbundle.toml").write_text(
            f'[bundle]\nname = "{name}"\nversion = "1"\npython = "{python}"\n'
            f"[resolve]\nrequirements = [{quoted}]\nfind-links = [{links}]\n"
            "no-index = true\ncomplete = true\n"
            '[target.gpu]\ngpu = "sm_100"\nplatform = "x86_64-manylinux_2_39"\nglibc = "2.17"\n'
            '[package.sgl-kernel]\ncoverage = "any"\n'
        )
        command([*self.envbundle, "lock"], cwd=folder, env=self.env)
        return folder

    def remove(self, *names: str) -> None:
        """Remove what stands under these names in ``work``, and wait until the disk has forgotten it."""
        for name in names:
            path = self.work / name
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)
        os.sync()
