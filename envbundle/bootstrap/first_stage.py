"""install.pyz, first stage: unpack the parts that fit this Python, check them, become envbundle.

* The standard library alone. The file compiles on Python 3.8, so that an old one is told what it needs.
* ``envbundle-bootstrap.json`` in the archive names, for each Python and machine that is served, the wheels it
  takes, and the size and sha256 of each wheel and of each file in it.
* Compiled modules cannot be imported out of an archive. The parts are unpacked once, below a folder of this
  user's own (mode 0700, on a mount that lets programs run), under a temporary name, then renamed. Each later
  start hashes them again; a part that is not as it should be is unpacked again.
* Nothing here vouches for the archive itself: check its signature by hand first (docs/bare-hosts.md).
"""

# ruff: noqa: PTH100, PTH101, PTH103, PTH104, PTH109, PTH111, PTH112, PTH117, PTH118, PTH120, PTH123
# Paths here are text.
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import io
import json
import os
import platform
import shutil
import stat
import sys
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

INDEX = "envbundle-bootstrap.json"
FOLDER = "envbundle-bootstrap"
AGAIN = "ENVBUNDLE_BOOTSTRAP_PYTHON"  # set once another Python was started, so that no circle can begin
PLACE = "ENVBUNDLE_BOOTSTRAP_CACHE"
_ODD = 0o022  # write permission of others


class Refused(Exception):  # noqa: N818 - it carries a finding
    """The fields of one finding, and the exit status."""

    def __init__(
        self, code: str, subject: str, *, expected: str, found: str, hint: str, status: int = 4
    ) -> None:
        super().__init__(code)
        self.finding = {
            "code": code,
            "severity": "error",
            "subject": subject,
            "expected": expected,
            "found": found,
            "hint": hint,
        }
        self.status = status


def main() -> int:
    """Run envbundle out of this archive and return its exit status."""
    archive = os.path.abspath(os.path.dirname(__file__))
    try:
        with zipfile.ZipFile(archive) as opened:
            index = json.loads(opened.read(INDEX))
            chosen = choose(index, archive)
            site = unpacked(opened, index, chosen)
    except Refused as refused:
        tell(refused.finding)
        return refused.status
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as fault:
        tell(damaged(archive, str(fault)).finding)
        return 3
    os.environ.pop(AGAIN, None)
    sys.path.insert(0, site)
    entry = importlib.import_module("envbundle.cli.main")
    return int(entry.main())


def tell(finding: dict[str, str]) -> None:
    """Say what is wrong, in the form that envbundle has."""
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"findings": [finding]}) + "\n")
        return
    sys.stderr.write("error {code}: {subject}\n  found: {found}\n  expected: {expected}\n".format(**finding))
    sys.stderr.write("  next: {hint}\n".format(**finding))


def damaged(subject: str, found: str) -> Refused:
    """Return the refusal of an archive that is not what was packed."""
    return Refused(
        "E-BOOTSTRAP-DAMAGED",
        subject,
        expected="the parts that were packed",
        found=found,
        hint="copy install.pyz again, and check its sha256 and signature",
        status=3,
    )


# --- which parts


def choose(index: dict[str, Any], archive: str) -> dict[str, Any]:
    """Return the set of parts for this Python; if only another Python here has one, that is started."""
    python, machine, libc = here()
    sets = index["sets"]
    mine: list[dict[str, Any]] = [
        one for one in sets if one["python"] == python and one["machine"] == machine
    ]
    if mine and newer_or_equal(libc, mine[0]["glibc"]):
        return mine[0]
    served = ["{python} on {machine} with glibc {glibc}".format(**one) for one in sets]
    if not mine and AGAIN not in os.environ:
        for one in sets:
            other = shutil.which("python" + one["python"])
            if one["machine"] == machine and other:
                os.environ[AGAIN] = python
                os.execv(other, [other, archive, *sys.argv[1:]])
    names = sorted({"python" + one["python"] for one in sets if one["machine"] == machine})
    system = f"{machine} with glibc {libc}" if libc else f"{machine} with another libc than glibc"
    raise Refused(
        "E-BOOTSTRAP-PYTHON",
        sys.executable or "python",
        expected="CPython " + "; ".join(served),
        found=f"Python {python} on {system}",
        hint="run it with " + " or ".join(names) if names and not mine else "pack for a target like this one",
    )


def here() -> tuple[str, str, str]:
    """Return this Python (``3.N``; ``3.Nt`` is free-threaded), the machine, glibc's version or ''."""
    python = ".".join(map(str, sys.version_info[:2]))
    if sys.implementation.name != "cpython":
        python = sys.implementation.name
    elif "t" in getattr(sys, "abiflags", ""):
        python += "t"
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        name, version = "", ""
    return python, machine, version if name == "glibc" else ""


def newer_or_equal(found: str, floor: str) -> bool:
    """Compare dotted versions."""
    try:
        return [int(part) for part in found.split(".")] >= [int(part) for part in floor.split(".")]
    except ValueError:
        return False


# --- where to


def unpacked(archive: zipfile.ZipFile, index: dict[str, Any], chosen: dict[str, Any]) -> str:
    """Return the folder that holds the parts of ``chosen``, unpacked now or earlier."""
    key = hashlib.sha256(json.dumps([index, chosen], sort_keys=True).encode()).hexdigest()[:20]
    reasons: list[str] = []
    for place in places():
        reason = unfit(place)
        if not reason:
            site = os.path.join(place, key)
            try:
                with locked(place):
                    if not complete(site, index, chosen):
                        unpack(archive, index, chosen, site)
            except OSError as fault:
                reason = fault.strerror or str(fault)
            else:
                return site
        reasons.append(f"{place}: {reason}")
    raise Refused(
        "E-BOOTSTRAP-CACHE",
        "a folder to unpack to",
        expected="a folder of this user's own, on a mount that lets programs run",
        found="; ".join(reasons)[:1500],
        hint=f"name one: {PLACE}=/some/folder python3 install.pyz ...",
    )


def places() -> list[str]:
    """Return the folders to try: the one that was named, alone, or the usual ones."""
    named = os.environ.get(PLACE)
    if named:
        return [os.path.abspath(named)]
    home = os.path.expanduser("~")
    found = [os.environ.get("XDG_CACHE_HOME", ""), os.path.join(home, ".cache")]
    found = [os.path.join(place, FOLDER) for place in found if os.path.isabs(place)]
    shared = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108 - see unfit()
    found += [os.path.join(place, f"{FOLDER}-{os.getuid()}") for place in shared if os.path.isabs(place)]
    found.append(os.path.join(os.getcwd(), f".{FOLDER}-{os.getuid()}"))
    return list(dict.fromkeys(found))


def unfit(place: str) -> str:
    """Make the folder ``place`` if need be; return '' if it is private and may hold programs, else why not.

    In a folder that everybody writes to, the name may have been taken by somebody else: then the owner or
    the mode is wrong, or it is a link.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.makedirs(place, 0o700)
        found = os.lstat(place)
        if not stat.S_ISDIR(found.st_mode):
            return "not a folder"
        if found.st_uid != os.geteuid():
            return "belongs to somebody else"
        if stat.S_IMODE(found.st_mode) & _ODD:
            return "others may write to it"
        os.chmod(place, 0o700)
        if os.statvfs(place).f_flag & getattr(os, "ST_NOEXEC", 8):
            return "mounted noexec"
        if not os.access(place, os.W_OK | os.X_OK):
            return "not writable"
    except OSError as fault:
        return fault.strerror or str(fault)
    return ""


@contextlib.contextmanager
def locked(place: str) -> Iterator[None]:
    """While it is entered no other run unpacks there; a file system without locks is taken as it is."""
    fd = os.open(os.path.join(place, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


# --- the parts


def files_of(index: dict[str, Any], chosen: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Return every file of the chosen wheels: its path, sha256 and size."""
    return {
        path: (digest, size)
        for wheel in chosen["wheels"]
        for path, (digest, size) in index["wheels"][wheel]["files"].items()
    }


def complete(site: str, index: dict[str, Any], chosen: dict[str, Any]) -> bool:
    """Say whether every file stands there with the right bytes."""
    if not os.path.isdir(site):
        return False
    for path, (digest, size) in files_of(index, chosen).items():
        try:
            with open(os.path.join(site, path), "rb") as stream:
                data = stream.read(size + 1)
        except OSError:
            return False
        if hashlib.sha256(data).hexdigest() != digest:
            return False
    return True


def unpack(archive: zipfile.ZipFile, index: dict[str, Any], chosen: dict[str, Any], site: str) -> None:
    """Unpack the chosen wheels to ``site`` by a temporary neighbour and a rename."""
    stage = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(site))
    try:
        for wheel in chosen["wheels"]:
            about = index["wheels"][wheel]
            unpack_wheel(archive, wheel, about, stage)
        if os.path.lexists(site):  # not whole, or changed
            os.rename(site, os.path.join(stage, ".old"))
        os.rename(stage, site)
        shutil.rmtree(os.path.join(site, ".old"), ignore_errors=True)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def unpack_wheel(archive: zipfile.ZipFile, name: str, about: dict[str, Any], stage: str) -> None:
    """Write the files of one wheel below ``stage``: those that the index names, with their hashes."""
    with archive.open(name) as stream:
        data = stream.read(int(about["size"]) + 1)
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise damaged(name, "other bytes")
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        for path, (digest, size) in about["files"].items():
            if os.path.isabs(path) or ".." in path.split("/"):
                raise damaged(name, f"the path {path!r}")
            with wheel.open(path) as stream:
                content = stream.read(size + 1)
            if hashlib.sha256(content).hexdigest() != digest:
                raise damaged(f"{name}: {path}", "other bytes")
            target = os.path.join(stage, path)
            os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
            with open(target, "wb") as out:
                out.write(content)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
