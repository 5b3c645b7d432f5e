"""Requests in a room, as the feature that knows its occupants makes them."""

import re
from typing import Any

import msgspec

from component.agent.requests import MessageStarter, Overheard, RoomRequest, TurnRequest
from component.link.messages.inbound import Conversation, ReplyAddress
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint
from tests.component.agent.world import AGENT
from xep.jid import JID

ROOM = JID.parse("garden@rooms.example.org")
KEY = SessionKey("assistant", ROOM)
ALICE = JID.parse("alice@example.org")
MALLORY = JID.parse("mallory@example.org")


def said(
    id_: str,
    text: str,
    nick: str,
    account: JID | None = None,
    *,
    taint: Taint | None = "person",
    principal: JID | None = None,
    private: bool = False,
    **room: Any,
) -> TurnRequest:
    """A message of an occupant, for all or in private; `room` are more fields of `RoomRequest`."""
    occupant = room.pop("occupant", f"o-{nick}")
    address = AGENT.with_resource("rooms")
    peer = ROOM.with_resource(occupant) if private else ROOM
    to = ReplyAddress(str(ROOM), address, "groupchat")
    if private:
        to = ReplyAddress(str(ROOM.with_resource(nick)), address, is_occupant=True)
    return TurnRequest(
        id=id_,
        starter=MessageStarter(ROOM.with_resource(nick), f"m-{id_}"),
        conversation=Conversation(AGENT, peer, in_room=not private),
        principal=principal or account or ROOM,
        reply_to=to,
        text=text,
        taint=taint,
        room=RoomRequest(
            occupant=occupant, nick=nick, account=account, stanza_id=f"s-{id_}", **room
        ),
    )


def heard(nick: str, text: str, id_: str = "") -> Overheard:
    return Overheard(nick, text, 1_800_000_000.0, id_ or f"s-{text}")


def with_room(request: TurnRequest, **changes: Any) -> TurnRequest:
    assert request.room is not None
    return msgspec.structs.replace(request, room=msgspec.structs.replace(request.room, **changes))


def without_chance(prompt: bytes) -> bytes:
    """Return a prompt without the random word of its fences, to compare prompts byte for byte."""
    return re.sub(rb"data-[0-9a-f]{12}|word [0-9a-f]{12}", b"data-word", prompt)
