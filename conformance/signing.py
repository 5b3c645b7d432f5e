"""The keys of the agents that the kit plays, and what they sign: JWS in the compact form."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEYS: Final = "urn:fluux:agent:0#keys"
GRANT: Final = "fluux-grant+jwt"
RECEIPT: Final = "fluux-receipt+jwt"
ALGORITHM: Final = "Ed25519"


def encode(data: bytes) -> str:
    """Return bytes in base64url without padding (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Return the bytes of a text in base64url. Raises ValueError."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def part(compact: str, number: int) -> Any:
    """Return the header (0) or the payload (1) of a JWS. Raises ValueError."""
    return json.loads(decode(compact.split(".")[number]))


def digest(compact: str) -> str:
    """Return what `par` of the next grant says about a grant."""
    return encode(hashlib.sha256(compact.encode()).digest())


def thumbprint(x: str) -> str:
    """Return the name of a key (RFC 7638)."""
    canonical = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'
    return encode(hashlib.sha256(canonical.encode()).digest())


def is_signed(compact: str, x: str) -> bool:
    """Return whether a JWS is signed with the key."""
    signed, _, signature = compact.rpartition(".")
    try:
        Ed25519PublicKey.from_public_bytes(decode(x)).verify(decode(signature), signed.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Key:
    """A key pair. ``x`` is the public key, as in its JWK (RFC 8037 §2)."""

    x: str
    _private: Ed25519PrivateKey

    @property
    def kid(self) -> str:
        """The name of the key."""
        return thumbprint(self.x)

    def sign(self, claims: Any, header: Mapping[str, Any] | None = None) -> str:
        """Return a JWS of claims; a grant, unless the header says otherwise."""
        header = header or {"alg": ALGORITHM, "kid": self.kid, "typ": GRANT}
        signed = ".".join(encode(json.dumps(one).encode()) for one in (header, claims))
        return f"{signed}.{encode(self._private.sign(signed.encode()))}"


def published_by(address: str) -> str:
    """Return the keys that an agent of the kit publishes, as the answer to a request for items. A
    domain has those of its default agent.
    """
    bare = address.partition("/")[0]
    key = key_of(bare if "@" in bare else f"assistant@{bare}")
    return (
        f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='{KEYS}'>"
        f"<item id='{key.kid}'><key xmlns='{KEYS}' crv='Ed25519'"
        f" created='2026-01-01T00:00:00Z'>{key.x}</key></item></items></pubsub>"
    )


@cache
def key_of(agent: str) -> Key:
    """Return the key of an agent that the kit plays: the SHA-256 of its address, as in the vectors.

    It is the same in each run, because the target remembers keys.
    """
    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(agent.encode()).digest())
    return Key(encode(private.public_key().public_bytes_raw()), private)
