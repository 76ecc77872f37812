"""What a person reads: first one screen of what is custom here, then every edit with its diff."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.spec.finding import Finding

    from .assemble import Plan
    from .coverage import Coverage
    from .editable import EditableSource
    from .inventory import Inventory
    from .process import Process
    from .rebuild import Rebuilt
    from .survey import Captured, Survey
    from .variables import Variables

_DIFF_LINES = 120
_WORDS = {
    "pristine": "as published",
    "patched": "published, then patched",
    "other-build": "labelled as a published version, but another build",
    "unpublished": "on no index",
    "editable": "installed as editable",
    "vcs": "installed from version control",
    "path": "installed from a folder",
    "archive": "installed from an archive by its address",
    "as-is": "taken from the disk as it is",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that capture found, for people and for programs."""

    out: str
    environment: Mapping[str, Any]
    seen: Survey
    plan: Plan
    inventory: Inventory
    made: Mapping[str, Rebuilt]
    editables: Mapping[str, EditableSource]
    diffs: Mapping[str, Mapping[str, str]]
    variables: Variables
    findings: tuple[Finding, ...]
    coverage: tuple[Coverage, ...] = ()
    process: Process | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer without its findings."""
        return {
            "out": self.out,
            "manifest": f"{self.out}/envbundle.toml",
            "environment": dict(self.environment),
            "distributions": [self._row(item) for item in self.seen.distributions.values()],
            "unowned": list(self.seen.unowned),
            "contested": [
                {"path": path, "claimants": list(names), "winner": winner}
                for path, names, winner in self.plan.contested
                if not path.startswith("bin/")
            ],
            "left_out": {
                "caches": dict(sorted(self.inventory.caches.items())),
                "leftovers": list(self.seen.leftovers),
                "variables": [name for name, _ in self.variables.skipped],
                "secrets": list(self.variables.secrets),
            },
            "sizes": dict(self.sizes),
            "coverage": [row.to_dict() for row in self.coverage],
        }

    def _row(self, item: Captured) -> dict[str, Any]:
        one, made = item.installed, self.made.get(item.name)
        wheel = item.wheel
        value: dict[str, Any] = {
            "name": one.name,
            "version": one.version,
            "class": item.kind,
            "form": item.form,
            "compared": item.compared,
            "differing": item.differing,
            "changed": item.changed,
            "added": item.added,
            "removed": item.removed,
            "missing": item.missing,
            "wheel": None,
            "origin": None,
        }
        if made is not None:
            value["wheel"] = {"filename": made.filename, "sha256": made.sha256, "size": made.size}
        elif wheel is not None:
            value["wheel"] = {"filename": wheel.filename, "sha256": wheel.sha256, "size": wheel.size}
        if one.origin.kind:
            checkout = self.editables[item.name].checkout if item.name in self.editables else None
            value["origin"] = {
                "kind": one.origin.kind,
                "url": one.origin.url,
                "commit": one.origin.commit or (checkout.commit if checkout is not None else ""),
                "remote": checkout.remote if checkout is not None else "",
            }
        return value

    # --- for people

    def text(self) -> str:
        """Return ``report.md``."""
        parts = [self._head(), self._custom(), self._contested(), self._coverage(), self._needs()]
        parts += [self._findings(), self._edits()]
        return "\n".join(part for part in parts if part)

    def summary(self) -> list[str]:
        """Return the lines of what is custom, one a distribution."""
        lines = [self._sentence(item) for item in self.seen.distributions.values() if item.custom]
        unowned = [path for path in self.seen.unowned if not path.startswith(".")]
        if unowned:
            lines.append(f"{_count(len(unowned), 'file')} of no distribution: {_some(unowned)}")
        return lines

    def _sentence(self, item: Captured) -> str:
        label = item.installed.label
        if item.form == "overlay" and item.touched:
            what = _count(len(item.touched), "file")
            verb = "differs" if len(item.touched) == 1 else "differ"
            parts = [("changed", item.changed), ("added", item.added), ("removed", item.removed)]
            told = ", ".join(f"{len(paths)} {word}" for word, paths in parts if paths)
            tail = f"; {_WORDS[item.kind]}" if item.kind not in ("patched", "pristine") else ""
            return f"{what} of {label} {verb} from the published wheel ({told}){tail}"
        origin = item.installed.origin
        sentence = f"{label}: {_WORDS[item.kind]}"
        if item.kind in ("editable", "vcs", "path", "archive"):
            commit = f" at {origin.commit}" if origin.commit else ""
            sentence += f", {origin.url}{commit}"
        if item.form == "wheel" and item.compared and item.wheel is None:
            sentence += f"; {item.differing} of {item.compared} files differ from what envbundle installed"
            sentence += f" ({_some(item.changed)})" if item.changed else ""
        elif item.form == "wheel" and item.compared:
            sentence += f"; {item.differing} of {item.compared} files differ from {item.installed.version}"
            sentence += " as published"
        elif item.form != "wheel":
            sentence += "; its files are those of the published wheel"
        return sentence

    def _head(self) -> str:
        counts: dict[str, int] = {}
        for item in self.seen.distributions.values():
            counts[item.kind] = counts.get(item.kind, 0) + 1
        told = ", ".join(f"{number} {_WORDS[kind]}" for kind, number in sorted(counts.items()))
        rows = "".join(f"| {key} | {value} |\n" for key, value in self.environment.items() if value)
        return (
            f"# What {self.inventory.given} is\n\n"
            f"{len(self.seen.distributions)} distributions ({told}); {len(self.inventory.files)} files of "
            f"{_bytes(self.sizes.get('files', 0))}. Carried beside published wheels: "
            f"{_bytes(self.sizes.get('overlays', 0))} in overlays, "
            f"{_bytes(self.sizes.get('wheels', 0))} in wheels.\n\n"
            f"| | |\n|---|---|\n{rows}"
        )

    def _custom(self) -> str:
        lines = self.summary()
        return "\n## What is custom here\n\n" + (
            "".join(f"- {line}\n" for line in lines)
            if lines
            else "Nothing: every file is a published wheel's.\n"
        )

    def _contested(self) -> str:
        rows: dict[tuple[tuple[str, ...], str], list[str]] = {}
        for path, names, winner in self.plan.contested:
            if not path.startswith("bin/"):
                rows.setdefault((names, winner), []).append(path)
        if not rows:
            return ""
        lines = [
            f"- {_count(len(paths), 'path')} of {' and '.join(names)}: {winner}'s bytes are on the disk "
            f"({_some(paths)})\n"
            for (names, winner), paths in sorted(rows.items())
        ]
        return "\n## Contested paths\n\n" + "".join(lines)

    def _coverage(self) -> str:
        if not self.coverage:
            return ""
        rows = [
            f"| {row.distribution} | {row.arch} | {row.verdict} | {_some(list(row.lacking))} "
            f"| {_some(list(row.never_had))} |\n"
            for row in self.coverage
        ]
        head = (
            "| distribution | GPU | verdict | files that run nothing there | never on the source either |\n"
        )
        return "\n## GPU coverage\n\n" + head + "|---|---|---|---|---|\n" + "".join(rows)

    def _needs(self) -> str:
        lines = [
            f"- dropped, since its name looks like a secret: {name}\n" for name in self.variables.secrets
        ]
        lines += [f"- not carried: {name} ({why})\n" for name, why in self.variables.skipped]
        if self.process is not None:
            argv = " ".join(self.process.argv)
            lines.append(f"- process {self.process.pid}: `{argv[:400]}`\n")
            lines.append(
                f"- it has {len(self.process.inside)} files of the environment mapped, and of the host "
                f"{_some(list(self.process.outside)) or 'nothing unusual'}\n"
            )
        return "\n## Surroundings\n\n" + "".join(lines) if lines else ""

    def _findings(self) -> str:
        if not self.findings:
            return ""
        lines = []
        for finding in self.findings:
            told = f"{finding.found}" + (f"; expected {finding.expected}" if finding.expected else "")
            hint = f" **Next:** {finding.hint}." if finding.hint else ""
            lines.append(f"- `{finding.code}` {finding.subject}: {told}.{hint}\n")
        return "\n## Findings\n\n" + "".join(lines)

    def _edits(self) -> str:
        parts = []
        for name, item in self.seen.distributions.items():
            shown = self.diffs.get(name, {})
            for path in item.touched if item.form == "overlay" else ():
                diff = shown.get(path, "")
                kind = "changed" if path in item.changed else "added" if path in item.added else "removed"
                parts.append(f"\n### {name}: {path.partition('/site-packages/')[2] or path} ({kind})\n\n")
                lines = diff.splitlines()
                if not lines:
                    parts.append("No diff: the file is no text, or its published form is not at hand.\n")
                    continue
                rest = (
                    f"\n... {len(lines) - _DIFF_LINES} more lines in patches/{name}.diff"
                    if lines[_DIFF_LINES:]
                    else ""
                )
                fence = "````" if "```" in diff else "```"
                parts.append(f"{fence}diff\n" + "\n".join(lines[:_DIFF_LINES]) + rest + f"\n{fence}\n")
        for name, source in self.editables.items():
            if source.checkout is not None:
                checkout = source.checkout
                parts.append(
                    f"\n### {name}: the checkout at {checkout.folder}\n\n"
                    f"remote {checkout.remote or 'none'}, commit {checkout.commit}, "
                    f"{_count(len(checkout.untracked), 'untracked file')}"
                    + (f"; uncommitted changes in patches/{name}.git.diff\n" if checkout.diff else "\n")
                )
        return "\n## Edits\n" + "".join(parts) if parts else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
