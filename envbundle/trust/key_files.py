"""Key files: ``.pub`` files; private keys in OpenSSH's own format (PROTOCOL.key) and PEM (PKCS #8, #1, SEC1).

* An encrypted key asks for its passphrase once; its header says so before anything is decrypted.
* What cannot sign here (FIDO, DSA, short RSA) is refused by its public half, which is never encrypted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING

from envbundle.errors import UserInputError

from .keys import PublicKey, UnsupportedKeyError, unsupported_kind
from .wire import Reader

if TYPE_CHECKING:
    from .algorithms import PrivateKey

Passphrase = Callable[[], bytes]
"""Asks whoever owns the key; called only for an encrypted key, and once."""

_MAGIC = b"openssh-key-v1\0"
_MAX_SIZE = 64 * 1024
_KINDS = "an Ed25519, ECDSA (NIST curve) or RSA (2048 bits or more) key"


class FileSigner:
    """A private key that was read from a file and now is in memory."""

    def __init__(self, key: PrivateKey, public: PublicKey) -> None:
        """Hold ``key``, whose public half is ``public``; ``read_private_key`` makes both."""
        self._key = key
        self.public = public

    @property
    def public_blob(self) -> bytes:
        """The public key in wire form."""
        return self.public.blob

    def sign(self, data: bytes) -> bytes:
        """Return the signature over ``data``; RSA keys use SHA-512."""
        from . import algorithms  # noqa: PLC0415  # already loaded: the key is one of its objects

        return algorithms.sign(self._key, data)


def read_public_key(data: bytes, *, source: str = "key") -> PublicKey:
    """Read a ``.pub`` file's bytes, as for naming a key that ssh-agent holds.

    Raises ``UserInputError``: E-KEY-FORMAT (no public key) or E-KEY-KIND (a kind that cannot sign here).
    """
    try:
        return PublicKey.parse(data[:_MAX_SIZE].decode("utf-8").strip())
    except UnsupportedKeyError as reason:
        raise UserInputError("E-KEY-KIND", source, expected=_KINDS, found=str(reason)) from None
    except ValueError as fault:
        raise UserInputError(
            "E-KEY-FORMAT", source, expected="a public key, as in a .pub file", found=str(fault)[:200]
        ) from None


def read_private_key(data: bytes, passphrase: Passphrase | None = None, *, source: str = "key") -> FileSigner:
    """Read a private key file's bytes.

    ``source`` names the file in messages. ``passphrase`` is called for an encrypted key only. Raises
    ``UserInputError``: E-KEY-FORMAT (no private key, damaged), E-KEY-KIND (a kind that cannot sign here),
    E-KEY-PASSPHRASE (needed and not given, or wrong), E-KEY-BCRYPT (the module that these keys need is not
    there).
    """
    if len(data) > _MAX_SIZE:
        raise _bad_key(source, f"{len(data)} bytes")
    encrypted = _is_encrypted(data, source)
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm  # noqa: PLC0415  # lazy
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    openssh = b"-----BEGIN OPENSSH PRIVATE KEY-----" in data
    load = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
    if encrypted and openssh:
        _need_bcrypt(source)
    if encrypted and passphrase is None:
        raise UserInputError(
            "E-KEY-PASSPHRASE",
            source,
            found="an encrypted key and no passphrase",
            hint="run where it can be asked for, or load the key into ssh-agent",
        )
    secret = passphrase() if encrypted and passphrase is not None else None
    try:
        key = load(data, secret)
    except UnsupportedAlgorithm as fault:
        raise UserInputError("E-KEY-KIND", source, found=str(fault)[:200], expected=_KINDS) from None
    except (ValueError, TypeError, NotImplementedError, InternalError) as fault:  # seen for damaged bytes
        if encrypted:
            raise UserInputError(
                "E-KEY-PASSPHRASE", source, found="a wrong passphrase, or a damaged file", hint="try again"
            ) from None
        raise _bad_key(source, str(fault)[:200]) from None
    return _file_signer(key, source)


def _bad_key(source: str, found: str, hint: str = "") -> UserInputError:
    expected = "a private key, OpenSSH or PEM"
    return UserInputError("E-KEY-FORMAT", source, expected=expected, found=found, hint=hint)


def _file_signer(key: object, source: str) -> FileSigner:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  # lazy, see algorithms
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415

    if not isinstance(key, (ed25519.Ed25519PrivateKey, ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise UserInputError("E-KEY-KIND", source, expected=_KINDS, found=type(key).__name__)
    openssh = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    try:
        public = PublicKey.parse(key.public_key().public_bytes(*openssh).decode("ascii"))
    except (ValueError, UnsupportedAlgorithm) as fault:
        raise UserInputError("E-KEY-KIND", source, expected=_KINDS, found=str(fault)[:200]) from None
    return FileSigner(key, public)


def _is_encrypted(data: bytes, source: str) -> bool:
    """Say so from the file's own header, and refuse what is no private key with the likeliest reason."""
    stripped = data.strip()
    if stripped.startswith((b"ssh-", b"ecdsa-", b"sk-")):
        raise _bad_key(source, "a public key", "name the private key, or load it into ssh-agent")
    if b"-----BEGIN OPENSSH PRIVATE KEY-----" in stripped:
        body = stripped.partition(b"-----BEGIN OPENSSH PRIVATE KEY-----")[2].partition(b"-----END")[0]
        try:
            reader = Reader(base64.b64decode(body))
            if reader.take(len(_MAGIC), "magic") != _MAGIC:
                raise ValueError("wrong magic")  # noqa: TRY301  # one way out for all damage
            cipher = reader.text("cipher")
            reader.string("key derivation")
            reader.string("its options")
            reader.uint32("number of keys")
            kind = Reader(reader.string("public key")).text("key type")
        except (binascii.Error, ValueError) as fault:
            raise _bad_key(source, str(fault)) from None
        reason = unsupported_kind(kind)
        if reason:
            raise UserInputError("E-KEY-KIND", source, expected=_KINDS, found=reason)
        return cipher != "none"
    if not (stripped.startswith(b"-----BEGIN ") and b"PRIVATE KEY-----" in stripped):
        raise _bad_key(source, "something else")
    return b"BEGIN ENCRYPTED PRIVATE KEY" in stripped or b"Proc-Type: 4,ENCRYPTED" in stripped


def _need_bcrypt(source: str) -> None:
    try:
        import bcrypt  # noqa: F401, PLC0415  # cryptography would only say that it misses it
    except ImportError:
        raise UserInputError(
            "E-KEY-BCRYPT",
            source,
            found="an encrypted OpenSSH key, and no module bcrypt",
            hint="pip install bcrypt, or load the key into ssh-agent and sign with that",
        ) from None
