"""urn:fluux:agent:0#memory, memory: an agent's memories as PubSub items that people can edit."""

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

from xep.binding import Attr, Child, Lang, Name, Payload, Text, TextChild
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID

NAMESPACE: Final = f"{AGENT}#memory"
"""Also the node of the items."""


Origin: TypeAlias = Literal["person", "peer", "web", "file"]
"""The possible author of a text: the person, another agent, a web page, a file of somebody else."""


class Content(Payload, frozen=True, kw_only=True):
    """The content of a memory, as text; one per language."""

    xml = Name(NAMESPACE, "content")

    type: Annotated[str, Attr(always=True)] = "text/markdown"
    text: Annotated[str, Text()]
    lang: Lang = None


class Memory(Payload, frozen=True, kw_only=True):
    """One memory; the payload of the PubSub item whose id is ``key``.

    ``version`` counts the changes. ``by`` is the bare JID of the last author, ``task`` the task in
    which an agent wrote it. ``title`` is one line on the content. ``origin`` is the possible author
    of the text: ``person``, ``peer``, ``web`` or ``file``. An agent deletes an item after
    ``expires``.
    """

    xml = Name(NAMESPACE, "memory")

    key: Annotated[str, Attr()]
    title: Annotated[str | None, Attr()] = None
    topic: Annotated[str | None, Attr()] = None
    version: Annotated[int, Attr(always=True)] = 0
    created: Annotated[datetime | None, Attr()] = None
    updated: Annotated[datetime | None, Attr()] = None
    expires: Annotated[datetime | None, Attr()] = None
    by: Annotated[JID | None, Attr()] = None
    task: Annotated[str | None, Attr()] = None
    origin: Annotated[Origin | None, Attr()] = None
    tags: Annotated[tuple[str, ...], TextChild("tag")] = ()
    contents: Annotated[tuple[Content, ...], Child(at_least=1)]
