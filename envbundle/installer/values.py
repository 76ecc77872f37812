"""Layout, checks, invariants and host requirements of a bundle, held to the manifest's own rules.

A signature says who packed, not that a value has the type or form that the installer counts on. Kinds of
invariants that this version does not know are left to preflight, which names the remedy (E-INVARIANT).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from envbundle.errors import FormatError, UserInputError
from envbundle.spec import text_checks as is_
from envbundle.spec.finding import Finding, findings_of
from envbundle.spec.invariants import KINDS, read_invariant
from envbundle.spec.manifest_reader import Faults, TableReader
from envbundle.spec.prefix import check_prefix
from envbundle.spec.toml_positions import Positions

if TYPE_CHECKING:
    from envbundle.spec.descriptor import Content


def check_values(content: Content) -> None:
    """Raise ``FormatError`` (E-FORMAT, with every fault) where a value is none that a manifest may hold."""
    faults = Faults("bundle", Positions({}, ()))
    layout = TableReader(dict(content.layout), ("layout",), faults)
    layout.text("prefix", check_prefix)
    layout.text("mode", choices=("fixed", "relocatable"))
    layout.text("interpreter", choices=("host", "bundled"))
    layout.text("interpreter-path", is_.interpreter_path)
    layout.boolean("pin-processes")
    requires = TableReader(dict(content.requires), ("requires",), faults)
    requires.text("glibc", is_.glibc)
    requires.text("driver", is_.driver)
    for number, value in enumerate(content.checks):
        table = TableReader(dict(value), ("check", number), faults)
        imports = table.texts("import", is_.module_name)
        run = table.texts("run", is_.argument)
        table.text("network", choices=("denied", "allowed"))
        table.integer("timeout", minimum=1)
        if bool(imports) == bool(run):
            table.fault("E-VALUE", "import", expected="import or run", found="both" if run else "neither")
    for number, value in enumerate(content.invariants):
        if value.get("kind") in KINDS:
            read_invariant(TableReader(dict(value), ("invariant", number), faults))
    if content.serial is not None:
        TableReader({"serial": content.serial}, ("bundle",), faults).integer("serial", minimum=0)
    try:
        faults.raise_any()
    except UserInputError as found:
        raise FormatError.of(_told(finding) for finding in findings_of(found)) from found


def _told(finding: Finding) -> Finding:
    """Return a fault of the manifest's reader as one of a bundle, which has no lines and columns."""
    subject = finding.subject.partition(": ")[2] or "bundle"
    return replace(finding, code="E-FORMAT", subject=subject, hint="do not use this bundle: pack it again")
