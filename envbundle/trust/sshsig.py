"""SSHSIG: signatures over files as ``ssh-keygen -Y sign`` makes them (OpenSSH's PROTOCOL.sshsig).

* Strict where OpenSSH is lenient: one signature and nothing around it, canonical base64, no bytes left over.
* The message's hash is SHA-256 or SHA-512; RSA signs with SHA-2 only; the reserved field must be empty.
* A signature always belongs to a namespace, so one made for another purpose never vouches for a bundle.
* Ed25519 and RSA signatures made here are the very bytes that ssh-keygen makes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

from envbundle.errors import HostError, TrustError

from .keys import PublicKey, Signer, UnsupportedKeyError, pack_signature, signature_of
from .wire import Buffer, Reader, pack_string

DESCRIPTOR_NAMESPACE = "envbundle"
BOOTSTRAP_NAMESPACE = "envbundle-bootstrap"

MAX_ARMOR = 16 * 1024
_MAGIC = b"SSHSIG"
_VERSION = 1
_HASHES = ("sha256", "sha512")
_LINE = 70
_ARMOR = re.compile(
    rb"-----BEGIN SSH SIGNATURE-----\n((?:[A-Za-z0-9+/=]{1,80}\n)+)-----END SSH SIGNATURE-----\n?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One parsed signature; parsing has not checked it against any message.

    ``namespace`` is what it was made for; ``hash_name`` hashed the message; ``algorithm`` and ``raw`` are the
    signature proper by ``key``.
    """

    key: PublicKey
    namespace: str
    hash_name: str
    algorithm: str
    raw: bytes

    @classmethod
    def parse(cls, armored: bytes, *, subject: str = "signature") -> Signature:
        """Read a ``.sig`` file; raises ``TrustError``: E-SIG-BAD (malformed) or E-SIG-UNSUPPORTED."""
        try:
            return _parse_blob(_dearmor(armored))
        except UnsupportedKeyError as fault:
            raise TrustError(
                "E-SIG-UNSUPPORTED",
                subject,
                found=str(fault),
                hint="sign again with an Ed25519, ECDSA or RSA (2048 bits or more) key",
            ) from None
        except ValueError as fault:
            raise TrustError("E-SIG-BAD", subject, expected="an SSH signature", found=str(fault)) from None

    def to_blob(self) -> bytes:
        """Return the wire form."""
        return b"".join(
            (
                _MAGIC,
                _VERSION.to_bytes(4, "big"),
                pack_string(self.key.blob),
                pack_string(self.namespace.encode()),
                pack_string(b""),
                pack_string(self.hash_name.encode()),
                pack_string(pack_signature(self.algorithm, self.raw)),
            )
        )

    def __bytes__(self) -> bytes:
        """Return the armored form, in lines of 70 characters as ssh-keygen writes them."""
        text = base64.b64encode(self.to_blob())
        lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
        return b"\n".join((b"-----BEGIN SSH SIGNATURE-----", *lines, b"-----END SSH SIGNATURE-----", b""))

    def verify(self, message: Buffer, *, subject: str = "signature") -> None:
        """Check that ``key`` signed ``message`` for ``namespace``; raises ``TrustError`` (E-SIG-BAD).

        Says nothing about whether anybody trusts the key.
        """
        try:
            self.key.verify(self.algorithm, self.raw, blob_to_sign(message, self.namespace, self.hash_name))
        except ValueError as fault:
            raise TrustError(
                "E-SIG-BAD",
                subject,
                expected=f"a signature by {self.key.fingerprint} over these bytes",
                found=str(fault) or "damage",
                hint="bytes or signature were changed on the way: fetch the bundle again from who signed it",
            ) from None


def blob_to_sign(message: Buffer, namespace: str, hash_name: str = "sha512") -> bytes:
    """Return the bytes that the key really signs: magic, namespace, reserved, hash name, message's hash."""
    digest = hashlib.new(hash_name, message).digest()
    parts = (namespace.encode(), b"", hash_name.encode(), digest)
    return _MAGIC + b"".join(pack_string(part) for part in parts)


def sign(message: Buffer, signer: Signer, *, namespace: str, subject: str = "key") -> bytes:
    """Return an armored signature over ``message``, checked before it is handed out.

    ``subject`` names the key in messages. Raises what ``signer`` raises; ``HostError`` (E-AGENT) where it
    returns what does not verify, ``TrustError`` (E-SIG-UNSUPPORTED) for a kind of key that is not supported.
    """
    if not _is_namespace(namespace):
        raise RuntimeError(f"not a namespace: {namespace!r}")
    try:
        key = PublicKey(signer.public_blob)
    except ValueError as fault:
        raise TrustError(
            "E-SIG-UNSUPPORTED", subject, found=str(fault), hint="sign with an Ed25519, ECDSA or RSA key"
        ) from None
    answer = signer.sign(blob_to_sign(message, namespace))
    try:
        algorithm, raw = signature_of(answer)
        if key.kind == "ssh-rsa":
            # Agents may drop leading zero bytes; the format wants as many bytes as the modulus has.
            raw = raw.rjust(_modulus_size(key), b"\0")
        signature = Signature(key=key, namespace=namespace, hash_name="sha512", algorithm=algorithm, raw=raw)
        armored = bytes(signature)
        Signature.parse(armored).verify(message)
    except (ValueError, TrustError) as fault:
        raise HostError(
            "E-AGENT",
            subject,
            expected=f"a signature by {key.fingerprint}",
            found=str(fault),
            hint="what holds the key did not sign with it: check ssh-add -l, or name the key's file",
        ) from None
    return armored


def _is_namespace(text: str) -> bool:
    return bool(text) and all(" " <= character <= "~" for character in text)


def _modulus_size(key: PublicKey) -> int:
    reader = Reader(key.blob)
    reader.text("key type")
    reader.mpint("exponent")
    return (reader.mpint("modulus").bit_length() + 7) // 8


def _dearmor(data: bytes) -> bytes:
    if not data.strip():
        raise ValueError("an empty file")
    if len(data) > MAX_ARMOR:
        raise ValueError(f"{len(data)} bytes, more than any signature has ({MAX_ARMOR})")
    match = _ARMOR.fullmatch(data)
    if match is None:
        raise ValueError("no armored signature, or more than one, or text around it")
    text = match[1].replace(b"\n", b"")
    try:
        blob = base64.b64decode(text, validate=True)
    except binascii.Error as fault:
        raise ValueError(f"damaged base64: {fault}") from None
    if base64.b64encode(blob) != text:
        raise ValueError("base64 with bits that mean nothing")
    return blob


def _parse_blob(blob: bytes) -> Signature:
    reader = Reader(blob)
    if reader.take(len(_MAGIC), "magic") != _MAGIC:
        raise ValueError("wrong magic")
    version = reader.uint32("version")
    if version > _VERSION:
        raise UnsupportedKeyError(f"version {version} of the signature format")
    if version != _VERSION:
        raise ValueError(f"version {version}")
    key = PublicKey(reader.string("public key"))
    namespace = reader.string("namespace")
    reserved = reader.string("reserved field")
    if reserved:
        raise ValueError(f"a reserved field with {len(reserved)} bytes in it")
    hash_name = reader.text("hash")
    if hash_name not in _HASHES:
        raise UnsupportedKeyError(f"hash {hash_name[:40]}; sha256 and sha512 are accepted")
    algorithm, raw = signature_of(reader.string("signature"))
    reader.done("the signature")
    key.require_algorithm(algorithm)
    text = namespace.decode("latin-1")
    if not _is_namespace(text):
        raise ValueError(f"a namespace of {namespace[:40]!r}")
    return Signature(key=key, namespace=text, hash_name=hash_name, algorithm=algorithm, raw=raw)
