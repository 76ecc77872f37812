"""Keys that must not be trusted any more, whoever listed them: text, or OpenSSH's binary KRL.

* Text: one key a line, as in a ``.pub`` file, or a fingerprint (``SHA256:...``); ``#`` begins a comment.
* KRL (PROTOCOL.krl): explicit keys and SHA-1 or SHA-256 fingerprints count. Revoked certificates say nothing
  about plain keys and are passed over. A signed KRL or a critical extension is refused, not half obeyed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

from envbundle.errors import UserInputError
from envbundle.spec.finding import Finding

from .keys import decode_key_data
from .lines import numbered_lines
from .wire import Reader

_KRL_MAGIC = b"SSHKRL\n\0"
_FINGERPRINT = re.compile(r"(?:hash:\s*)?SHA256:([A-Za-z0-9+/]{43})=?", re.IGNORECASE)
_CERTIFICATES, _KEYS, _SHA1, _SIGNATURE, _SHA256, _EXTENSION = 1, 2, 3, 4, 5, 255


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationList:
    """Digests of revoked key blobs."""

    sha256: frozenset[bytes] = frozenset()
    sha1: frozenset[bytes] = frozenset()

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> RevocationList:
        """Read either form; raises ``UserInputError`` (E-REVOKED-LIST), for text with every faulty line."""
        if data.startswith(_KRL_MAGIC):
            try:
                return _parse_krl(data)
            except ValueError as fault:
                raise UserInputError(
                    "E-REVOKED-LIST", source, expected="a key revocation list", found=str(fault)
                ) from None
        return _parse_text(data, source)

    def revokes(self, blob: bytes) -> bool:
        """Say whether the key with this wire form is revoked."""
        if hashlib.sha256(blob).digest() in self.sha256:
            return True
        # KRLs may name keys by SHA-1; that is their format, nothing is trusted because of it.
        return bool(self.sha1) and hashlib.sha1(blob, usedforsecurity=False).digest() in self.sha1


def _parse_text(data: bytes, source: str) -> RevocationList:
    digests: set[bytes] = set()
    faults: list[Finding] = []
    for number, line in numbered_lines(data, source, "E-REVOKED-LIST"):
        try:
            digests.add(_line_digest(line))
        except ValueError as fault:  # noqa: PERF203  # every faulty line is told at once
            faults.append(
                Finding(
                    code="E-REVOKED-LIST",
                    severity="error",
                    subject=f"{source}:{number}",
                    expected="a public key or SHA256:<fingerprint>",
                    found=str(fault),
                )
            )
    if faults:
        raise UserInputError.of(faults)
    return RevocationList(sha256=frozenset(digests))


def _line_digest(line: str) -> bytes:
    match = _FINGERPRINT.match(line)
    if match and (match.end() == len(line) or line[match.end()] in " \t#"):
        try:
            return base64.b64decode(match[1] + "=", validate=True)
        except binascii.Error as fault:
            raise ValueError(f"a damaged fingerprint: {fault}") from None
    words = line.split(None, 2)
    if len(words) < 2:
        raise ValueError(f"{line[:60]!r}")
    return hashlib.sha256(decode_key_data(words[0], words[1])).digest()


def _parse_krl(data: bytes) -> RevocationList:
    reader = Reader(data)
    reader.take(len(_KRL_MAGIC), "magic")
    version = reader.uint32("format version")
    if version != 1:
        raise ValueError(f"format version {version}; only 1 is known")
    for what in ("list version", "date", "flags"):
        reader.uint64(what)
    reader.string("reserved field")
    reader.string("comment")
    sha256: set[bytes] = set()
    sha1: set[bytes] = set()
    while reader.left:
        kind = reader.take(1, "section type")[0]
        if kind == _SIGNATURE:
            raise ValueError("a signed list, which is not supported; make one without ssh-keygen -s")
        section = Reader(reader.string("section"))
        if kind == _KEYS:
            while section.left:
                sha256.add(hashlib.sha256(section.string("key")).digest())
        elif kind in (_SHA1, _SHA256):
            size, digests = (20, sha1) if kind == _SHA1 else (32, sha256)
            while section.left:
                digest = section.string("fingerprint")
                if len(digest) != size:
                    raise ValueError(f"a fingerprint of {len(digest)} bytes where {size} are due")
                digests.add(digest)
        elif kind == _EXTENSION:
            name = section.string("extension name")
            if section.take(1, "extension flag") != b"\0":
                raise ValueError(f"an unknown critical extension {name[:60]!r}")
        elif kind != _CERTIFICATES:
            raise ValueError(f"an unknown section of type {kind}")
    return RevocationList(sha256=frozenset(sha256), sha1=frozenset(sha1))
