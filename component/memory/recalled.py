"""A memory as a turn gets it."""

import msgspec

from component.policy.taint import Taint


class Recalled(msgspec.Struct, frozen=True):
    """A memory that may bear on a message. `score` grows with how much."""

    key: str
    title: str
    body: str
    topic: str = ""
    score: float = 0.0
    taint: Taint | None = None
