"""Keys, signatures and policies for the tests of this room."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from envbundle.errors import EnvbundleError
from envbundle.trust.allowed_signers import AllowedSigners
from envbundle.trust.key_files import FileSigner, read_private_key
from envbundle.trust.keys import PublicKey
from envbundle.trust.policy import TrustPolicy
from envbundle.trust.sshsig import DESCRIPTOR_NAMESPACE, sign

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parent.parent / "data" / "trust"
MESSAGE = (DATA / "message.json").read_bytes()
NOW = datetime(2026, 6, 15, 12, tzinfo=timezone.utc)
KINDS = ("ed25519", "nistp256", "nistp384", "nistp521", "rsa")
"""Golden keys of every kind that is supported."""


def golden(name: str) -> bytes:
    """Return a stored file's bytes."""
    return (DATA / name).read_bytes()


def golden_key(name: str) -> PublicKey:
    """Return a stored public key."""
    return PublicKey.parse(golden(f"{name}.pub").decode())


def private_bytes(key: object, passphrase: bytes | None = None) -> bytes:
    """Return a private key in OpenSSH's format."""
    encryption = (
        serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    )
    assert isinstance(key, (ed25519.Ed25519PrivateKey, ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey))
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, encryption)


def signer(name: str = "alice", kind: str = "ed25519") -> FileSigner:
    """Return the one signer of this name and kind in this test run."""
    return _signer(name, kind)


@cache
def _signer(name: str, kind: str) -> FileSigner:
    assert name
    key: object
    if kind == "ed25519":
        key = ed25519.Ed25519PrivateKey.generate()
    elif kind == "rsa":
        key = rsa.generate_private_key(65537, 2048)
    else:
        key = ec.generate_private_key(
            {"nistp256": ec.SECP256R1(), "nistp384": ec.SECP384R1(), "nistp521": ec.SECP521R1()}[kind]
        )
    return read_private_key(private_bytes(key))


def signed(message: bytes = MESSAGE, by: str = "alice", *, namespace: str = DESCRIPTOR_NAMESPACE) -> bytes:
    """Return an armored signature by the named signer."""
    return sign(message, signer(by), namespace=namespace)


def line(name: str = "alice", options: str = "", principals: str = "") -> str:
    """Return an allowed_signers line for the named signer."""
    words = (principals or f"{name}@test.example", options, str(signer(name).public), f"key of {name}")
    return " ".join(word for word in words if word) + "\n"


def signers(*lines: str) -> AllowedSigners:
    """Return parsed allowed_signers of these lines; local times are UTC."""
    return AllowedSigners.parse("".join(lines).encode(), source="signers", zone=timezone.utc)


def policy(*lines: str, **fields: object) -> TrustPolicy:
    """Return a policy that trusts these lines, judged at ``NOW``."""
    return TrustPolicy(**{"now": NOW, "allowed_signers": (signers(*lines),), **fields})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Demo:
    """Stands for the descriptor: the gate needs no more than its name."""

    name: str

    @classmethod
    def parse(cls, data: bytes) -> Demo:
        """Read the JSON form."""
        return cls(json.loads(data)["name"])


@contextmanager
def may_refuse(*codes: str) -> Iterator[None]:
    """Let pass nothing but our own errors whose code begins with one of ``codes``."""
    try:
        yield
    except EnvbundleError as fault:
        if not fault.code.startswith(codes):
            raise
