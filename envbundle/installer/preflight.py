"""Every reason not to install, all at once, before anything is written.

The GPU architectures that a bundle was judged for are the ones it may run on: SASS for ``sm_100a`` runs on no
other chip, whatever its major number, so only the bundle's own list decides. No GPU in sight is no fault (a
login node, a container): a warning that ``no_device`` silences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError, HostError, IntegrityError, UserInputError, VerdictError
from envbundle.host import probe
from envbundle.host.probe import read_version
from envbundle.inspection.cuda import CUDA_OF_ISA, cuda_of_driver
from envbundle.spec.finding import Finding, findings_of
from envbundle.spec.prefix import check_prefix

from .activate import check_environment
from .invariants import INVARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envbundle.spec.descriptor import Content
    from envbundle.spec.finding import Severity

    from .facts import HostFacts
    from .options import InstallOptions
    from .plan import Plan

#: Share of the bytes of sources that bytecode takes, and bytes that envbundle's own files take.
_BYTECODE, _OWN_BYTES, _OWN_FILES = 1.2, 8 << 20, 64
_HOST = frozenset(
    (
        "E-SPACE",
        "E-INODES",
        "E-PREFIX-FOREIGN",
        "E-READ-ONLY",
        "E-PERMISSION",
        "E-NOEXEC",
        "E-NOT-FOUND",
        "E-HOST-PYTHON",
        "E-CASE",
        "E-HOST-TOOL",
        "E-HOST-PATH",
        "E-HOST-LIBRARY",
        "E-HOST-ENV",
        "E-MODEL",
        "E-NO-ISOLATION",
    )
)
_USER = frozenset(("E-PREFIX-CHARS", "E-PREFIX-FIXED", "E-VALUE", "E-ENVIRONMENT", "E-FORMAT"))


def judge(
    content: Content, plan: Plan, facts: HostFacts, options: InstallOptions, *, reused: int = 0
) -> list[Finding]:
    """Return every finding about installing ``content`` on this machine; ``reused`` bytes need no space."""
    return [
        *_prefix(content, facts),
        *_environment(content),
        *_devices(content, facts, options),
        *_driver(content, facts),
        *_system(content, facts),
        *_interpreter(content, facts),
        *_volume(plan, facts, options, reused),
        *_case(plan, facts),
        *invariants(content, facts),
    ]


def refuse(findings: Iterable[Finding]) -> None:
    """Raise one error that carries all ``findings`` if any of them is an error; the class says who must act.

    Where findings of several kinds came together, the one with the highest exit status gives the class.
    """
    every = tuple(findings)
    errors = [finding for finding in every if finding.severity == "error"]
    if not errors:
        return
    order: tuple[type[EnvbundleError], ...] = (HostError, IntegrityError, UserInputError, VerdictError)
    kind = min((_class_of(finding.code) for finding in errors), key=order.index)
    first = next(finding for finding in errors if _class_of(finding.code) is kind)
    raise kind.of([first, *(finding for finding in every if finding is not first)])


def _class_of(code: str) -> type[EnvbundleError]:
    if code in _HOST:
        return HostError
    return UserInputError if code in _USER else VerdictError


def _prefix(content: Content, facts: HostFacts) -> Iterator[Finding]:
    try:
        plain = check_prefix(str(facts.prefix.path))
        check_prefix(str(facts.prefix.home))
    except EnvbundleError as fault:
        yield from findings_of(fault)
        return
    fixed = content.layout.get("prefix") if content.layout.get("mode") == "fixed" else None
    if fixed is not None and fixed != plain:
        yield Finding(
            code="E-PREFIX-FIXED",
            severity="error",
            subject=plain,
            expected=f"the one prefix that the bundle is made for, {fixed}",
            found="another",
            hint='install it there, or pack it with layout.mode = "relocatable"',
        )
    if facts.state == "foreign":
        yield foreign(plain)
    if content.layout.get("interpreter") == "bundled":
        yield Finding(
            code="E-INTERPRETER-BUNDLED",
            severity="error",
            subject="layout.interpreter",
            expected='"host"',
            found='"bundled"',
            hint="this version installs no interpreter: pack with the target's own",
        )


def foreign(prefix: str) -> Finding:
    """Return the finding about a prefix that is not ours."""
    return Finding(
        code="E-PREFIX-FOREIGN",
        severity="error",
        subject=prefix,
        expected="nothing there, or an environment that envbundle installed",
        found="something else at the prefix or at its .generations",
        hint="move it away or choose another prefix",
    )


def _environment(content: Content) -> Iterator[Finding]:
    try:
        check_environment(content.environment)
    except EnvbundleError as fault:
        yield from findings_of(fault)


def _devices(content: Content, facts: HostFacts, options: InstallOptions) -> Iterator[Finding]:
    wanted = content.target.gpus
    if not wanted:
        return
    names = ", ".join(str(arch) for arch in wanted)
    gpus = facts.devices.gpus
    if not gpus:
        if not options.no_device:
            yield Finding(
                code="W-NO-DEVICE",
                severity="warning",
                subject="GPU",
                expected=f"one of {names}",
                found=facts.devices.reason or "none visible",
                hint="fine on a login node or in a container build: --no-device says so",
            )
        return
    fitting = [gpu for gpu in gpus if gpu.arch in wanted]
    for gpu in gpus:
        if gpu in fitting:
            continue
        severity: Severity = "warning" if fitting or options.force_arch else "error"
        yield Finding(
            code="W-GPU-ARCH" if severity == "warning" else "E-GPU-ARCH",
            severity=severity,
            subject=f"GPU {gpu.index}, {gpu.name}",
            expected=f"one of {names}, which the bundle was judged for",
            found=f"{gpu.arch} (compute capability {gpu.capability})",
            hint="pack a bundle for it: lock --arch " + str(gpu.arch),
        )


def _driver(content: Content, facts: HostFacts) -> Iterator[Finding]:
    have = facts.devices.driver
    floors = {floor for floor in (content.target.driver, content.requires.get("driver")) if floor}
    if have is None:
        return
    floor = max(floors, key=read_version, default="0")
    if read_version(have) < read_version(floor):
        yield Finding(
            code="E-DRIVER",
            severity="error",
            subject="NVIDIA driver",
            expected=f"{floor} or newer",
            found=have + (f", which runs CUDA up to {facts.devices.cuda}" if facts.devices.cuda else ""),
            hint="update the driver, or pack for the driver that is there",
        )
    yield from _ptx(content, facts, have)


def _ptx(content: Content, facts: HostFacts, driver: str) -> Iterator[Finding]:
    """Hold the newest PTX that some GPU code of the bundle hangs on against what the driver compiles."""
    stated = content.requires.get("ptx-isa")
    if stated is None or not content.target.gpus:
        return
    isa = read_version(stated)[:2]
    needed = CUDA_OF_ISA.get((isa[0], isa[-1] if len(isa) > 1 else 0))
    try:
        have = read_version(facts.devices.cuda) if facts.devices.cuda else cuda_of_driver(driver)
    except EnvbundleError:
        have = (0, 0)  # older than any driver that is known
    if needed is not None and have < needed:
        yield Finding(
            code="E-PTX-DRIVER",
            severity="error",
            subject="NVIDIA driver",
            expected=f"one that compiles PTX ISA {stated}, as CUDA {needed[0]}.{needed[1]} brings it",
            found=f"{driver}, which runs CUDA up to {have[0]}.{have[1]}",
            hint="update the driver: some GPU code of the bundle is PTX alone",
        )


def _system(content: Content, facts: HostFacts) -> Iterator[Finding]:
    if facts.machine != content.target.machine:
        yield Finding(
            code="E-PLATFORM",
            severity="error",
            subject="machine",
            expected=content.target.machine,
            found=facts.machine,
            hint="this bundle is for another kind of processor",
        )
    floor = max((v for v in (content.target.glibc, content.requires.get("glibc")) if v), key=read_version)
    if facts.glibc is None or read_version(facts.glibc) < read_version(floor):
        yield Finding(
            code="E-GLIBC",
            severity="error",
            subject="glibc",
            expected=f"{floor} or newer",
            found=facts.glibc or "another libc",
            hint="use a newer system, or pack for an older platform",
        )


def _interpreter(content: Content, facts: HostFacts) -> Iterator[Finding]:
    if facts.interpreter is None:
        yield Finding(
            code="E-HOST-PYTHON",
            severity="error",
            subject=f"Python {content.target.python}",
            expected=f"CPython {content.target.python} for {content.target.machine} and glibc",
            found="; ".join(facts.tried)[:500] or "none in PATH or the usual places",
            hint=f"install python{content.target.python}, or name it with --python",
        )


def needs(plan: Plan, *, compile_sources: bool) -> tuple[int, int]:
    """Return bytes and inodes that the planned files take, bytecode and folders counted in."""
    sources = [entry.size for path, (_, entry) in plan.places.items() if path.endswith(".py")]
    folders = {path.rpartition("/")[0] for path in plan.places}
    size = plan.bytes + 512 * len(plan.places) + _OWN_BYTES
    inodes = len(plan.places) + len(folders) + _OWN_FILES
    if compile_sources:
        size += int(_BYTECODE * sum(sources))
        inodes += len(sources) + len(folders)
    return size, inodes


def _volume(plan: Plan, facts: HostFacts, options: InstallOptions, reused: int) -> Iterator[Finding]:
    try:
        volume = probe.volume(facts.prefix.home)
    except HostError as fault:
        yield from findings_of(fault)
        return
    if volume.read_only or not volume.writable:
        yield Finding(
            code="E-READ-ONLY" if volume.read_only else "E-PERMISSION",
            severity="error",
            subject=volume.path,
            expected="a folder that this user may write in",
            found="a read-only file system" if volume.read_only else "no permission",
            hint="choose another prefix, or install as a user that may",
        )
    if volume.noexec:
        yield Finding(
            code="E-NOEXEC",
            severity="error",
            subject=volume.path,
            expected="a file system that programs and libraries may be loaded from",
            found="one mounted noexec",
            hint="mount it with exec, or choose a prefix on another volume",
        )
    size, inodes = needs(plan, compile_sources=options.compile)
    size = max(size - reused, 0)
    if volume.free < size:
        yield Finding(
            code="E-SPACE",
            severity="error",
            subject=volume.path,
            expected=f"{size} bytes free",
            found=f"{volume.free} bytes",
            hint="free space on that volume, or choose a prefix on another",
        )
    if volume.inodes is not None and volume.inodes < inodes:
        yield Finding(
            code="E-INODES",
            severity="error",
            subject=volume.path,
            expected=f"{inodes} free inodes",
            found=str(volume.inodes),
            hint="remove files on that volume, or choose a prefix on another",
        )


def _case(plan: Plan, facts: HostFacts) -> Iterator[Finding]:
    if not probe.folds_case(facts.prefix.home):
        return
    for one, other in probe.twins(plan.places):
        yield Finding(
            code="E-CASE",
            severity="error",
            subject=f"{one} / {other}",
            expected="a file system that tells names apart by case and form",
            found="one that does not",
            hint="choose a prefix on another volume",
        )


def invariants(content: Content, facts: HostFacts) -> list[Finding]:
    """Return what the bundle's invariants find; a kind that this version does not know refuses."""
    found: list[Finding] = []
    for item in content.invariants:
        kind = str(item.get("kind", ""))
        check = INVARIANTS.get(kind)
        if check is None:
            found.append(
                Finding(
                    code="E-INVARIANT",
                    severity="error",
                    subject=ascii(kind)[:80],
                    expected="one of " + ", ".join(sorted(INVARIANTS)),
                    found="a kind that this version does not know",
                    hint="install with the version of envbundle that packed it",
                )
            )
            continue
        found += check(
            {key: value for key, value in item.items() if key != "kind"}, facts, content.environment
        )
    return found
