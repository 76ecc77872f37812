"""``Finding``: one thing that was noticed, in the same six fields everywhere.

JSON form: ``{"code", "severity", "subject", "expected", "found", "hint"}`` and, for damaged bytes,
``"offset"`` in bytes. Codes are listed in docs/codes.md and by ``envbundle explain``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from .fields import Fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envbundle.errors import EnvbundleError

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[str, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``code`` is stable; ``subject`` names the file, key, path or host; the rest are for people."""

    code: str
    severity: Severity
    subject: str
    expected: str = ""
    found: str = ""
    hint: str = ""
    offset: int | None = None

    @classmethod
    def from_dict(cls, value: Any, where: str = "finding") -> Finding:
        """Read the JSON form; raises ``FormatError`` with the path ``where``."""
        fields = Fields(value, where)
        finding = cls(
            code=fields.text("code"),
            severity=cast("Severity", fields.choice("severity", SEVERITIES)),
            subject=fields.text("subject"),
            expected=fields.text("expected", ""),
            found=fields.text("found", ""),
            hint=fields.text("hint", ""),
            offset=fields.opt_integer("offset"),
        )
        fields.done()
        return finding

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        value: dict[str, Any] = {
            "code": self.code,
            "severity": self.severity,
            "subject": self.subject,
            "expected": self.expected,
            "found": self.found,
            "hint": self.hint,
        }
        if self.offset is not None:
            value["offset"] = self.offset
        return value


def findings_of(error: EnvbundleError) -> tuple[Finding, ...]:
    """Return the findings that an error carries, or the error itself as one finding."""
    if error.findings:
        return tuple(
            Finding(
                code=f.code,
                severity=cast("Severity", f.severity),
                subject=f.subject,
                expected=f.expected,
                found=f.found,
                hint=f.hint,
                offset=f.offset,
            )
            for f in error.findings
        )
    return (
        Finding(
            code=error.code,
            severity="error",
            subject=error.subject,
            expected=error.expected,
            found=error.found,
            hint=error.hint,
            offset=error.offset,
        ),
    )


def errors_in(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return those findings that refuse."""
    return tuple(f for f in findings if f.severity == "error")
