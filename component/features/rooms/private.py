"""Private messages of occupants (XEP-0045 §7.5): each occupant has a conversation of its own.

It belongs to the occupant and not to the nickname: the next occupant with the nickname gets nothing
of it. Questions are never answered in it, because a room could write in the name of its occupants.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from component import system
from component.agent.requests import MessageStarter, SentFile, TurnRequest, with_files
from component.features.rooms.conversation import (
    AT_FAULT,
    HOUR_S,
    STOP,
    RoomConversation,
    hand_over,
    is_delayed,
)
from component.features.rooms.manners import Limits, Manners
from component.kernel.kernel import Kernel
from component.kernel.rooms.membership import Membership
from component.kernel.rooms.occupants import RoomOccupant, identity
from component.link.messages.inbound import Conversation, InboundMessage, ReplyAddress
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.link.messages.parsing import parse_message
from component.link.router.table import Request
from component.memory_directory.layout import SessionKey
from component.store import StorageError
from component.store.outages import log_failure
from xep.data_forms import Form
from xep.jid import JID

if TYPE_CHECKING:
    from component.features.rooms.service import RoomService

_log = structlog.get_logger("component.rooms")

_ID_BYTES: Final = 16
_PER_MINUTE: Final = 30
DIRECTLY: Final = "I can't do that in a private message of a room. Write to me directly: {address}"
NOT_HERE: Final = "I don't talk in this room. Please write to me directly: {address}"
_HELP: Final = (
    "This is a private conversation, which ends when you leave the room. /stop stops what I am"
    " doing, /new starts a new conversation. For everything else, write to me directly: {address}"
)


class PrivateMessages:
    """Answers private messages of occupants."""

    def __init__(self, service: "RoomService", kernel: Kernel) -> None:
        self._service = service
        self._kernel = kernel
        limits = Limits(answers=_PER_MINUTE, agents=False)
        self._manners = Manners(limits, service.clock)

    def receive(self, request: Request[None]) -> Awaitable[None] | None:
        """Handle a private message of an occupant."""
        room, nick = request.principal, request.sender.resource or ""
        membership = self._kernel.rooms.get(request.to, room)
        occupant = None if membership is None else membership.occupant(nick)
        if membership is None or occupant is None:
            return None
        if is_delayed(request.stanza):
            return None
        found = self._service.get(request.to, room)
        if found is None or found.options.answer == "never":
            if self._manners.may_say(f"hint {room} {identity(occupant)}", HOUR_S):
                self._say(request, NOT_HERE)
            return None
        message = parse_message(request.stanza, request.sender, request.to, system.now())
        answers = message.selected or message.reacted or request.stanza.payloads(Form)
        if answers:
            self._say(request, DIRECTLY)
            return None
        says_something = message.text or message.attachments
        if not says_something or message.from_agent or message.copy:
            return None
        return self._said(request, message, found, occupant)

    def _said(
        self,
        request: Request[None],
        message: InboundMessage,
        found: RoomConversation,
        occupant: RoomOccupant,
    ) -> Awaitable[None] | None:
        text, who = message.text, identity(occupant)
        peer = found.options.room.with_resource(who)
        session = SessionKey(found.options.agent, peer)
        if STOP.fullmatch(text) or text.casefold() in ("/new", "/reset"):
            return self._command(request, session, is_stop=STOP.fullmatch(text) is not None)
        if text.startswith("/") and not message.is_action:
            self._say(request, _HELP if text.casefold() == "/help" else DIRECTLY)
            return None
        agents = self._kernel.agents
        if agents is None:
            if self._manners.may_say(f"no model {found.options.room} {who}", HOUR_S):
                self._say(request, DIRECTLY)
            return None
        if self._service.is_exchange(peer):
            return None
        waiting = agents.conversations.waiting_of(session, who)
        verdict = self._manners.ask(
            f"{found.options.room} {who}", is_agent=occupant.is_agent, waiting=waiting
        )
        if not verdict.answers:
            if verdict.sentence:
                self._say(request, verdict.sentence)
            return None
        thread = message.conversation.thread
        turn = TurnRequest(
            id=system.token_hex(_ID_BYTES),
            starter=MessageStarter(request.sender, message.id),
            conversation=Conversation(found.agent, peer, thread=thread),
            principal=found.account(occupant) or found.options.principal,
            reply_to=msgspec.structs.replace(message.reply_to, is_occupant=True, occupant=who),
            text=with_files(f"/me {text}" if message.is_action else text, message.attachments),
            files=tuple([SentFile(sent=file) for file in message.attachments]),
            language=message.language,
            room=found.room_request(occupant),
        )
        return self._hand_over(request, turn)

    async def _hand_over(self, request: Request[None], turn: TurnRequest) -> None:
        refusal = await hand_over(self._kernel, turn)
        if refusal:
            self._say(request, refusal)

    async def _command(self, request: Request[None], session: SessionKey, *, is_stop: bool) -> None:
        agents = self._kernel.agents
        try:
            if agents is None:
                said = DIRECTLY
            elif is_stop:
                said = await agents.conversations.stop(session)
            else:
                await agents.conversations.new(session)
                said = "Started a new conversation."
        except StorageError as error:
            log_failure(_log, "a command in a private message failed", error)
            said = AT_FAULT
        self._say(request, said)

    async def left(self, membership: Membership, occupant: RoomOccupant) -> None:
        """Stop what the agent does for an occupant who has left: nobody gets the answer."""
        agents = self._kernel.agents
        if agents is None:
            return
        name = self._kernel.stream.addresses.agent_at(membership.address)
        session = SessionKey(name, membership.room.with_resource(identity(occupant)))
        activity = agents.conversations.activity(session)
        try:
            if activity.running or activity.waiting or activity.parked:
                await agents.conversations.stop(session)
        except StorageError as error:
            log_failure(_log, "could not stop the turns of an occupant", error)

    # What is said.

    def tell(self, agent: JID, person: JID, text: str) -> None:
        """Tell a person something directly."""
        self._send(ReplyAddress(str(person), agent, "chat"), person, parts=(Text(text),))

    def _say(self, request: Request[None], text: str) -> None:
        # The room passes on what comes from the address that it has sent the message to.
        to = ReplyAddress(
            request.stanza.sender or str(request.sender), request.to, "chat", is_occupant=True
        )
        said = Text(text.format(address=request.to.bare))
        self._send(to, request.principal, parts=(said,))

    def _send(self, to: ReplyAddress, peer: JID, **content: Any) -> None:
        self._kernel.stream.messenger.send(
            OutboundMessage(
                id=system.token_hex(_ID_BYTES),
                conversation=conversation_with(to.from_, peer),
                to=to,
                **content,
            )
        )
