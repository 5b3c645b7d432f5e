"""A receipt: what an agent says, signed, about delegated work that has ended."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Literal

import msgspec

from component.grants.keys import (
    PublicKey,
    SignatureError,
    SigningKey,
    check,
    read_header,
    read_payload,
    sign,
)

TYPE: Final = "fluux-receipt+jwt"
"""The type in the header of a receipt."""


class ReceiptError(Exception):
    """A text is not a valid receipt. The message is a sentence that says why."""


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the work has taken, that of agents further on included; None is not known."""

    duration_ms: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: Decimal | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The claims of a receipt.

    Attributes:
        iss: the agent that has worked, a bare JID.
        aud: the agent that has asked, a bare JID.
        sub: the person for whom the work was done: the origin of the delegation.
        iat: when the work ended, in seconds since 1970.
        jti: an identifier that no other receipt of this agent has.
        skill: what was done.
        state: how it ended.
        request: the identifier of the request.
        task: that of the task.
        trace: the trace identifier of the delegation.
        grant: the digest of the last grant.
        usage: what the work has taken.
        receipts: the receipts of agents further on, in their compact forms.
    """

    iss: str
    aud: str
    sub: str
    iat: int
    jti: str
    skill: str
    state: Literal["completed", "failed", "rejected", "cancelled"]
    request: str | None = None
    task: str | None = None
    trace: str | None = None
    grant: str | None = None
    usage: Spent = Spent()
    receipts: tuple[str, ...] = ()


def write_receipt(receipt: Receipt, key: SigningKey) -> str:
    """Return a receipt in its compact form, signed with the key of the agent that has worked."""
    return sign(key, TYPE, msgspec.json.encode(receipt))


def read_receipt(compact: str) -> Receipt:
    """Return the claims of a receipt; its signature is not checked. Raises ReceiptError."""
    try:
        return msgspec.json.decode(read_payload(compact, TYPE), type=Receipt)
    except (SignatureError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ReceiptError(f"It is not a receipt: {error}.") from None


def receipt_key(compact: str) -> str:
    """Return the name of the key with which a receipt says it is signed. Raises ReceiptError."""
    try:
        return read_header(compact, TYPE)
    except SignatureError as error:
        raise ReceiptError(f"It is not a receipt: {error}.") from None


def verify_receipt(compact: str, keys: Mapping[str, PublicKey]) -> Receipt:
    """Return the claims of a receipt that is signed with one of the keys of its issuer, by their
    names. Raises ReceiptError.
    """
    key = keys.get(receipt_key(compact))
    if key is None:
        raise ReceiptError("Its issuer has not published the key of the receipt.")
    try:
        check(compact, TYPE, key)
    except SignatureError as error:
        raise ReceiptError(f"It cannot be trusted: {error}.") from None
    return read_receipt(compact)
