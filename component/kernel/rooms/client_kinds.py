"""Which clients of occupants are programs: what their service discovery says (XEP-0030, XEP-0115).

A client that says nothing about itself counts as that of a person.
"""

from typing import Final

import anyio

from component.pubsub.client import IQCall
from xep import fluux_agent
from xep.caps import Caps, verification_string
from xep.disco import InfoQuery
from xep.jid import JID
from xep.stanza_error import StanzaError

_ANSWER_S: Final = 5.0
"""Seconds in which a client has to answer."""
_MOST_KNOWN: Final = 1_000


class ClientKinds:
    """Knows by the hash of its capabilities whether a client is a program."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def is_program(self, caps: Caps | None) -> bool:
        """Return whether a client with these capabilities is known to be a program."""
        return caps is not None and self._known.get(caps.ver, False)

    async def ask(self, call: IQCall, from_: JID, client: JID, caps: Caps | None) -> bool:
        """Return whether a client is a program, and ask it if its capabilities are new."""
        known = None if caps is None else self._known.get(caps.ver)
        if known is not None:
            return known
        node = None if caps is None else f"{caps.node}#{caps.ver}"
        info = None
        with anyio.move_on_after(_ANSWER_S):
            try:
                info = await call("get", client, InfoQuery(node=node), InfoQuery, from_=from_)
            except StanzaError:
                return False
        if info is None:
            return False
        is_program = _is_program(info)
        if caps is not None and _proves(info, caps):
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[caps.ver] = is_program
        return is_program


def _is_program(info: InfoQuery) -> bool:
    is_bot = any((each.category, each.type) == ("client", "bot") for each in info.identities)
    return is_bot or any(each.var == fluux_agent.NAMESPACE for each in info.features)


def _proves(info: InfoQuery, caps: Caps) -> bool:
    """Return whether the hash is that of the answer: no client can answer for others."""
    if caps.hash != "sha-1":
        return False
    try:
        return verification_string(info.identities, info.features, info.forms) == caps.ver
    except ValueError:
        return False
