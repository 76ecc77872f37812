"""Edits of a manifest's text that keep every comment, the order and the layout of what was there.

Whatever an edit makes is read again and must say what it said before plus what was asked for; otherwise
the edit is refused with the lines to add by hand.
"""

from __future__ import annotations

import glob
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from envbundle.errors import EnvbundleError, UserInputError

from .manifest import Manifest, PackagePolicy
from .manifest_text import parse_manifest
from .names import normalise_name
from .toml_positions import KeyPath, dotted, scan
from .toml_writer import value_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def accept_gaps(
    text: str, target: str, gaps: Sequence[tuple[str, str]], *, filename: str = "envbundle.toml"
) -> str:
    """Return the manifest with each gap exempted for one target: ``[target.T.package.DIST] exempt``.

    ``target`` is the name of one of its targets (else a wrong call: ``KeyError``). A gap is (distribution,
    path of the file in its wheel); the path is written as a glob that matches it alone. Gaps that are exempt
    there already change nothing. Raises ``UserInputError``: what ``parse_manifest`` raises, or
    E-MANIFEST-EDIT where the text has a shape that cannot be edited safely.
    """
    before = parse_manifest(text, filename=filename)
    spec = before.spec(target)
    policies = dict(spec.packages)
    wanted: dict[str, list[str]] = {}
    for distribution, path in gaps:
        name, pattern = normalise_name(distribution), glob.escape(path)
        said = policies.get(name, PackagePolicy()).exempt
        if pattern not in said and pattern not in wanted.setdefault(name, []):
            wanted[name].append(pattern)
    for name, patterns in wanted.items():
        if patterns:
            text = _one(text, target, name, patterns, filename)
    return text


def _one(text: str, target: str, name: str, patterns: list[str], filename: str) -> str:
    """Add exemptions to one distribution and prove that nothing else changed."""
    expected = _exempted(parse_manifest(text, filename=filename), target, name, patterns)
    for edit in (_inserted, _edited):
        try:
            edited = edit(text, target, name, patterns)
            if parse_manifest(edited, filename=filename) == expected:
                return edited
        except (EnvbundleError, _ShapeError):  # noqa: PERF203 - the other way is tried, or the person told
            continue
    raise UserInputError(
        "E-MANIFEST-EDIT",
        filename,
        expected="a text that can be edited in place",
        found=f"a shape of [target.{target}] that cannot",
        hint="add by hand: " + "; ".join(_lines(target, name, patterns)),
    )


def exemption_lines(target: str, distribution: str, paths: Sequence[str]) -> tuple[str, str]:
    """Return two lines of TOML that exempt files (paths in the wheel) of a distribution in one target."""
    return _lines(target, normalise_name(distribution), [glob.escape(path) for path in paths])


def _lines(target: str, name: str, patterns: Sequence[str]) -> tuple[str, str]:
    return f"[{dotted(('target', target, 'package', name))}]", f"exempt = {value_of(list(patterns))}"


class _ShapeError(Exception):
    """The text does not fit this way of editing."""


def _exempted(manifest: Manifest, target: str, name: str, patterns: list[str]) -> Manifest:
    """Return what the edited text must say."""
    specs = []
    for spec in manifest.targets:
        policies = dict(spec.packages)
        if spec.target.name == target:
            policy = policies.get(name, PackagePolicy())
            policies[name] = replace(policy, exempt=(*policy.exempt, *patterns))
        specs.append(replace(spec, packages=tuple(sorted(policies.items(), key=lambda item: item[0]))))
    return replace(manifest, targets=tuple(specs))


def _inserted(text: str, target: str, name: str, patterns: list[str]) -> str:
    """Put new lines behind the last statement of the table they belong to.

    So the comments above the next table stay above it, where an editor of parsed TOML would part them.
    """
    blocks = scan(text).blocks
    own = [block for block in blocks if _is_package(block.path, target, name)]
    around = [block for block in blocks if block.path[:2] == ("target", target)]
    if own:
        end, lines = own[-1].end, [_lines(target, name, patterns)[1]]
    elif around:
        end, lines = around[-1].end, ["", *_lines(target, name, patterns)]
    else:
        raise _ShapeError
    stop = text.find("\n", end)
    line_end = "\r\n" if text[max(stop - 1, 0) : stop + 1] == "\r\n" else "\n"
    head, tail = (text[: stop + 1], text[stop + 1 :]) if stop >= 0 else (text + line_end, "")
    return head + "".join(f"{line}{line_end}" for line in lines) + tail


def _edited(text: str, target: str, name: str, patterns: list[str]) -> str:
    """Edit parsed TOML: for lists that are there already, and for tables written inline."""
    import tomlkit  # noqa: PLC0415 - only the packing side edits, and tomlkit is slow to import
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        document = tomlkit.parse(text)
        table: Any = document["target"][target]
        if "package" not in table:
            table["package"] = tomlkit.inline_table()
        packages = table["package"]
        key = next((key for key in packages if normalise_name(key) == name), None)
        if key is None:
            packages[name] = tomlkit.inline_table()
            packages[name]["exempt"] = patterns
        elif "exempt" in packages[key]:
            for pattern in patterns:
                packages[key]["exempt"].append(pattern)
        else:
            packages[key]["exempt"] = patterns
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as fault:
        raise _ShapeError from fault


def _is_package(path: KeyPath, target: str, name: str) -> bool:
    if len(path) != 4 or path[:3] != ("target", target, "package"):
        return False
    return normalise_name(str(path[3])) == name
