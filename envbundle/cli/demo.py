"""``envbundle demo``: the main job on the embedded example, every command shown as one would type it."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.errors import VerdictError

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--keep",
        default=None,
        metavar="DIR",
        help="leave the example in DIR (which must not exist) to play with",
    )


def execute(args: argparse.Namespace, out: Output) -> int:
    """Run the whole way; each step's exit status is checked against what it must be."""
    if args.keep is not None:
        folder = Path(args.keep)
        folder.mkdir(parents=True)
        return _Demo(folder.resolve(), out).play()
    with tempfile.TemporaryDirectory(prefix="envbundle-demo-") as folder_name:
        return _Demo(Path(folder_name).resolve(), out).play()


class _Demo:
    def __init__(self, folder: Path, out: Output) -> None:
        self.folder, self.out = folder, out
        self.steps: list[dict[str, object]] = []

    def play(self) -> int:
        from envbundle.api.example import write_example

        here = Path.cwd()
        os.environ["ENVBUNDLE_CACHE"] = str(self.folder / "cache")
        example = write_example(self.folder)
        os.environ["ENVBUNDLE_ALLOWED_SIGNERS"] = str(example.allowed_signers)
        os.chdir(self.folder)
        try:
            self._acts()
        finally:
            os.chdir(here)
        self.out.line(
            "\nDemo done: locked, refused, packed, signed, installed, verified; each status was right."
        )
        self.out.answer({"steps": self.steps})
        return 0

    def _acts(self) -> None:
        self._title("Lock for a B300 (sm_103) and an RTX PRO 6000 (sm_120), the hand patch included")
        self._run(0, "lock", "--arch", "sm_103", "--arch", "sm_120")
        self._title("The same for a T4 (sm_75) is refused: the wheel's library holds no code for it")
        self._run(1, "lock", "--arch", "sm_75")
        self._title("Pack both targets into one signed store, and check every byte of it")
        self._run(0, "pack", "--arch", "sm_103", "--arch", "sm_120", "-o", "dist", "--key", "keys/id_ed25519")
        self._run(0, "verify", "dist")
        self._title("Carry one bundle to another place (a stick, a relay, the target)")
        self._run(0, "copy", "dist", "far away/store", "--arch", "sm_103")
        self._title("Install it there, under a prefix with a space; nothing goes live before all is verified")
        self._run(
            0, "install", "far away/store", "--arch", "sm_103", "--prefix", "far away/env", "--no-device"
        )
        self._run(0, "run", "far away/env", "--", "demo-app")
        self._run(0, "verify", "far away/env")
        self._title("One byte changed on the way, and nothing is installed")
        store = self.folder / "far away/store"
        beside = (store / "install.pyz").stat().st_size  # the same bytes are a blob that no bundle names
        blobs = [path for path in (store / "blobs/sha256").iterdir() if path.stat().st_size != beside]
        blob = max(blobs, key=lambda path: path.stat().st_size)
        data = bytearray(blob.read_bytes())
        data[len(data) // 2] ^= 1
        blob.chmod(0o644)
        blob.write_bytes(data)
        self._run(3, "verify", "far away/store")
        self._run(
            3, "install", "far away/store", "--arch", "sm_103", "--prefix", "far away/env2", "--no-device"
        )
        if (self.folder / "far away/env2").exists():
            raise VerdictError("E-DEMO", "far away/env2", expected="nothing installed", found="a prefix")

    def _title(self, text: str) -> None:
        self.out.line(f"\n# {text}")

    def _run(self, expected: int, *words: str) -> None:
        from envbundle.api.demo_step import step

        self.out.line("$ envbundle " + shlex.join(words))
        self.out.flush()
        status, text = step(words)
        self.out.line(text.rstrip("\n"))
        self.steps.append({"command": list(words), "status": status, "expected": expected})
        self.out.line(f"[exit status {status}]")
        if status != expected:
            raise VerdictError(
                "E-DEMO",
                "envbundle " + shlex.join(words),
                expected=f"exit status {expected}",
                found=str(status),
            )
