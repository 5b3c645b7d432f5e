"""urn:fluux:agent:0#memory, memory: what an agent remembers, as PubSub items people can edit."""

from datetime import datetime
from typing import Annotated, Final

from xep.binding import Attr, Child, Lang, Name, Payload, Text, TextChild
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID

NAMESPACE: Final = f"{AGENT}#memory"
"""Also the node that holds the items."""


class Content(Payload, frozen=True, kw_only=True):
    """What is remembered, as text; one per language."""

    xml = Name(NAMESPACE, "content")

    type: Annotated[str, Attr(always=True)] = "text/markdown"
    text: Annotated[str, Text()]
    lang: Lang = None


class Memory(Payload, frozen=True, kw_only=True):
    """One thing remembered; the payload of the PubSub item whose id is ``key``.

    ``version`` counts the changes. ``by`` is the bare JID of who made the last one, ``task`` the
    task in which an agent did. After ``expires`` it is forgotten.
    """

    xml = Name(NAMESPACE, "memory")

    key: Annotated[str, Attr()]
    topic: Annotated[str | None, Attr()] = None
    version: Annotated[int, Attr(always=True)] = 0
    created: Annotated[datetime | None, Attr()] = None
    updated: Annotated[datetime | None, Attr()] = None
    expires: Annotated[datetime | None, Attr()] = None
    by: Annotated[JID | None, Attr()] = None
    task: Annotated[str | None, Attr()] = None
    tags: Annotated[tuple[str, ...], TextChild("tag")] = ()
    contents: Annotated[tuple[Content, ...], Child(at_least=1)]
