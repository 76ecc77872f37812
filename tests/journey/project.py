"""A whole small project on disk, and the command line run on it in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from envbundle.api.example import write_example

if TYPE_CHECKING:
    from pathlib import Path

GREETING = "from demo_app.settings import GREETING; print(GREETING)"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command line gave. ``answer`` is its JSON object."""

    status: int
    answer: dict[str, Any]
    err: str

    @property
    def codes(self) -> list[str]:
        """The codes of the findings that refuse."""
        return [f["code"] for f in self.answer.get("findings", []) if f["severity"] == "error"]


@dataclass(slots=True)
class Project:
    """The embedded example in ``folder``, with its key and signers file."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> Project:
        """Write the example into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        example = write_example(folder)
        return cls(
            folder,
            {
                "ENVBUNDLE_CACHE": str(folder / "cache"),
                "ENVBUNDLE_ALLOWED_SIGNERS": str(example.allowed_signers),
                "HOME": str(folder),
                "PATH": os.environ["PATH"],
            },
        )

    def run(self, *words: str | Path, **env: str) -> Ran:
        """Run ``envbundle WORDS --json`` in the project's folder; no traceback may ever show."""
        done = subprocess.run(
            [sys.executable, "-m", "envbundle", *map(str, words), "--json"],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.stdout.count("\n") == 1, done.stdout + done.stderr
        return Ran(done.returncode, json.loads(done.stdout), done.stderr)

    def ok(self, *words: str | Path, **env: str) -> dict[str, Any]:
        """Run a command line that must end 0 and return its answer."""
        done = self.run(*words, **env)
        assert done.status == 0, (words, done.status, done.answer, done.err)
        return done.answer

    def packed(self, *targets: str) -> Path:
        """Lock and pack ``targets`` and return the store."""
        arch = [word for target in targets for word in ("--arch", target)]
        self.ok("lock", *arch)
        self.ok("pack", *arch, "--key", "keys/id_ed25519", "--no-bootstrap")
        return self.folder / "dist"

    def edit(self, old: str, new: str) -> None:
        """Replace text in the manifest; it must be there."""
        path = self.folder / "envbundle.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))


def new_key(folder: Path, name: str) -> tuple[Path, str]:
    """Write an ed25519 key file and return it with its public line."""
    private = Ed25519PrivateKey.generate()
    path = folder / name
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return path, public.decode()


def python_in(prefix: Path, code: str, **env: str) -> str:
    """Run ``code`` by the environment's interpreter and return what it printed."""
    done = subprocess.run(
        [str(prefix / "bin/python"), "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **env}
    )
    return done.stdout.strip()
