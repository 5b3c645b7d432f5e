"""A grant: what it says, and how it is written.

It is a JWT (RFC 7519) as a compact JWS. It says that the agent `iss` lets the agent `aud` use
skills for the person `sub`. The key in `cnf` (RFC 7800 §3.2) signs the next grant of the chain, if
the work may be passed on.
"""

import hashlib
from collections.abc import Iterable
from decimal import Decimal
from typing import Final, Literal, TypeVar

import msgspec

from component.grants.keys import (
    PublicKey,
    SignatureError,
    SigningKey,
    base64url,
    check,
    read_header,
    read_payload,
    sign,
)
from xep.jid import JID, JIDError

N = TypeVar("N", int, Decimal)

TYPE: Final = "fluux-grant+jwt"
"""The type in the header of a grant."""

Reason = Literal[
    "malformed",
    "wrong-key",
    "wrong-parent",
    "wrong-path",
    "wrong-origin",
    "wrong-audience",
    "wider-skills",
    "later-expiry",
    "larger-budget",
    "too-deep",
    "expired",
    "not-yet-valid",
    "skill-not-granted",
    "revoked",
    "replayed",
]
"""Why a grant is refused, as the specification names it."""


class GrantError(Exception):
    """A chain of grants does not permit a request. The message is a sentence that says why."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason: Reason = reason


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that the work may cost, in US dollars and in tokens of models; None: any amount."""

    usd: Decimal | None = None
    tokens: int | None = None

    def covers(self, other: "Budget") -> bool:
        """Return whether another budget permits nothing that this one does not."""
        limits = ((self.usd, other.usd), (self.tokens, other.tokens))
        return all(
            mine is None or (theirs is not None and theirs <= mine) for mine, theirs in limits
        )


def smaller(one: N | None, other: N | None) -> N | None:
    """Return the smaller one of two limits; None stands for any amount."""
    return min((each for each in (one, other) if each is not None), default=None)


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The key that anybody who uses a grant must have (RFC 7800 §3.2)."""

    jwk: PublicKey


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The claims of a grant.

    Attributes:
        iss: the agent that grants, a bare JID.
        sub: the person for whom the work is done, a bare JID: the origin of the delegation.
        aud: the agent that may use the skills, a bare JID.
        skills: names of skills; one that ends in `*` stands for all that begin with the rest.
        depth: how many more agents the work may pass after `aud`.
        exp: when it ends, in seconds since 1970.
        iat: when it was made, likewise.
        jti: an identifier that no other grant of this agent has.
        budget: the most that the work may cost.
        par: the digest of the grant from which this one is derived; None in the first one.
        cnf: the key of `aud` that signs the next grant; None if there can be none.
    """

    iss: str
    sub: str
    aud: str
    skills: tuple[str, ...]
    depth: int
    exp: int
    iat: int
    jti: str
    budget: Budget = Budget()
    par: str | None = None
    cnf: Confirmation | None = None


def digest(compact: str) -> str:
    """Return the digest of a grant as it was written: SHA-256, in base64url without padding."""
    return base64url(hashlib.sha256(compact.encode()).digest())


def write_grant(grant: Grant, key: SigningKey) -> str:
    """Return a grant in its compact form, signed with the key of the agent that grants."""
    return sign(key, TYPE, msgspec.json.encode(grant))


def read_grant(compact: str) -> Grant:
    """Return the claims of a grant; its signature is not checked.

    Raises GrantError: it is not a grant.
    """
    try:
        grant = msgspec.json.decode(read_payload(compact, TYPE), type=Grant)
    except SignatureError as error:
        raise GrantError("malformed", f"It is not a grant: {error}.") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise GrantError("malformed", f"Its claims cannot be read: {error}.") from None
    _check_form(grant)
    return grant


def key_named_by(compact: str) -> str:
    """Return the name of the key with which a grant says it is signed. Raises GrantError."""
    try:
        return read_header(compact, TYPE)
    except SignatureError as error:
        raise GrantError("malformed", f"It is not a grant: {error}.") from None


def check_signature(compact: str, key: PublicKey) -> None:
    """Check that a grant is signed with a key. Raises GrantError."""
    try:
        check(compact, TYPE, key)
    except SignatureError as error:
        raise GrantError("wrong-key", f"It cannot be trusted: {error}.") from None


def covers(patterns: Iterable[str], wanted: str) -> bool:
    """Return whether the names and patterns of a grant contain a name or a pattern."""
    return any(
        wanted == each or (each.endswith("*") and wanted.startswith(each[:-1])) for each in patterns
    )


def narrowed(patterns: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """Return what both lists of names and patterns contain."""
    mine, theirs = tuple(patterns), tuple(wanted)
    both = [one for one in theirs if covers(mine, one)]
    both += [one for one in mine if covers(theirs, one)]
    return tuple(dict.fromkeys(both))


def _check_form(grant: Grant) -> None:
    for name in ("iss", "sub", "aud"):
        value: str = getattr(grant, name)
        try:
            jid = JID.parse(value)
        except JIDError as error:
            raise GrantError("malformed", f"Its {name} is not an address: {error}.") from None
        if jid.resource is not None or str(jid) != value:
            raise GrantError("malformed", f"Its {name} must be a bare JID: {value}.")
    if not grant.skills or any("*" in each[:-1] or not each for each in grant.skills):
        raise GrantError("malformed", "Its skills must be names, or patterns that end in *.")
    budget = grant.budget
    if budget.usd is not None and not budget.usd.is_finite():
        raise GrantError("malformed", "Its budget must be a number.")
    numbers = (grant.depth, grant.exp, grant.iat, budget.usd or 0, budget.tokens or 0)
    if any(not 0 <= number < 2**53 for number in numbers):
        raise GrantError("malformed", "Its numbers must not be negative, or larger than 2^53.")
    if not grant.jti:
        raise GrantError("malformed", "Its jti must not be empty.")
