"""The exception tree, split by who must act next.

    EnvbundleError
    ├── UserInputError        the person who typed the command or wrote the manifest     exit 2
    ├── VerdictError          nobody is wrong: the facts refuse                          exit 1
    ├── TrustError            whoever vouches for the bundle: signature, signer, policy  exit 3
    ├── IntegrityError        bytes are not what was promised: hash, size, structure     exit 3
    │   └── FormatError       a document we read is malformed or of an unknown version
    ├── TransferError         the network or the other end; asking again may help        exit 4
    └── HostError             this machine: disk, permissions, missing program           exit 4

Every error carries the fields of a finding first (code, subject, expected, found, hint) and builds its
message from them. Several faults found at once travel in one error as ``findings``. Exit statuses are
given by ``envbundle.cli`` alone. A wrong call order inside the program is a plain ``RuntimeError``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class FindingFields(Protocol):
    """What a finding holds; ``envbundle.spec.finding.Finding`` is the real one."""

    @property
    def code(self) -> str:
        """The stable code."""

    @property
    def severity(self) -> str:
        """error, warning or note."""

    @property
    def subject(self) -> str:
        """What it is about."""

    @property
    def expected(self) -> str:
        """What should be."""

    @property
    def found(self) -> str:
        """What is."""

    @property
    def hint(self) -> str:
        """What to do next."""

    @property
    def offset(self) -> int | None:
        """The byte offset of damage, or None."""


class EnvbundleError(Exception):
    """Base of all errors that a user can meet.

    ``code`` is stable and listed in docs/codes.md; ``subject`` names the file, key, host or path;
    ``offset`` is a byte offset in it where bytes are damaged. ``findings`` holds every fault when more
    than one was found (the first one's fields are then the error's own).
    """

    code: str
    subject: str
    expected: str
    found: str
    hint: str
    offset: int | None
    findings: tuple[FindingFields, ...]

    def __init__(
        self,
        code: str,
        subject: str,
        *,
        expected: str = "",
        found: str = "",
        hint: str = "",
        offset: int | None = None,
        findings: Iterable[FindingFields] = (),
    ) -> None:
        """Build the error from a finding's fields; see the class for what they hold."""
        self.code, self.subject = code, subject
        self.expected, self.found, self.hint, self.offset = expected, found, hint, offset
        self.findings = tuple(findings)
        super().__init__(self._message())

    def _message(self) -> str:
        parts = [f"{self.code}: {self.subject}"]
        if self.offset is not None:
            parts[0] += f" at byte {self.offset}"
        if self.found:
            parts.append(f"found {self.found}")
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.hint:
            parts.append(self.hint)
        return "; ".join(parts)

    @classmethod
    def of(cls, findings: Iterable[FindingFields]) -> EnvbundleError:
        """Return one error of this class that carries all ``findings`` (at least one)."""
        every = tuple(findings)
        first = next((f for f in every if f.severity == "error"), every[0])
        return cls(
            first.code,
            first.subject,
            expected=first.expected,
            found=first.found,
            hint=first.hint,
            offset=first.offset,
            findings=every,
        )


class UserInputError(EnvbundleError):
    """The command line or a document written by a person is wrong."""


class VerdictError(EnvbundleError):
    """Everything was read and understood, and the answer is no."""


class TrustError(EnvbundleError):
    """Nobody trusted vouches for these bytes, or who vouches is not who was asked for."""


class IntegrityError(EnvbundleError):
    """Bytes are not the bytes that were promised."""


class FormatError(IntegrityError):
    """A stored document does not follow docs/format.md."""


class TransferError(EnvbundleError):
    """The network, an index or the other end failed; asking again may help."""


class HostError(EnvbundleError):
    """The machine we run on cannot do it: space, permissions, a missing program, an occupied path."""
