"""A check of `xmpp-agent doctor`."""

from typing import Literal, TypeAlias

import msgspec

Verdict: TypeAlias = Literal["ok", "warning", "failed"]


class Check(msgspec.Struct, frozen=True):
    """One check: its name, its verdict, and a text for the operator."""

    name: str
    verdict: Verdict
    text: str
