"""What each kind of key can do, on ``cryptography``: the only module of this room that imports it.

Imported when a signature is made or checked, not before: it costs as much as the rest of the program.
A public key object comes from ``envbundle.trust.keys.PublicKey``, whose structure is already checked.
"""

from __future__ import annotations

from cryptography.exceptions import InternalError, InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512

from .wire import Reader, pack_mpint, pack_string

PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

# RFC 5656: the hash of an ECDSA signature follows from the curve; RFC 8332 names the two RSA ones.
_CURVES = {
    "nistp256": (ec.SECP256R1(), SHA256()),
    "nistp384": (ec.SECP384R1(), SHA384()),
    "nistp521": (ec.SECP521R1(), SHA512()),
}
_CURVE_NAMES = {"secp256r1": "nistp256", "secp384r1": "nistp384", "secp521r1": "nistp521"}
_RSA_HASHES = {"rsa-sha2-256": SHA256(), "rsa-sha2-512": SHA512()}


def verify(blob: bytes, algorithm: str, raw: bytes, data: bytes) -> None:
    """Check the signature ``raw`` by the key ``blob`` over ``data``; ``ValueError`` says what is wrong.

    ``algorithm`` must be one that the kind of key allows: the caller has looked that up.
    """
    reader = Reader(blob)
    kind = reader.text("key type")
    try:
        if kind == "ssh-ed25519":
            ed25519.Ed25519PublicKey.from_public_bytes(reader.string("key")).verify(raw, data)
        elif kind == "ssh-rsa":
            exponent, modulus = reader.mpint("exponent"), reader.mpint("modulus")
            key = rsa.RSAPublicNumbers(exponent, modulus).public_key()
            key.verify(raw, data, padding.PKCS1v15(), _RSA_HASHES[algorithm])
        else:
            curve, digest = _CURVES[reader.text("curve")]
            point = ec.EllipticCurvePublicKey.from_encoded_point(curve, reader.string("point"))
            numbers = Reader(raw)
            r, s = numbers.mpint("r"), numbers.mpint("s")
            numbers.done("the signature")
            point.verify(encode_dss_signature(r, s), data, ec.ECDSA(digest))
    except InvalidSignature:
        raise ValueError("the signature does not fit key and data") from None
    except InternalError:  # OpenSSL met a key that it does not understand
        raise ValueError("a damaged key") from None


def sign(key: PrivateKey, data: bytes) -> bytes:
    """Return the signature over ``data`` as agents give it: the algorithm's name, then its octets."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return pack_string(b"ssh-ed25519") + pack_string(key.sign(data))
    if isinstance(key, rsa.RSAPrivateKey):
        return pack_string(b"rsa-sha2-512") + pack_string(key.sign(data, padding.PKCS1v15(), SHA512()))
    name = _CURVE_NAMES[key.curve.name]
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(_CURVES[name][1])))
    return pack_string(b"ecdsa-sha2-" + name.encode()) + pack_string(pack_mpint(r) + pack_mpint(s))
