"""Sends what agents say, as messages."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import anyio
import msgspec
import structlog

from component import system
from component.agent.requests import Reply
from component.link.messages.delivery import Delivery, nothing_to_send
from component.link.messages.inbound import Conversation, ReplyAddress
from component.link.messages.messenger import Messenger
from component.link.messages.outbound import ChatState, OutboundMessage, Text
from component.link.messages.styling import styled
from xep.jid import JID
from xep.reactions import Reactions

_log = structlog.get_logger("component.message")

InRoom: TypeAlias = Literal["speaks", "silent", "joins"]
"""Whether an agent can write in a room: `silent` if it has left, was removed or has no voice;
`joins` if that is not known yet, because it is on its way into the room.
"""

_ID_BYTES: Final = 16
_JOINS_WITHIN_S: Final = 30.0
"""Seconds that an agent has to enter a room again after a reconnect."""
_LOOK_S: Final = 0.25


class _Said(msgspec.Struct):
    """A reply, and its delivery."""

    reply: Reply
    delivery: Delivery


class Speech:
    """Implements `component.agent.protocol.Voice`, which documents its methods.

    A reply that the outbox dropped is sent again when there is a stream, and so is one that the
    server may not have handled before the connection was lost. Until then it counts as waiting.

    Args:
        messenger: sends messages.
        connected: whether there is a stream.
        may_write: whether an agent may send unsolicited messages to a contact.

    Attributes:
        in_room: returns whether an agent can write to a room or an occupant now. The kernel sets
            it.
        shows_drafts: where answers are shown while they are written, as in the settings.
        corrects: returns whether a client shows corrections of messages (XEP-0308).
    """

    def __init__(
        self,
        messenger: Messenger,
        connected: Callable[[], bool],
        may_write: Callable[[JID, JID], bool] = lambda _agent, _contact: True,
    ) -> None:
        self._messenger = messenger
        self._connected = connected
        self._may_write = may_write
        self.in_room: Callable[[ReplyAddress], InRoom] = lambda _to: "speaks"
        self.shows_drafts: Literal["off", "direct", "everywhere"] = "off"
        self.corrects: Callable[[JID], bool] = lambda _client: False
        self._said: deque[_Said] = deque()  # replies that the server may not have handled

    def say(self, reply: Reply) -> bool:
        """Send an answer to the sender of the message (RFC 6121 §5.1), in its thread.

        Its Markdown becomes message styling (XEP-0393).
        """
        if not self._connected():
            return False
        state = self._state_in_room(reply.to)
        if state == "joins":
            return False
        if state == "silent":
            _log.info(
                "an answer is dropped: the agent cannot write there",
                reply=reply.id,
                to=reply.to.to,
            )
            return True
        if reply.unrequested and not self._may_write(reply.to.from_, JID.parse(reply.to.to)):
            _log.info("an answer is withheld: its recipient wants no messages", reply=reply.id)
            return True
        self._send_dropped()
        self._said.append(_Said(reply, self._send(reply)))
        return True

    def drafts(self, to: ReplyAddress) -> bool:
        """Return whether the settings want drafts there, and the client can show them: it corrects
        messages, and shows chat states. In a room, nobody knows that of all.
        """
        if to.type == "groupchat":
            return self.shows_drafts == "everywhere"
        is_wanted = self.shows_drafts != "off" and to.type == "chat"
        return is_wanted and to.shows_states and self.corrects(JID.parse(to.to))

    def draft(self, reply: Reply) -> bool:
        """Send a draft, which neither archives nor other clients of the person get (XEP-0334)."""
        if not self._connected() or self._state_in_room(reply.to) != "speaks":
            return False
        message = _message(reply.to, reply.id, "active")
        self._messenger.send(
            msgspec.structs.replace(
                message,
                parts=(Text(styled(reply.text)),),
                replies_to=reply.replies_to,
                replaces=reply.corrects or None,
                is_draft=True,
            )
        )
        return True

    def composing(self, to: ReplyAddress, on: bool) -> None:
        """Show that an answer is being written, if the client itself shows chat states (XEP-0085
        §5.1).

        Other clients would get an empty message, which servers store for absent users.
        """
        is_shown = to.shows_states and to.type != "groupchat"
        if is_shown and self._connected() and self._state_in_room(to) == "speaks":
            message = _message(to, system.token_hex(_ID_BYTES), "composing" if on else "paused")
            self._messenger.send(msgspec.structs.replace(message, stored=False))

    def acknowledge(self, to: ReplyAddress, id_: str, *emoji: str) -> None:
        """React to a message (XEP-0444), by the id that the room gave it in a room; without an
        emoji, withdraw the reaction. Never waits; it is lost if there is no stream.
        """
        if self._connected():
            message = _message(to, system.token_hex(_ID_BYTES), "active")
            reaction = Reactions(id=id_, emoji=emoji)
            self._messenger.send(
                msgspec.structs.replace(message, payloads=(reaction,), stored=True, chat_state=None)
            )

    def _state_in_room(self, to: ReplyAddress) -> InRoom:
        if to.type != "groupchat" and not to.is_occupant:
            return "speaks"
        return self.in_room(to)

    def waits(self) -> bool:
        """Return whether some replies may not have reached the server."""
        return bool(self._said)

    async def sent(self) -> None:
        """Wait until the server has handled all replies so far; lost ones are sent again, under
        their ids.
        """
        said = list(self._said)
        while True:
            for one in said:
                while not await one.delivery.settled():
                    await self._messenger.ready()
                    self._send_dropped()
            if await self._messenger.handled():
                break
            await self._messenger.ready()
            await self._joined(said)
            for one in said:
                one.delivery = self._send(one.reply)
        # Each caller has waited for the first ones.
        while self._said and self._said[0] in said:
            self._said.popleft()

    async def _joined(self, said: Sequence[_Said]) -> None:
        """Wait until the agents are in the rooms again to which something was said."""
        with anyio.move_on_after(_JOINS_WITHIN_S):
            # Polled, because memberships have no event for this; only after a lost connection.
            while any(self._state_in_room(one.reply.to) == "joins" for one in said):  # noqa: ASYNC110
                await anyio.sleep(_LOOK_S)

    def _send_dropped(self) -> None:
        for said in self._said:
            if said.delivery.state == "dropped":
                said.delivery = self._send(said.reply)

    def _send(self, reply: Reply) -> Delivery:
        if reply.to.occupant and self._state_in_room(reply.to) == "silent":
            return nothing_to_send()  # it is sent again, and somebody else may have the nickname
        message = _message(reply.to, reply.id, "active")
        return self._messenger.send(
            msgspec.structs.replace(
                message,
                parts=(*([Text(styled(reply.text))] if reply.text else ()), *reply.files),
                must_arrive=True,
                asks_for_reports=reply.to.type == "chat",
                replies_to=reply.replies_to,
                replaces=reply.corrects or None,
            )
        )


def _message(to: ReplyAddress, identifier: str, state: ChatState) -> OutboundMessage:
    peer, in_room = JID.parse(to.to), to.type == "groupchat"
    return OutboundMessage(
        id=identifier,
        conversation=Conversation(
            to.from_.bare, peer if to.is_occupant else peer.bare, in_room=in_room, thread=to.thread
        ),
        to=to,
        chat_state=state if to.shows_states and not in_room else None,
    )
