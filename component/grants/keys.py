"""Ed25519 keys as JWKs (RFC 8037), and compact JWS that are signed with them (RFC 7515 §7.1).

`joserfc` is imported when the first key is used.
"""

import base64
import functools
from typing import TYPE_CHECKING, Final, Literal, Self, cast

import msgspec

if TYPE_CHECKING:
    from joserfc.jwk import OKPKey
    from joserfc.jws import CompactSignature

_ALGORITHM: Final = "Ed25519"
"""The name that says which curve (RFC 9864 §2.2); `EdDSA` does not, and is deprecated."""
_LONGEST: Final = 16_384
"""Bytes of a JWS that are read."""


class SignatureError(Exception):
    """A text is not a JWS of the wanted type that is signed with a key. The message says why."""


class PublicKey(msgspec.Struct, frozen=True, kw_only=True):
    """The JWK of a public Ed25519 key (RFC 8037 §2). Other members are ignored."""

    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    x: str

    @property
    def kid(self) -> str:
        """The thumbprint of the key (RFC 7638), which names it."""
        return _kid(self)


class SigningKey(msgspec.Struct, frozen=True, kw_only=True):
    """The JWK of a private Ed25519 key."""

    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    x: str
    d: str

    @classmethod
    def of(cls, seed: bytes) -> Self:
        """Return the key of a seed: 32 random bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PrivateKey,
        )

        public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        return cls(x=base64url(public), d=base64url(seed))

    @property
    def public(self) -> PublicKey:
        """The public key."""
        return PublicKey(x=self.x)


def base64url(data: bytes) -> str:
    """Return bytes in base64url without padding (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(key: SigningKey, kind: str, payload: bytes) -> str:
    """Return a payload as a compact JWS. `kind` is the type in its header (RFC 8725 §3.11)."""
    from joserfc import jws  # noqa: PLC0415 - when the first key is used

    header = {"alg": _ALGORITHM, "kid": key.public.kid, "typ": kind}
    return jws.serialize_compact(header, payload, _imported(key), [_ALGORITHM])


def read_header(compact: str, kind: str) -> str:
    """Return the name of the key that a JWS says it is signed with.

    Raises SignatureError: it is not a JWS of this type.
    """
    return cast("str", _extracted(compact, kind).headers()["kid"])


def read_payload(compact: str, kind: str) -> bytes:
    """Return the payload of a JWS without a look at its signature. Raises SignatureError."""
    return _extracted(compact, kind).payload


def check(compact: str, kind: str, key: PublicKey) -> None:
    """Check that a JWS of a type is signed with a key. Raises SignatureError."""
    from joserfc import jws  # noqa: PLC0415 - when the first key is used
    from joserfc.errors import JoseError  # noqa: PLC0415

    found, named = _extracted(compact, kind), read_header(compact, kind)
    try:
        if named != key.kid:
            raise SignatureError(f"it is signed with the key {named}, not with {key.kid}")
        if not jws.validate_compact(found, _imported(key), [_ALGORITHM]):
            raise SignatureError("its signature is not that of its key")
    except (JoseError, ValueError) as error:
        raise SignatureError(f"its signature is not valid: {error}") from None


@functools.lru_cache(maxsize=64)
def _extracted(compact: str, kind: str) -> "CompactSignature":
    """Return a JWS that was read; it is read once for its claims, its key and its signature."""
    from joserfc import jws  # noqa: PLC0415 - when the first key is used
    from joserfc.errors import JoseError  # noqa: PLC0415

    if len(compact) > _LONGEST or not compact.isascii():
        raise SignatureError(f"it has more than {_LONGEST} bytes, or others than ASCII")
    try:
        found = jws.extract_compact(compact.encode())
        header = found.headers()
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise SignatureError(f"it is not a compact JWS: {error}") from None
    if header.get("typ") != kind or header.get("alg") != _ALGORITHM:
        raise SignatureError(f"its header must have the typ {kind} and the alg {_ALGORITHM}")
    if set(header) - {"alg", "kid", "typ"}:
        raise SignatureError("its header must have the members alg, kid and typ only")
    if not isinstance(header.get("kid"), str):
        raise SignatureError("its header must name a key in kid")
    return found


@functools.lru_cache(maxsize=256)
def _kid(key: PublicKey) -> str:
    return _imported(key).thumbprint()


@functools.lru_cache(maxsize=256)
def _imported(key: PublicKey | SigningKey) -> "OKPKey":
    from joserfc.jwk import OKPKey  # noqa: PLC0415 - when the first key is used

    return OKPKey.import_key(msgspec.to_builtins(key))
