"""Grants: signed statements of agents about what other agents may do for a person.

This package signs and verifies. It knows neither the network nor the clock nor a store.
"""

from component.grants.grant import (
    Budget,
    Grant,
    GrantError,
    Reason,
    covers,
    digest,
    narrowed,
    read_grant,
    smaller,
    write_grant,
)
from component.grants.keys import PublicKey, SigningKey
from component.grants.verification import Presented, verify

__all__ = [
    "Budget",
    "Grant",
    "GrantError",
    "Presented",
    "PublicKey",
    "Reason",
    "SigningKey",
    "covers",
    "digest",
    "narrowed",
    "read_grant",
    "smaller",
    "verify",
    "write_grant",
]
