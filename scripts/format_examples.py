"""One example of every stored document, made of real bytes by the program's own values and judges.

The story: an application whose settings somebody patched, and a distribution of two small CUDA libraries of
the tests' data, locked and packed for one target and installed. Wheels are built here uncompressed, so their
digests do not hang on a zlib; blobs are encoded by the store's codec, whose line the descriptor states.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.inspection.coverage import Judgement, judge_file, sum_distribution
from envbundle.inspection.scan import scan_file
from envbundle.spec.descriptor import Blob, Content, Descriptor, Exemption, LayerRef
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.layer import BaseFile, Layer, LayerEntry, Segment, WheelRef, sort_entries
from envbundle.spec.lock import (
    DistributionEvidence,
    FileEvidence,
    Lock,
    LockedOverlay,
    LockedPackage,
    LockedWheel,
    OverlayFile,
)
from envbundle.spec.manifest_document import manifest_digest
from envbundle.spec.manifest_text import parse_manifest
from envbundle.spec.receipt import CheckResult, InstalledFile, Receipt
from envbundle.spec.target import Arch, Target
from envbundle.store.codec import codec_line, encode

if TYPE_CHECKING:
    from envbundle.spec.coverage import FileScan

GPU_DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "gpu"
PYTHON = "3.12"
PREFIX = "/opt/demo env"
TOOL = "envbundle 0.1.0"
LEVEL = 1
GPU = Arch.sm(103)

MANIFEST = """\
#:schema ./envbundle.schema.json

[bundle]
name = "demo"
version = "1.0"
python = "3.12"
serial = 7

[resolve]
requirements = ["demo-app==1.0", "demo-kernels==1.0"]
find-links = ["wheels"]
no-index = true

[target.sm_103]
gpu = "sm_103"
platform = "x86_64-manylinux_2_39"
driver = "580"

[target.hopper-blackwell]
gpu = ["sm_90", "sm_100"]
platform = "x86_64-manylinux_2_28"
requirements = ["demo-tuned"]

[[overlay]]
distribution = "demo-app"
base = "1.0"
path = "overlays/demo"
remove = ["demo_app/old.py"]

[package.demo-kernels]
coverage = "files"

[target.sm_103.package.demo-kernels]
exempt = ["demo_kernels/hopper.so"]

[layout]
mode = "relocatable"

[[invariant]]
kind = "driver"
min = "580"

[environment]
DEMO_MODE = "moved"

[[check]]
import = ["demo_app"]
timeout = 60

[[group]]
same-version = ["demo-app", "demo-kernels"]

[source]
gpu = ["sm_120"]
driver = "580.65.06"
glibc = "2.39"
python = "3.12.3"
"""

SETTINGS = '"""Settings that somebody will patch by hand."""\n\nGREETING = "demo-app as published"\n'
PATCHED = SETTINGS.replace("as published", "with the hand patch")
APP = {
    "demo_app/__init__.py": (
        '"""A small application."""\n\nfrom demo_app.settings import GREETING\n\n\n'
        'def main() -> int:\n    """Say who we are."""\n    print(GREETING)\n    return 0\n'
    ),
    "demo_app/old.py": '"""What nobody needs any more."""\n\nOLD = True\n',
    "demo_app/settings.py": SETTINGS,
}


def _record_line(path: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}\n"


@functools.cache
def wheel_files(name: str) -> dict[str, bytes]:
    """Return the members of the wheel of a distribution, RECORD included, in path order."""
    info = f"{name}-1.0.dist-info"
    is_pure = name == "demo_app"
    wheel_lines = ["Wheel-Version: 1.0", "Generator: demo", f"Root-Is-Purelib: {str(is_pure).lower()}"]
    wheel_lines.append(f"Tag: py3-none-{'any' if is_pure else 'manylinux_2_17_x86_64'}")
    metadata_lines = ["Metadata-Version: 2.1", f"Name: {name.replace('_', '-')}", "Version: 1.0"]
    files = {
        f"{info}/METADATA": "".join(f"{line}\n" for line in metadata_lines).encode(),
        f"{info}/WHEEL": "".join(f"{line}\n" for line in wheel_lines).encode(),
    }
    if is_pure:
        files |= {path: text.encode() for path, text in APP.items()}
        files[f"{info}/entry_points.txt"] = b"[console_scripts]\ndemo-app = demo_app:main\n"
    else:
        files["demo_kernels/__init__.py"] = b'"""Kernels for several GPUs."""\n'
        files["demo_kernels/hopper.so"] = (GPU_DATA / "sm90a.so").read_bytes()
        files["demo_kernels/portable.so"] = (GPU_DATA / "ptx90.so").read_bytes()
    record = "".join(_record_line(path, data) for path, data in sorted(files.items())) + f"{info}/RECORD,,\n"
    return dict(sorted((files | {f"{info}/RECORD": record.encode()}).items()))


@functools.cache
def wheel(name: str) -> WheelRef:
    """Return the wheel of a distribution as lock and layer name it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path, data in wheel_files(name).items():
            member = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            member.create_system, member.external_attr = 3, 0o100644 << 16
            archive.writestr(member, data)
    data = out.getvalue()
    tag = "any" if name == "demo_app" else "manylinux_2_17_x86_64"
    return WheelRef(filename=f"{name}-1.0-py3-none-{tag}.whl", sha256=Digest.of(data), size=len(data))


def chunk(name: str) -> bytes:
    """Return the plain bytes of a distribution's only chunk: all files but RECORD, in path order."""
    return b"".join(data for path, data in wheel_files(name).items() if not path.endswith("/RECORD"))


def target() -> Target:
    """Return the example's target."""
    return Target(
        name="sm_103",
        gpus=(GPU,),
        python=PYTHON,
        platform="x86_64-manylinux_2_39",
        glibc="2.39",
        driver="580",
    )


def distribution_layer(name: str) -> Layer:
    """Return a wheel as a layer."""
    plain, entries, offset = chunk(name), [], 0
    scheme = "purelib" if name == "demo_app" else "platlib"
    for path, data in wheel_files(name).items():
        if path.endswith("/RECORD"):
            entry = LayerEntry(
                path=f"{scheme}/{path}", role="record", size=len(data), sha256=Digest.of(data), inline=data
            )
        else:
            segment = Segment(chunk=Digest.of(plain), offset=offset, length=len(data))
            entry = LayerEntry(
                path=f"{scheme}/{path}", size=len(data), sha256=Digest.of(data), segments=(segment,)
            )
            offset += len(data)
        entries.append(entry)
    if name == "demo_app":
        entries.append(
            LayerEntry(path="scripts/demo-app", type="entry-point", mode=0o755, reference="demo_app:main")
        )
    return Layer(
        kind="distribution",
        distribution=name.replace("_", "-"),
        version="1.0",
        entries=sort_entries(entries),
        chunks=((Digest.of(plain), len(plain)),),
        wheel=wheel(name),
    )


def overlay_layer() -> Layer:
    """Return the hand patch as a layer."""
    data = PATCHED.encode()
    return Layer(
        kind="overlay",
        distribution="demo-app",
        version="1.0",
        entries=(
            LayerEntry(
                path="purelib/demo_app/settings.py",
                size=len(data),
                sha256=Digest.of(data),
                segments=(Segment(chunk=Digest.of(data), offset=0, length=len(data)),),
            ),
        ),
        chunks=((Digest.of(data), len(data)),),
        replaces=(BaseFile(path="purelib/demo_app/settings.py", sha256=Digest.of(SETTINGS.encode())),),
        removes=(
            BaseFile(path="purelib/demo_app/old.py", sha256=Digest.of(APP["demo_app/old.py"].encode())),
        ),
    )


def layers() -> tuple[Layer, ...]:
    """Return the bundle's layers in the descriptor's order."""
    return distribution_layer("demo_app"), distribution_layer("demo_kernels"), overlay_layer()


@functools.cache
def scans() -> tuple[tuple[FileScan, Judgement], ...]:
    """Return what the two libraries hold and how they serve the target's GPU."""
    found = []
    for path, data in wheel_files("demo_kernels").items():
        if path.endswith(".so"):
            scan = scan_file(path, data, size=len(data), names=True)
            found.append((scan, judge_file(scan, GPU)))
    return tuple(found)


def exemption() -> Exemption:
    """Return a gap that a person accepted."""
    gap = next(judgement for _, judgement in scans() if judgement.verdict == "none")
    return Exemption(distribution="demo-kernels", path=gap.path, gpu=str(GPU), verdict=gap.verdict)


def lock() -> Lock:
    """Return what ``envbundle lock`` writes for the target."""
    packages = []
    for name in ("demo_app", "demo_kernels"):
        ref = wheel(name)
        locked = LockedWheel(
            filename=ref.filename, sha256=ref.sha256, size=ref.size, path=f"wheels/{ref.filename}"
        )
        packages.append(LockedPackage(name=name.replace("_", "-"), version="1.0", wheel=locked))
    overlay = LockedOverlay(
        distribution="demo-app",
        path="overlays/demo",
        mode="merge",
        base_version="1.0",
        base_wheel=wheel("demo_app").sha256,
        files=(
            OverlayFile(
                path="demo_app/settings.py",
                sha256=Digest.of(PATCHED.encode()),
                size=len(PATCHED.encode()),
                replaces=Digest.of(SETTINGS.encode()),
            ),
        ),
        removes=(("demo_app/old.py", Digest.of(APP["demo_app/old.py"].encode())),),
    )
    evidence = DistributionEvidence(
        distribution="demo-kernels",
        counts=((str(GPU), sum_distribution(judgement for _, judgement in scans())),),
        files=tuple(
            FileEvidence(path=scan.path, entries=scan.entries, counts=((str(GPU), judgement.counts),))
            for scan, judgement in scans()
        ),
    )
    return Lock(
        target=target(),
        manifest=manifest_digest(parse_manifest(MANIFEST, filename="envbundle.toml"), "sm_103", {}),
        tool=TOOL,
        rules="1",
        solver="uv 0.13.9",
        packages=tuple(packages),
        overlays=(overlay,),
        coverage=(evidence,),
        exemptions=(exemption(),),
        requires={"glibc": "2.17"},
    )


def content(lock_text: str) -> Content:
    """Return what is installed; ``lock_text`` is the lock's file."""
    refs = []
    for layer in layers():
        data = layer.to_bytes()
        refs.append(
            LayerRef(
                list=Digest.of(data),
                list_size=len(data),
                kind=layer.kind,
                distribution=layer.distribution,
                version=layer.version,
                origin="published" if layer.kind == "distribution" else "built",
                files=len(layer.entries),
                bytes=layer.file_bytes,
            )
        )
    manifest = parse_manifest(MANIFEST, filename="envbundle.toml")
    site = f"lib/python{PYTHON}/site-packages"
    return Content(
        name="demo",
        version="1.0",
        target=target(),
        layers=tuple(refs),
        lock=Digest.of(lock_text.encode()),
        serial=7,
        provides={f"{site}/demo_app/settings.py": 2, f"{site}/demo_app/old.py": None},
        layout=manifest.layout.to_dict(),
        environment=dict(manifest.environment),
        checks=tuple(check.to_dict() for check in manifest.checks),
        invariants=tuple(item.to_dict() for item in manifest.invariants),
        exemptions=(exemption(),),
        requires={"glibc": "2.17"},
    )


def descriptor(lock_text: str) -> Descriptor:
    """Return the bundle's descriptor."""
    packs = [chunk("demo_app"), chunk("demo_kernels"), PATCHED.encode()]
    documents = [*(layer.to_bytes() for layer in layers()), lock_text.encode(), MANIFEST.encode()]
    blobs = {}
    for plain in (*documents, *packs):
        stored, encoding = encode(plain, level=LEVEL, long=plain in packs)
        blobs[Digest.of(plain)] = Blob(
            blob=Digest.of(stored), size=len(stored), plain_size=len(plain), encoding=encoding
        )
    return Descriptor(
        content=content(lock_text),
        codec=codec_line(LEVEL),
        manifest=Digest.of(MANIFEST.encode()),
        blobs=blobs,
    )


def receipt(lock_text: str) -> Receipt:
    """Return what an install of it left: three files of many."""
    bundle = descriptor(lock_text)
    site = f"lib/python{PYTHON}/site-packages"
    quotes = "'" * 3
    script = f"#!/bin/sh\n{quotes}exec' '{PREFIX}/bin/python' \"$0\" \"$@\"\n' {quotes}\n".encode()
    patched = PATCHED.encode()
    return Receipt(
        bundle_id=bundle.bundle_id,
        content_id=bundle.content_id,
        name="demo",
        version="1.0",
        target=target(),
        prefix=PREFIX,
        generation=f"0001-{bundle.content_id.short}",
        installed_at="2026-12-01T10:00:00Z",
        tool=TOOL,
        trust="verified",
        principal="release@example.org",
        fingerprint="SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
        serial=7,
        interpreter={
            "path": "/usr/bin/python3.12",
            "version": "3.12.3",
            "abi": "cpython-312",
            "libc": "glibc 2.39",
        },
        host={"gpus": ["sm_103"], "driver": "580.65.06", "glibc": "2.39"},
        exemptions=(exemption(),),
        checks=(CheckResult(name="import demo_app", ok=True, seconds=1, isolation="namespace"),),
        findings=(
            Finding(
                code="W-PTX-ONLY",
                severity="warning",
                subject="demo-kernels:demo_kernels/portable.so",
                expected="SASS for sm_103",
                found="PTX of compute_90 alone",
                hint="the driver compiles it at the first start",
            ),
        ),
        reused_bytes=0,
        written_bytes=len(patched) + len(script),
        device=64769,
        files=(
            InstalledFile(
                path="bin/demo-app",
                mode=0o755,
                size=len(script),
                sha256=Digest.of(script),
                source=0,
                fixer="entry-point",
                mtime_ns=1796119200000000000,
                inode=131073,
            ),
            InstalledFile(path="bin/python", type="symlink", link="/usr/bin/python3.12"),
            InstalledFile(
                path=f"{site}/demo_app/settings.py",
                size=len(patched),
                sha256=Digest.of(patched),
                source=2,
                mtime_ns=1796119200000000000,
                inode=131074,
            ),
        ),
    )


def findings() -> tuple[Finding, ...]:
    """Return a refusal, and a fault of bytes with its offset."""
    scan, judgement = next(pair for pair in scans() if pair[1].verdict == "none")
    held = ", ".join(entry.arch for entry in scan.entries)
    damaged = (GPU_DATA / "trunc_mid_fatbin.so").read_bytes()
    fault = next(
        f for f in scan_file("kernels.so", damaged, size=len(damaged)).findings if f.offset is not None
    )
    return (
        Finding(
            code="E-ARCH-FILE",
            severity="error",
            subject=f"demo-kernels:{scan.path}",
            expected=f"code that runs on {GPU}",
            found=f"{judgement.counts.missing} module of {held}",
            hint=f"if nothing calls it there: envbundle lock --accept-gap demo-kernels:{scan.path}",
        ),
        fault,
    )


def answers(lock_text: str) -> dict[str, dict[str, Any]]:
    """Return what each verb prints with ``--json`` for the example."""
    bundle = descriptor(lock_text)
    stored = sum(blob.size for blob in bundle.blobs.values())
    plain = sum(blob.plain_size for blob in bundle.blobs.values())
    rows = []
    for scan, judgement in scans():
        row: dict[str, Any] = {
            "path": scan.path,
            "modules": dict(zip(("total", "empty"), scan.modules, strict=True)),
            "entries": [entry.to_dict() for entry in scan.entries],
            "verdicts": {str(GPU): judgement.counts.summary()},
            "kernels_missing": {str(GPU): list(judgement.kernels_missing)},
        }
        if scan.needs is not None:
            row["needs"] = {
                "sonames": list(scan.needs.sonames),
                "versions": {name: list(wanted) for name, wanted in scan.needs.versions},
                "rpath": list(scan.needs.rpath + scan.needs.runpath),
            }
        rows.append(row)
    total = sum_distribution(judgement for _, judgement in scans())
    return {
        "inspect": {
            "files": rows,
            "distributions": [
                {"name": "demo-kernels", "version": "1.0", "verdicts": {str(GPU): total.summary()}}
            ],
            "findings": [],
        },
        "lock": {
            "targets": {
                "sm_103": {
                    "path": "pylock.sm_103.toml",
                    "status": "written",
                    "packages": 2,
                    "rounds": 1,
                    "findings": [],
                }
            },
            "findings": [],
        },
        "pack": {
            "bundles": {
                "sm_103": {
                    "id": str(bundle.bundle_id),
                    "content_id": str(bundle.content_id),
                    "tag": bundle.tag,
                    "layers": 3,
                    "layers_reused": 0,
                    "chunks": 3,
                    "plain_bytes": plain,
                    "stored_bytes": stored,
                    "new_bytes": stored,
                    "signed_by": "release@example.org",
                }
            },
            "findings": [],
        },
        "copy": {
            "via": "dir",
            "sent": {"blobs": len(bundle.blobs), "bytes": stored},
            "skipped": {"blobs": 0, "bytes": 0},
            "findings": [],
        },
        "verify": {
            "kind": "environment",
            "ok": False,
            "partial": False,
            "signature": {"status": "verified", "principal": "release@example.org"},
            "files": {
                "checked": 11,
                "modified": [f"lib/python{PYTHON}/site-packages/demo_app/settings.py"],
                "missing": [],
                "extra": [],
            },
            "findings": [],
        },
        "install": {
            "bundle": str(bundle.bundle_id),
            "content_id": str(bundle.content_id),
            "prefix": PREFIX,
            "generation": f"0001-{bundle.content_id.short}",
            "reused_bytes": 0,
            "written_bytes": 1024,
            "receipt": f"{PREFIX}/.envbundle/receipt.json",
            "checks": [{"name": "import demo_app", "ok": True, "seconds": 1}],
            "findings": [],
        },
    }


def pretty(value: Any) -> str:
    """JSON for reading; the stored form is canonical."""
    return json.dumps(value, indent=2, ensure_ascii=False)
