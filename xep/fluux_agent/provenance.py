"""urn:fluux:agent:0#provenance: the agents whose work has caused an event."""

from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID

NAMESPACE: Final = f"{AGENT}#provenance"
MOST: Final = 64
"""The maximum number of agents that are named; the first ones are omitted."""


class Provenance(Payload, frozen=True, kw_only=True):
    """A part of the payload of an item that an agent publishes because of another event.

    ``via`` are the bare JIDs of the agents whose work has caused it, in order: the last one is the
    publisher. An agent that an event triggers adds itself to the events that it causes, and ignores
    an event that was caused by too many agents.
    """

    xml = Name(NAMESPACE, "provenance")

    via: Annotated[tuple[JID, ...], TextChild(at_least=1, at_most=MOST)]
