"""``install.pyz``: the file that installs bundles on a host with Python and nothing else.

* It holds the first stage (``envbundle/bootstrap/first_stage.py``), the part of envbundle that a far host
  needs, and the wheels of its compiled libraries for the Pythons and machines that are served.
* Which wheels those are is the caller's to find; here their bytes are put together, the same for the same
  wheels on any machine.
* It is an artifact of its own in the store, named by no descriptor, signed in a namespace of its own. It and
  its signature stand beside the layout too, for people without the tool.
"""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import envbundle
from envbundle.errors import IntegrityError
from envbundle.host.files import read_bounded
from envbundle.spec.canonical import canonical
from envbundle.spec.digest import Digest
from envbundle.store.artifact import ArtifactFile, commit_artifact
from envbundle.trust.sshsig import BOOTSTRAP_NAMESPACE, sign

from .source import PACKAGE, archive, own_wheel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from envbundle.store.protocol import Store
    from envbundle.trust.keys import Signer

    from .source import SourcePart

TAG = NAME = "install.pyz"
SIGNATURE_NAME = "install.pyz.sig"
ARTIFACT = "application/vnd.envbundle.bootstrap.v1"
MEDIA = "application/vnd.envbundle.bootstrap.v1+zip"
MEDIA_SIGNATURE = "application/vnd.envbundle.signature.v1.sshsig"
#: The commands that work on a far host, names of the command table.
COMMANDS = ("install", "verify", "run", "generations", "rollback", "gc", "receipt", "history", "explain")
INDEX = "envbundle-bootstrap.json"
FORMAT = 1
_GLIBC = re.compile(r"manylinux_2_([0-9]+)_")
_LEGACY = {"manylinux1_": 5, "manylinux2010_": 12, "manylinux2014_": 17}
_LIMIT = 64 * 1024 * 1024
_SHEBANG = b"#!/usr/bin/env python3\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A wheel that the far host needs. ``origin``: as published, or rebuilt from what is installed here."""

    filename: str
    data: bytes
    origin: Literal["published", "rebuilt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One kind of host that is served: Python ``3.N``, machine, the target's glibc floor, and its wheels."""

    python: str
    machine: str
    glibc: str
    parts: tuple[Part, ...]


def build_bootstrap(served: Sequence[Served], part: SourcePart) -> bytes:
    """Return the bytes of ``install.pyz``; ``part`` is envbundle's own.

    Raises ``IntegrityError``: E-WHEEL-ZIP for a wheel that is none, E-BOOTSTRAP-WHEEL for one that holds
    more than files to unpack side by side.
    """
    name, own = own_wheel(part, envbundle.__version__)
    wheels = {name: Part(filename=name, data=own, origin="rebuilt")}
    wheels |= {each.filename: each for one in served for each in one.parts}
    index = {
        "format": FORMAT,
        "envbundle": envbundle.__version__,
        "sets": [_set(one, name) for one in sorted(served, key=lambda one: (one.python, one.machine))],
        "wheels": {f"wheels/{name}": _about(wheels[name]) for name in sorted(wheels)},
    }
    members = [
        ("__main__.py", read_bounded(PACKAGE / "bootstrap" / "first_stage.py", _LIMIT)),
        (INDEX, canonical(index)),
        *((f"wheels/{name}", wheels[name].data) for name in sorted(wheels)),
    ]
    return archive(members, start=_SHEBANG)


def _set(one: Served, own: str) -> dict[str, Any]:
    floors = [floor for part in one.parts if (floor := _floor(part.filename, one)) is not None]
    return {
        "python": one.python,
        "machine": one.machine,
        "glibc": f"2.{max(floors, default=5)}",
        "wheels": [f"wheels/{own}", *sorted(f"wheels/{part.filename}" for part in one.parts)],
    }


def _floor(filename: str, one: Served) -> int | None:
    """Return the minor glibc version that a wheel's file name asks for, None for a pure one."""
    platforms = filename.removesuffix(".whl").rpartition("-")[2].split(".")
    if platforms == ["any"]:
        return None
    found = [int(match[1]) for text in platforms if (match := _GLIBC.match(text))]
    found += [minor for text in platforms for start, minor in _LEGACY.items() if text.startswith(start)]
    return min(found) if found else int(one.glibc.partition(".")[2])


def _about(part: Part) -> dict[str, Any]:
    """Return what the index says of a wheel: its hash, and that of every file that is unpacked."""
    files: dict[str, list[Any]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(part.data)) as wheel:
            for member in wheel.infolist():
                if not member.is_dir():
                    data = wheel.read(member)
                    files[member.filename] = [Digest.of(data).hex, len(data)]
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as fault:
        raise IntegrityError("E-WHEEL-ZIP", part.filename, expected="a wheel", found=str(fault)) from fault
    for path in files:
        if path.startswith("/") or {"..", ""} & set(path.split("/")) or ".data/" in path:
            raise IntegrityError(
                "E-BOOTSTRAP-WHEEL",
                part.filename,
                expected="a wheel that works as it is unpacked",
                found=ascii(path)[:200],
            )
    return {
        "sha256": Digest.of(part.data).hex,
        "size": len(part.data),
        "origin": part.origin,
        "files": files,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBootstrap:
    """An ``install.pyz`` in a store: its digest and size in bytes, and how many signatures it has."""

    digest: Digest
    size: int
    signatures: int


def commit_bootstrap(store: Store, data: bytes, signers: Sequence[Signer]) -> CommittedBootstrap:
    """Sign ``data`` with every signer and keep it in the store, as an artifact and beside the layout.

    Nothing is visible before all is signed. Raises what signing raises.
    """
    signed = [sign(data, signer, namespace=BOOTSTRAP_NAMESPACE) for signer in signers]
    files = {NAME: data} | {signature_name(number): one for number, one in enumerate(signed)}
    put_bootstrap(store, files)
    return CommittedBootstrap(digest=Digest.of(data), size=len(data), signatures=len(signed))


def signature_name(number: int) -> str:
    """Return the file name of a signature: ``install.pyz.sig``, then ``install.pyz.2.sig``."""
    return f"{NAME}.{number + 1}.sig" if number else SIGNATURE_NAME


def put_bootstrap(store: Store, files: Mapping[str, bytes]) -> None:
    """Keep the bootstrap's files, the artifact first: what stands beside it is compared with it."""
    commit_artifact(
        store,
        tag=TAG,
        artifact=ARTIFACT,
        files=[
            ArtifactFile(name=name, media=MEDIA if name == NAME else MEDIA_SIGNATURE, data=data)
            for name, data in files.items()
        ],
    )
    there = set(store.extras())
    for name, data in files.items():
        if name not in there or store.rehash_extra(name) != Digest.of(data):
            store.put_extra(name, data)
