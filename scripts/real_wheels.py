"""Judge published GPU wheels, hold what was read against cuobjdump, and write docs/real-wheels.md.

* Verdicts are those of ``envbundle inspect`` on each wheel as it was published, for the usual eleven GPUs.
* Every shared object and static library of the wheels is also given to NVIDIA's cuobjdump (the wheel
  ``nvidia-cuda-cuobjdump``), and every hundredth stand-alone cubin. Entries must agree, kind and
  architecture by count; a difference has its explanation in ``EXPLAINED``, or the exit status is 1.
* A manifest with a range of versions is locked against the default index, for a GPU that none of them
  serves: its transcript is kept as it is.

``--wheels DIR`` names a folder that has (some of) the wheels; missing ones are fetched into it with pip.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import parse_wheel_filename

from envbundle.api.inspect import inspect
from envbundle.inspection.report import DEFAULT_ARCHS
from envbundle.spec.names import normalise_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
WHEELS = {
    "bitsandbytes": "0.50.2",
    "sgl-kernel": "0.3.21",
    "sglang-kernel": "0.4.10",
    "flashinfer-cubin": "0.6.13",
    "nvidia-nvjpeg": "13.3.2.43",
    "cupy-cuda13x": "14.2.0",
}
CUOBJDUMP = ("nvidia-cuda-cuobjdump", "13.5.37")
ARCHS = [str(arch) for arch in DEFAULT_ARCHS]
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
LIBRARY = re.compile(r"\.(?:so(?:\.[0-9.]+)?|a)$")
EVERY = 100
# What differs, by (distribution, end of the path), and why. Nothing else may differ.
EXPLAINED: dict[tuple[str, str], str] = {
    ("bitsandbytes", "libbitsandbytes_cuda121.so"): (
        "stops at the third cubin, one that CUDA 12.1 wrote, with `Invalid ELF`; "
        "what it lists before is the same, and the file's own table has as many containers as we found"
    ),
}
MANIFEST = """\
[bundle]
name = "kernels"
version = "1"
python = "3.12"

[resolve]
requirements = ["sgl-kernel>=0.3.19,<0.3.22"]

[target.sm_103]
gpu = "sm_103"
platform = "x86_64-manylinux_2_39"
driver = "580"
"""
INTRODUCTION = """\
# Real wheels

Published wheels as `envbundle inspect` judges them, held against NVIDIA's own `cuobjdump`; and a lock that
real versions refuse. Written by `make real-wheels`, which fetches the wheels or takes them from
`WHEELS=<folder>`.

A cell says what a file has for a GPU: `native` (every device module has fitting SASS), `jit` (all run, some
only by PTX, compiled at load), `n of m` (so many of its device modules run), `none`, or `-` (no module with a
kernel). Modules are translation units: one fatbin container each. Stand-alone cubins are alternatives of each
other, so a folder of them is `native` where any is, and the number says how many are.
"""
COMPARISON = """\
`cuobjdump -all` ({program}) was given all {files} shared objects and static libraries of these wheels.
{agreeing} of {files} agree, entry by entry: kind, architecture with its suffix, PTX version, count.
{empty} of them hold no code for NVIDIA's GPUs, and both say so.
"""
CUBINS = """\
Of the {cubins:,} stand-alone cubins of {name}, every hundredth was given to `cuobjdump --list-elf`,
{asked} in all: {differing} differ. It prints no suffix `f` of such a cubin; ours stands in the note that its
compiler left in it, and changes no verdict.
"""
TRANSCRIPT = """\
`envbundle lock --arch sm_103 --verbose` asks the default index, looks into each version that the solver
offers, and ends with exit status {status}:

```text
{transcript}
```
"""
_LISTED = re.compile(r"^Fatbin (\w+) code:\n=+\narch = (\S+)\ncode version = \[(\d+),(\d+)\]", re.MULTILINE)
_CUBIN = re.compile(r"\.(sm_[0-9]+[af]?)\.cubin$", re.MULTILINE)
_HASHED = re.compile(r"(?<=/)[0-9a-f]{40}/")

Entries = Counter[tuple[str, str]]


@dataclass(slots=True)
class Compared:
    """One file as both saw it: entries by (kind, architecture), ours also in other sections."""

    path: str
    modules: int
    ours: Entries
    theirs: Entries
    elsewhere: Entries
    said: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the two sections that cuobjdump reads hold the same for both."""
        return self.ours == self.theirs and not self.elsewhere


@dataclass(slots=True)
class Wheel:
    """One wheel: inspect's answer, and the comparison."""

    name: str
    version: str
    filename: str
    value: dict[str, Any]
    compared: list[Compared] = field(default_factory=list)
    cubins: int = 0
    cubins_asked: int = 0
    cubins_differing: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """Do all of it; 1 where a difference has no explanation or the lock was not refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheels", type=Path, default=ROOT / "build" / "wheels", help="folder of the wheels")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "real-wheels.md")
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "build" / "real-wheels-cache", help="of the lock"
    )
    args = parser.parse_args(argv)
    wheels = []
    with cuobjdump(find_wheel(args.wheels, *CUOBJDUMP)) as program:
        for name, version in WHEELS.items():
            path = find_wheel(args.wheels, name, version)
            print(f"{path.name}", flush=True)
            wheels.append(look_at(name, version, path, program))
    status, transcript = refused_lock(args.cache)
    args.output.write_text(page(wheels, status, transcript), encoding="utf-8")
    unexplained = [
        f"{wheel.name}: {one.path}"
        for wheel in wheels
        for one in wheel.compared
        if not one.agrees and explanation(wheel.name, one) is None
    ]
    unexplained += [f"{wheel.name}: {path}" for wheel in wheels for path in wheel.cubins_differing]
    for line in unexplained:
        print(f"differs, and nobody knows why: {line}", file=sys.stderr)
    if status != 1:
        print(f"the lock ended with {status}, not with 1", file=sys.stderr)
    return 1 if unexplained or status != 1 else 0


def find_wheel(folder: Path, name: str, version: str) -> Path:
    """Return the wheel of that distribution and version in ``folder``, fetched where it is not there."""
    for _ in range(2):
        for path in sorted(folder.glob("*.whl")):
            found = parse_wheel_filename(path.name)
            if (found[0], str(found[1])) == (normalise_name(name), version):
                return path
        fetch(folder, name, version)
    raise SystemExit(f"pip left no wheel of {name} {version} in {folder}")


def fetch(folder: Path, name: str, version: str) -> None:
    """Fetch one wheel for Linux on x86_64 and Python 3.12 with pip, which uv runs."""
    folder.mkdir(parents=True, exist_ok=True)
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    words = ["download", "--no-deps", "--only-binary", ":all:", "--python-version", "3.12", "--quiet"]
    for glibc in (17, 24, 28, 34):
        words += ["--platform", f"manylinux_2_{glibc}_x86_64"]
    words += ["--platform", "manylinux2014_x86_64", "--dest", str(folder), f"{name}=={version}"]
    print(f"fetching {name} {version}", flush=True)
    subprocess.run([uv, "tool", "run", "pip", *words], check=True)


@contextmanager
def cuobjdump(wheel: Path) -> Iterator[str]:
    """Unpack cuobjdump from its wheel for a while; yields the path of the program."""
    with tempfile.TemporaryDirectory(prefix="cuobjdump-") as folder, zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith("/bin/cuobjdump"))
        program = Path(archive.extract(member, folder))
        program.chmod(0o755)
        yield str(program)


def look_at(name: str, version: str, path: Path, program: str) -> Wheel:
    """Inspect a wheel, and give its libraries and some of its cubins to cuobjdump."""
    wheel = Wheel(name, version, path.name, inspect([str(path)]).value)
    files = {file["path"].removeprefix(f"{path}/"): file for file in wheel.value["files"]}
    wheel.value["files"] = [{**file, "path": member} for member, file in files.items()]
    cubins = [member for member in files if member.endswith(".cubin")]
    wheel.cubins = len(cubins)
    asked = set(cubins[::EVERY])
    wheel.cubins_asked = len(asked)
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member in asked:
                with extracted(archive, member) as file:
                    found = _CUBIN.search(run([program, "--list-elf", file])[1])
                (entry,) = files[member]["entries"]
                if found is None or found[1].rstrip("f") != entry["arch"].rstrip("f"):
                    wheel.cubins_differing.append(member)
            elif LIBRARY.search(member):
                with extracted(archive, member) as file:
                    wheel.compared.append(compare(member, files.get(member), program, file))
    return wheel


@contextmanager
def extracted(archive: zipfile.ZipFile, member: str) -> Iterator[str]:
    """Write one member to the disk for a while, under its own name."""
    with tempfile.TemporaryDirectory(prefix="real-wheels-") as folder:
        target = Path(folder, member.rpartition("/")[2])
        with archive.open(member) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        yield str(target)


def compare(member: str, ours: dict[str, Any] | None, program: str, file: str) -> Compared:
    """Return what both tools list of one library."""
    _, listing, said = run([program, "-all", file])
    return compared(member, ours, listing, said)


def compared(member: str, ours: dict[str, Any] | None, listing: str, said: str) -> Compared:
    """Return the comparison of inspect's answer for one file with cuobjdump's listing of it."""
    theirs: Entries = Counter()
    for kind, arch, major, minor in _LISTED.findall(listing):
        if kind == "elf":
            theirs["sass", arch] += 1
        else:
            theirs[kind, f"{arch.replace('sm_', 'compute_')} ({major}.{minor})"] += 1
    mine: Entries = Counter()
    elsewhere: Entries = Counter()
    for entry in ours["entries"] if ours else ():
        arch = entry["arch"] + (f" ({entry['isa']})" if entry["isa"] else "")
        (mine if entry["section"] in SECTIONS else elsewhere)[entry["kind"], arch] += entry["modules"]
    return Compared(member, ours["modules"]["total"] if ours else 0, mine, theirs, elsewhere, said)


def run(words: Sequence[str], **more: Any) -> tuple[int, str, str]:
    """Run a program; returns (exit status, output, what it said)."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, errors="replace", **more)
    return done.returncode, done.stdout, done.stderr.strip()


def explanation(name: str, one: Compared) -> str | None:
    """Return why a file differs, or None where nobody wrote it down.

    All that is explained is that cuobjdump gives up: what it listed until then must agree.
    """
    for (who, end), why in EXPLAINED.items():
        if who == name and one.path.endswith(end):
            return why if one.said and not one.theirs - one.ours else None
    return None


def refused_lock(cache: Path) -> tuple[int, str]:
    """Lock ``MANIFEST`` against the default index; returns exit status and transcript."""
    with tempfile.TemporaryDirectory(prefix="real-wheels-") as folder:
        Path(folder, "envbundle.toml").write_text(MANIFEST, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "envbundle", "lock", "--arch", "sm_103", "--verbose"],
            cwd=folder,
            env={**os.environ, "ENVBUNDLE_CACHE": str(cache.absolute())},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return done.returncode, done.stdout


# --- the page


def page(wheels: Sequence[Wheel], status: int, transcript: str) -> str:
    """Return the whole document."""
    parts = [
        INTRODUCTION,
        "## Distributions\n",
        table(["distribution", *_short(ARCHS)], map(_summary, wheels)),
    ]
    for wheel in wheels:
        parts += [f"## {wheel.name} {wheel.version}\n", f"`{wheel.filename}`\n"]
        parts.append(table(["file", *_short(ARCHS)], _rows(wheel)))
    parts += ["## Held against cuobjdump\n", _comparison(wheels)]
    parts += ["## A range of versions that none can serve\n", "The manifest:\n", f"```toml\n{MANIFEST}```\n"]
    parts.append(TRANSCRIPT.format(status=status, transcript=transcript.rstrip()))
    return "\n".join(parts)


def _short(archs: Sequence[str]) -> list[str]:
    return [arch.removeprefix("sm_") for arch in archs]


def table(head: Sequence[str], rows: Iterator[list[str]] | Sequence[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def cell(row: dict[str, Any], *, union: bool = False) -> str:
    """Return one verdict as the tables show it; ``union`` for alternatives of each other."""
    runs, total = row["native"] + row["jit"], row["native"] + row["jit"] + row["missing"]
    if row["verdict"] == "no-gpu-code":
        return "-"
    if union and row["verdict"] != "none" and runs < total:
        return f"{row['verdict']} ({runs})"
    return f"{runs} of {total}" if row["verdict"] == "partial" else str(row["verdict"])


def _summary(wheel: Wheel) -> list[str]:
    (row,) = wheel.value["distributions"]
    only_cubins = all(file["path"].endswith(".cubin") for file in wheel.value["files"])
    return [
        f"{wheel.name} {wheel.version}",
        *(cell(row["verdicts"][arch], union=only_cubins) for arch in ARCHS),
    ]


def _rows(wheel: Wheel) -> Iterator[list[str]]:
    folders: dict[str, list[dict[str, Any]]] = {}
    for file in wheel.value["files"]:
        if file["path"].endswith(".cubin"):
            folders.setdefault(_HASHED.sub("", file["path"]).rpartition("/")[0], []).append(file)
        elif file["modules"]["total"]:
            yield [f"`{file['path']}`", *(cell(file["verdicts"][arch]) for arch in ARCHS)]
    for folder, files in sorted(folders.items()):
        cells = []
        for arch in ARCHS:
            native = sum(file["verdicts"][arch]["native"] for file in files)
            cells.append(f"native ({native})" if native else "none")
        yield [f"`{folder}/`, {len(files):,} cubins", *cells]


def _comparison(wheels: Sequence[Wheel]) -> str:
    every = [(wheel, one) for wheel in wheels for one in wheel.compared]
    holding = [(wheel, one) for wheel, one in every if one.ours or one.theirs or one.elsewhere]
    agreeing = sum(one.agrees for _, one in every)
    rows = []
    for wheel, one in holding:
        told = "the same" if one.agrees else explanation(wheel.name, one) or "unexplained"
        entries = str(sum(one.ours.values()))
        rows.append([wheel.name, f"`{one.path}`", str(one.modules), entries, _held(one.ours), told])
    text = COMPARISON.format(
        program=" ".join(CUOBJDUMP), files=len(every), agreeing=agreeing, empty=len(every) - len(holding)
    )
    text += "\n" + table(["wheel", "file", "modules", "entries", "which", "cuobjdump"], rows)
    for wheel in wheels:
        if wheel.cubins:
            differing = len(wheel.cubins_differing) or "none"
            text += "\n" + CUBINS.format(
                cubins=wheel.cubins, name=wheel.name, asked=wheel.cubins_asked, differing=differing
            )
    return text


def _held(entries: Entries) -> str:
    order = sorted(entries.items(), key=lambda item: (item[0][0] != "sass", _number(item[0][1]), item[0][1]))
    return ", ".join(f"{arch.removeprefix('sm_')} x {count}" for (_, arch), count in order)


def _number(arch: str) -> int:
    match = re.search(r"[0-9]+", arch)
    return int(match[0]) if match else 0


if __name__ == "__main__":
    sys.exit(main())
