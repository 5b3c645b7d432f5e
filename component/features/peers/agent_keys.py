"""The public keys of other agents: fetched from their own addresses over our stream, and remembered
for an hour.
"""

from collections.abc import Mapping
from typing import Final

import anyio
import structlog

from component.caches import LRUCache
from component.grants import PublicKey
from component.kernel.kernel import Kernel
from xep import pubsub
from xep.binding import ContentError, read
from xep.fluux_agent.keys import NAMESPACE as KEYS
from xep.fluux_agent.keys import Key
from xep.jid import JID
from xep.pubsub import Pubsub
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

_KEPT_S: Final = 3600.0
"""Seconds for which the keys of another agent are used without a look at its node."""
_LEAST_S: Final = 60.0
"""Seconds between two looks, when a key is not there."""
_MOST_AGENTS: Final = 1000
_MOST_KEYS: Final = 16


class AgentKeys:
    """The public keys of other agents."""

    def __init__(self, kernel: Kernel) -> None:
        self._get = kernel.stream.get
        self._known: LRUCache[JID, tuple[float, Mapping[str, PublicKey]]] = LRUCache(_MOST_AGENTS)

    async def of(self, agent: JID, from_: JID, wanted: str = "") -> Mapping[str, PublicKey]:
        """Return the keys that an agent publishes, by their names, the newest last; empty if it
        publishes none. If the `wanted` one is not among those that are remembered, they are fetched
        again. Raises StanzaError: its server cannot be reached, or nobody answers.
        """
        known = self.known(agent)
        if known is not None and (
            not wanted or wanted in known or anyio.current_time() - self._known[agent][0] < _LEAST_S
        ):
            return known
        keys = await self._fetch(agent, from_)
        self._known[agent] = anyio.current_time(), keys
        return keys

    def known(self, agent: JID) -> Mapping[str, PublicKey] | None:
        """Return the keys of an agent that are remembered; None if they must be fetched."""
        found = self._known.get(agent)
        if found is None or anyio.current_time() - found[0] >= _KEPT_S:
            return None
        return found[1]

    async def _fetch(self, agent: JID, from_: JID) -> Mapping[str, PublicKey]:
        asked = Pubsub(items=pubsub.Items(node=KEYS))
        try:
            answer = await self._get(agent, asked, Pubsub, from_)
        except StanzaError as error:
            if error.type == "wait" or error.condition.startswith("remote-server"):
                raise
            return {}  # it has no such node, or answers nobody that it does not know
        items = () if answer.items is None else answer.items.items
        keys: dict[str, PublicKey] = {}
        for raw in [raw for item in items[-_MOST_KEYS:] for raw in item.payloads]:
            try:
                key = read(raw.text, Key)
                public = PublicKey(x=key.x)
                keys[public.kid] = public
            except (ContentError, ValueError) as error:
                _log.warning("ignored a key of an agent", agent=str(agent), reason=str(error))
        return keys
