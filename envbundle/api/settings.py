"""Opening what the verbs work on: manifests and their targets. Composition only; rules live in the rooms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import UserInputError
from envbundle.host.files import read_bounded
from envbundle.spec.finding import Finding
from envbundle.spec.manifest_text import parse_manifest
from envbundle.spec.toml_text import decode_toml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from envbundle.spec.manifest import Manifest, TargetSpec

MAX_DOCUMENT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenManifest:
    """A manifest that was read: its file, folder, text and values."""

    path: Path
    text: str
    manifest: Manifest

    @property
    def folder(self) -> Path:
        """Where relative paths of the manifest start."""
        return self.path.parent

    def lock_path(self, target: str) -> Path:
        """Return where the lock of ``target`` stands."""
        return self.folder / f"pylock.{target}.toml"


def open_manifest(path: Path) -> OpenManifest:
    """Read and check a manifest; raises ``UserInputError`` with every fault, or ``HostError``."""
    if not path.exists():
        raise UserInputError(
            "E-NO-MANIFEST",
            str(path),
            found="no such file",
            hint="run `envbundle init`, or name one with --manifest",
        )
    data = read_bounded(path, MAX_DOCUMENT)
    text = decode_toml(data, filename=str(path))
    manifest = parse_manifest(text, filename=str(path))
    _refuse_what_is_not_built(manifest, str(path))
    return OpenManifest(path=path, text=text, manifest=manifest)


def _refuse_what_is_not_built(manifest: Manifest, path: str) -> None:
    """Refuse keys of the agreed manifest that no code carries out yet: silence would be a promise."""
    wanted = []
    if manifest.layout.interpreter == "bundled":
        wanted.append(("layout.interpreter", 'use interpreter = "host" and a Python of that version there'))
    if wanted:
        raise UserInputError.of(
            Finding(
                code="E-NOT-BUILT",
                severity="error",
                subject=f"{path}: {key}",
                expected="what this version of envbundle can do",
                found="a key that is agreed and not carried out yet",
                hint=hint,
            )
            for key, hint in wanted
        )


def choose_targets(manifest: Manifest, wanted: Sequence[str]) -> tuple[TargetSpec, ...]:
    """Return the targets that ``wanted`` names (all without names), in the manifest's order.

    A name is a target's, or a GPU architecture where exactly one target has it. Raises ``UserInputError``
    (E-TARGET-UNKNOWN, E-TARGET-AMBIGUOUS).
    """
    if not manifest.targets:
        raise UserInputError(
            "E-TARGET-MISSING",
            manifest.name,
            found="no [target.NAME] in the manifest",
            hint="add one, as [target.sm_103]",
        )
    if not wanted:
        return manifest.targets
    chosen: dict[str, TargetSpec] = {}
    for text in wanted:
        named = [spec for spec in manifest.targets if spec.target.name == text]
        found = named or [spec for spec in manifest.targets if text in map(str, spec.target.gpus)]
        names = ", ".join(spec.target.name for spec in manifest.targets)
        if not found:
            subject = text or "--arch ''"
            raise UserInputError(
                "E-TARGET-UNKNOWN", subject, expected=f"one of {names}", found="no such target"
            )
        if len(found) > 1:
            both = ", ".join(spec.target.name for spec in found)
            raise UserInputError(
                "E-TARGET-AMBIGUOUS", text, expected="a target's name", found=f"the GPU of {both}"
            )
        chosen[found[0].target.name] = found[0]
    return tuple(spec for spec in manifest.targets if spec.target.name in chosen)
