"""Where an IQ request comes in: who knocks, at which of our addresses, and what for.

Callers send many requests that differ in nothing but their content. What their heads mean is worked
out once.
"""

from collections.abc import Set as AbstractSet
from functools import lru_cache

from component.router.senders import Sender, Senders
from component.router.table import Host, IQRoute, Table
from xep.jid import JID, JIDError
from xep.stanza import Incoming

_REMEMBERED = 4096
_LONGEST_REMEMBERED = 512


class Door:
    """What the head of a request and the name of its only child say.

    `host` is None where nobody lives at `to`, `route` where nothing of that name is served there,
    `child` where the request does not hold exactly one.
    """

    __slots__ = ("child", "host", "route", "sender", "to")

    def __init__(
        self, sender: Sender, to: JID, host: Host | None, child: str | None, route: IQRoute | None
    ) -> None:
        self.sender = sender
        self.to = to
        self.host = host
        self.child = child
        self.route = route


class Doors:
    """Finds the door of each request.

    Args:
        senders: knows who sent it.
        domain: the component's own domain.
        agents: localparts of the agents it hosts.
        table: what is served.
    """

    def __init__(
        self, senders: Senders, domain: JID, agents: AbstractSet[str], table: Table
    ) -> None:
        self._senders = senders
        self._domain = domain
        self._agents = agents
        self._table = table
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._look_up)

    def of(self, stanza: Incoming) -> Door:
        """The door of an IQ get or set. Never raises."""
        sender, to, child = stanza.sender or "", stanza.to, stanza.sole_child
        if len(sender) + len(to or "") + len(child or "") > _LONGEST_REMEMBERED:
            return self._look_up(sender, to, stanza.type, child)
        return self._remembered(sender, to, stanza.type, child)

    def address(self, text: str | None) -> tuple[JID, Host | None]:
        """The address of ours that `text` is, and what lives there; None if nobody does.

        The address keeps a resource, though nobody here has one: a message for it is taken as one
        for the bare address (RFC 6121 §8.5.3.2.1), and answered from where it went.
        """
        if text is None:
            return self._domain, "component"
        try:
            to = JID.parse(text)
        except JIDError:
            return self._domain, None
        if to.domain != self._domain.domain:
            return to, None
        if to.local is None:
            return to, "component"
        return to, "agent" if to.local in self._agents else None

    def _look_up(self, sender: str, to: str | None, type_: str, child: str | None) -> Door:
        address, host = self.address(to)
        if address.resource is not None:
            host = None  # nobody here has a resource (RFC 6121 §8.5.3.2.3)
        route = None
        if host is not None and child is not None:
            route = self._table.iq(host, type_, child)
        return Door(self._senders.of(sender), address, host, child, route)
