"""urn:fluux:poll:0, polls in rooms (Fluux Messenger): the votes are reactions (XEP-0444)."""

from datetime import datetime
from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload, Text, TextChild

NAMESPACE: Final = "urn:fluux:poll:0"


class Option(Payload, frozen=True, kw_only=True):
    """One option: a reaction with ``emoji`` is a vote for it."""

    xml = Name(NAMESPACE, "option")

    emoji: Annotated[str, Attr()]
    label: Annotated[str, Text()]


class Poll(Payload, frozen=True, kw_only=True):
    """A poll, in the message whose reactions are the votes. Each person has one vote."""

    xml = Name(NAMESPACE, "poll")

    deadline: Annotated[datetime | None, Attr()] = None
    title: Annotated[str, TextChild()]
    description: Annotated[str | None, TextChild()] = None
    options: Annotated[tuple[Option, ...], Child()] = ()


class Tally(Payload, frozen=True, kw_only=True):
    """The votes for an option."""

    xml = Name(NAMESPACE, "tally")

    emoji: Annotated[str, Attr()]
    count: Annotated[int, Attr()]


class PollClosed(Payload, frozen=True, kw_only=True):
    """The end of the poll in the message ``message_id``, with its result."""

    xml = Name(NAMESPACE, "poll-closed")

    message_id: Annotated[str, Attr("message-id")]
    title: Annotated[str, TextChild()]
    tallies: Annotated[tuple[Tally, ...], Child()] = ()
