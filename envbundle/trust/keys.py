"""SSH public keys, their fingerprints, and what a signer is.

* Public keys (RFC 4253 section 6.6, RFC 5656, RFC 8709): Ed25519, ECDSA on the NIST curves, RSA of 2048 bits
  and more. A blob has one form only, so equal keys have equal blobs and equal fingerprints.
* Keys on FIDO devices (``sk-``) and certificates are known by name and refused: not built yet.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Protocol

from .wire import Reader, pack_string

# Kind of key -> signature algorithms that it may use (RSA with SHA-1, ``ssh-rsa``, is not among them).
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
_POINT_SIZE = {"nistp256": 65, "nistp384": 97, "nistp521": 133}
_RSA_BITS = range(2048, 16384 + 1)


class UnsupportedKeyError(ValueError):
    """A key that is well named and that this version cannot use; the message says why."""


def unsupported_kind(kind: str) -> str:
    """Return why keys of ``kind`` are not used, or '' where the kind is supported or unknown."""
    if kind.endswith("-cert-v01@openssh.com"):
        return f"{kind}: certificates are not supported yet"
    if kind.startswith("sk-"):
        return f"{kind}: keys on FIDO security devices are not supported yet"
    if kind == "ssh-dss":
        return "ssh-dss: DSA keys are too weak"
    return ""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key of a supported kind. ``blob`` is its wire form, in the one canonical encoding."""

    blob: bytes

    def __post_init__(self) -> None:
        _check_structure(self.blob)

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Read ``ssh-ed25519 AAAA... [comment]``.

        Raises ``UnsupportedKeyError`` for FIDO keys, certificates, DSA and RSA below 2048 bits,
        ``ValueError`` for anything else that is no key.
        """
        words = text.split(None, 2)
        if len(words) < 2:
            raise ValueError("no key: a key type and base64 data are needed")
        blob = decode_key_data(words[0], words[1])
        return cls(blob)

    @property
    def kind(self) -> str:
        """The key type, as ``ssh-ed25519``."""
        return Reader(self.blob).text("key type")

    @property
    def fingerprint(self) -> str:
        """``SHA256:`` and 43 characters, as ``ssh-keygen -l`` prints it."""
        return fingerprint(self.blob)

    def __str__(self) -> str:
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"

    def require_algorithm(self, algorithm: str) -> None:
        """Raise ``UnsupportedKeyError`` unless a key of this kind may sign with ``algorithm``."""
        if algorithm not in ALGORITHMS[self.kind]:
            raise UnsupportedKeyError(f"signature algorithm {algorithm[:40]} for a key of type {self.kind}")

    def verify(self, algorithm: str, raw: bytes, data: bytes) -> None:
        """Check a signature's octets over ``data``; raises ``ValueError`` with the fault."""
        self.require_algorithm(algorithm)
        from . import algorithms  # noqa: PLC0415  # costs 60 ms; nobody pays who checks nothing

        algorithms.verify(self.blob, algorithm, raw, data)


def fingerprint(blob: bytes) -> str:
    """Return the SHA256 fingerprint of a key blob of any kind."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def decode_key_data(kind: str, data: str) -> bytes:
    """Return the blob that ``data`` (base64) holds; raises ``ValueError`` unless it is of type ``kind``."""
    try:
        blob = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the key data is no base64") from None
    inner = Reader(blob).text("key type")
    if inner != kind:
        raise ValueError(f"the line says {kind}, the key data {inner}")
    return blob


def _check_structure(blob: bytes) -> None:
    reader = Reader(blob)
    kind = reader.text("key type")
    reason = unsupported_kind(kind)
    if reason:
        raise UnsupportedKeyError(reason)
    if kind == "ssh-ed25519":
        if len(reader.string("key")) != 32:
            raise ValueError("an Ed25519 key has 32 bytes")
    elif kind == "ssh-rsa":
        exponent, bits = reader.mpint("exponent"), reader.mpint("modulus").bit_length()
        if bits not in _RSA_BITS:
            raise UnsupportedKeyError(f"an RSA key of {bits} bits; {_RSA_BITS[0]} to {_RSA_BITS[-1]} will do")
        if exponent < 3 or exponent % 2 == 0 or exponent.bit_length() > 64:
            raise ValueError("an RSA exponent that no sound key has")
    elif kind in ALGORITHMS:
        curve = reader.text("curve")
        point = reader.string("point")
        if kind != f"ecdsa-sha2-{curve}" or len(point) != _POINT_SIZE[curve] or point[0] != 4:
            raise ValueError(f"curve {curve} and a point of {len(point)} bytes make no key of type {kind}")
    else:
        raise ValueError(f"unknown key type {kind}")
    reader.done("the key")


class Signer(Protocol):
    """Whoever can sign: a key from a file, or ``envbundle.host.agent.AgentSigner``."""

    @property
    def public_blob(self) -> bytes:
        """The public key in wire form."""

    def sign(self, data: bytes) -> bytes:
        """Return the signature over ``data`` as agents give it: the algorithm's name, then its octets."""


def signature_of(blob: bytes) -> tuple[str, bytes]:
    """Take apart what ``Signer.sign`` returned: algorithm name and octets; raises ``ValueError``."""
    reader = Reader(blob)
    algorithm, raw = reader.text("signature algorithm"), reader.string("signature")
    reader.done("the signature")
    return algorithm, raw


def pack_signature(algorithm: str, raw: bytes) -> bytes:
    """Put together what ``signature_of`` takes apart."""
    return pack_string(algorithm.encode("ascii")) + pack_string(raw)
