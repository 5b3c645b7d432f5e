"""The conversation of one agent in one room: what is heard, and what becomes a request.

    moderated · our own · revised · heard · history · "stop" · commands · requests

Nothing here waits for most messages: they are remembered for a while (`ring.py`) and cost nothing
else. Who an occupant is comes from presence; a message can contain forged elements.
"""

import re
from collections.abc import Awaitable, Collection
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
import structlog

from component import system
from component.agent.requests import (
    MessageStarter,
    Overheard,
    RoomRequest,
    SentFile,
    TurnRequest,
    with_files,
)
from component.agent.sentences import NOTHING_TO_STOP, STOPPED
from component.caches import LRUCache
from component.features.rooms.addressed import Address, Pointers, Us, addressed, pointers_of
from component.features.rooms.manners import Limits, Manners
from component.features.rooms.options import RoomOptions
from component.features.rooms.ring import Heard, Ring
from component.kernel.kernel import Kernel
from component.kernel.rooms.membership import Membership
from component.kernel.rooms.occupants import RoomOccupant, identity
from component.link.messages.inbound import (
    Conversation,
    InboundMessage,
    Reference,
    ReplyAddress,
)
from component.link.messages.outbound import OutboundMessage, Text
from component.link.messages.parsing import parse_message
from component.link.router.table import Request
from component.memory_directory.layout import SessionKey
from component.store import StorageError
from component.store.outages import log_failure
from xep import delay
from xep.jid import JID
from xep.message_moderation import LegacyModeration, ModeratedRetraction
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

if TYPE_CHECKING:
    from component.features.rooms.service import RoomService

_log = structlog.get_logger("component.rooms")

_ID_BYTES: Final = 16
_FILES_S: Final = 120.0
"""Seconds for which a file belongs to the next question of its sender: clients send it alone."""
HOUR_S: Final = 3600.0
_ANSWER_S: Final = 1.5
"""Seconds that a client has to say that it is a program; people notice a longer pause."""
_VISITS: Final = 1_000
_SILENT_S: Final = 300.0
"""Seconds without a word after a refusal, unless the room gives the agent another role."""
_SMALL: Final = 10
"""Occupants up to which a room is shown that an answer is being written (XEP-0085 §5.5)."""
_DELAYS: Final = frozenset((delay.Delay.xml_tag, delay.LegacyDelay.xml_tag))
STOP: Final = re.compile(r"(?i)/?stop\s*[.!\u2026]*")
_NO_MODEL: Final = "I can't talk yet, because my operator has not set up a language model for me."
AT_FAULT: Final = "I can't do that now because of an error on my side. Please try again later."
_TOO_LATE: Final = (
    "Your correction came too late: I have already acted on what you wrote before. Send it as a new"
    " message if it still matters."
)


class RoomConversation:
    """The conversation of an agent in a room.

    Args:
        service: all rooms of this service.

    Attributes:
        service: as given; another one after the settings have changed.
        options: what applies; another object when it was changed.
        membership: the membership of the agent in the room.
        ring: what was written lately.
    """

    def __init__(
        self, service: "RoomService", kernel: Kernel, options: RoomOptions, membership: Membership
    ) -> None:
        self.service = service
        self.options = options
        self.membership = membership
        self.ring = Ring()
        self._kernel = kernel
        self._manners = Manners(_limits(options), service.clock)
        self._asked: LRUCache[int, bool] = LRUCache(_VISITS)
        """The visits whose occupants were asked whether they are programs."""
        self._asking: dict[int, anyio.Event] = {}
        """Those that are being asked."""
        self._pending: list[Heard] = []
        """Messages whose requests are not made yet."""
        self._spoke: LRUCache[int, RoomOccupant] = LRUCache(_VISITS)
        """Who may be a person and has spoken since another agent has asked last, by visit."""
        self._silent_until = 0.0
        """Until when nothing is said, because the room has refused a message."""

    def change(self, options: RoomOptions) -> None:
        """Have other options from now on."""
        self.options, self._manners.limits = options, _limits(options)

    # Who is who.

    @property
    def agent(self) -> JID:
        """The bare address of the agent."""
        return self.membership.address.bare

    @property
    def session(self) -> SessionKey:
        """The session of the room."""
        return SessionKey(self.options.agent, self.options.room)

    @property
    def has_voice(self) -> bool:
        """Whether the agent may write: it is a visitor in a moderated room otherwise (XEP-0045
        §7.9), or the room has refused what it wrote.
        """
        is_silent = self.membership.is_muted or self.service.clock() < self._silent_until
        return self.membership.is_in and not is_silent

    def voice_changed(self) -> None:
        """Note that the room has given the agent another role, or has let it in again."""
        self._silent_until = 0.0

    def us(self) -> Us:
        """Return who the agent is here."""
        view, wanted = self.membership.view, self.membership.nick
        own = view.own
        nicks = (view.nick,) if wanted in view.occupants else tuple({view.nick: 0, wanted: 0})
        return Us(
            room=self.options.room,
            nicks=nicks,
            account=self.agent,
            occupant_id="" if own is None else own.occupant_id,
            others=view.occupants.keys(),
        )

    def account(self, occupant: RoomOccupant) -> JID | None:
        """Return the bare JID of an occupant if presence proves it, and the policy admits it."""
        account = self.proven(occupant)
        return account if account is not None and self.service.admits(account) else None

    def proven(self, occupant: RoomOccupant) -> JID | None:
        """Return the bare JID of an occupant if presence proves it."""
        account = JID.parse(occupant.jid) if occupant.jid else None
        is_known = account is not None and account.local is not None
        return account if is_known and account and self.options.vouches(account) else None

    def may_command(self, occupant: RoomOccupant) -> bool:
        """Return whether an occupant may give commands about the agent in this room."""
        proven = self.proven(occupant)
        if proven is not None and self.service.is_admin(proven):
            return True
        if self.options.people:
            return proven is not None and self.options.names(proven)
        return bool(occupant.jid) and occupant.affiliation in ("owner", "admin")

    def may_say_command(self) -> bool:
        """Return whether the answer to one more command may be written; if so, it counts."""
        return self._manners.may_say("command", every_s=0)

    # Messages of the room.

    def receive(self, request: Request[None]) -> Awaitable[None] | None:
        """Handle a message to all occupants (XEP-0045 §7.4)."""
        stanza, nick, view = request.stanza, request.sender.resource or "", self.membership.view
        if not self.membership.is_in:
            return None
        if not nick:
            return self._of_room(stanza)
        message = parse_message(stanza, request.sender, request.to, system.now())
        is_history = is_delayed(stanza)
        if nick == view.nick:
            self._reflected(message, is_history=is_history)
            return None
        occupant = None if is_history else self.membership.occupant(nick)
        if message.replaces or message.retracts:
            return self._revised(message, nick, occupant, stanza)
        text = _text_of(message)
        if not text or message.from_agent or message.copy:
            return None
        heard = Heard(
            author="" if occupant is None else identity(occupant),
            nick=nick,
            text=text,
            sent=(message.sent_at or system.now()).timestamp(),
            ids=[id_ for id_ in (message.id, message.origin_id) if id_],
            stanza_id=message.stanza_id or "",
            files=message.attachments,
        )
        if not (is_history and self.ring.has(heard)):
            self.ring.add(heard)
        if occupant is None or self._kernel.rooms.is_vote(self.membership, message):
            return None
        return self._said(message, heard, occupant, pointers_of(stanza))

    def _reflected(self, message: InboundMessage, *, is_history: bool) -> None:
        """Note the id that the room gives our own message (XEP-0359), and that the agent knows what
        was written before it.
        """
        if is_history:
            self.ring.given()
        elif message.id and message.stanza_id:
            sent = self._kernel.stream.messenger.sent
            sent.reflected(message.conversation, message.id, message.stanza_id)

    def _of_room(self, stanza: Incoming) -> Awaitable[None] | None:
        """Handle what the room itself says: a moderator has removed a message (XEP-0425)."""
        removed = [each.id for each in stanza.payloads(ModeratedRetraction) if each.moderated]
        removed += [
            each.id
            for each in stanza.payloads(LegacyModeration)
            if each.moderated is not None and each.moderated.retract
        ]
        for id_ in removed:
            self.ring.moderate(id_)
        return self._remove(removed) if removed else None

    def _revised(
        self, message: InboundMessage, nick: str, occupant: RoomOccupant | None, stanza: Incoming
    ) -> Awaitable[None] | None:
        """Handle a correction or a retraction, which counts only if its author has written what it
        refers to.
        """
        author = "" if occupant is None else identity(occupant)
        reference = message.replaces or message.retracts or ""
        text = "" if message.retracts else _text_of(message)
        heard = self.ring.find(author, nick, reference)
        if heard is not None:
            self.ring.revise(heard, text)
            heard.ids += [id_ for id_ in (message.id, message.origin_id) if id_]
        if occupant is None:
            return None
        if heard is not None and text and not heard.is_asked:
            return self._said(message, heard, occupant, pointers_of(stanza))
        if heard is not None and not text and heard.stanza_id:
            return self._remove((heard.stanza_id,))
        first = heard.ids[0] if heard is not None and heard.ids else reference
        address = self.addressed(message, pointers_of(stanza))
        words = text if address is None else address.text
        if heard is not None and heard.is_pending:  # its request is not made yet
            heard.words = words
            return None
        return self._correct(first, words, occupant)

    async def _remove(self, ids: Collection[str]) -> None:
        """Remove messages from the session and from turns, by the ids that the room gave them."""
        if self._kernel.agents is not None:
            try:
                await self._kernel.agents.conversations.removed(self.session, ids)
            except StorageError as error:
                log_failure(_log, "could not remove messages from a conversation", error)

    async def _correct(self, reference: str, text: str, occupant: RoomOccupant) -> None:
        if self._kernel.agents is None:
            return
        revised, who = self._kernel.agents.conversations.revised, identity(occupant)
        try:
            is_done = await revised(self.session, reference, text or None, who)
        except StorageError as error:
            log_failure(_log, "could not correct a message", error)
            return
        if not is_done and text and self._manners.may_say(f"late {who}"):
            self.say(_TOO_LATE)

    # What occupants say.

    def _said(
        self, message: InboundMessage, heard: Heard, occupant: RoomOccupant, pointers: Pointers
    ) -> Awaitable[None] | None:
        if not occupant.is_agent:
            self._spoke[occupant.visit] = occupant
        address = self.addressed(message, pointers)
        words = _spoken(message) if address is None else address.text
        if STOP.fullmatch(words.strip()):
            return self._stop(was_pending=self._take_pending(), is_addressed=address is not None)
        if not self.has_voice:
            return None
        if words.startswith("/") and not message.is_action:
            if address is None or occupant.is_agent:
                return None  # it may be for another program
            return self.service.commands.in_room(self, occupant, words, message)
        if not self._wants(message, pointers, address):
            return None
        heard.words, heard.is_asked, heard.is_pending = words, True, True
        self._pending.append(heard)
        return self._ask(message, heard, occupant)

    def addressed(self, message: InboundMessage, pointers: Pointers) -> Address | None:
        """Return how a message addresses the agent; None if it does not."""
        sent = self._kernel.stream.messenger.sent
        here = Conversation(self.agent, self.options.room, in_room=True)
        return addressed(message, pointers, self.us(), partial(sent.has, here))

    def _wants(self, message: InboundMessage, pointers: Pointers, address: Address | None) -> bool:
        """Return whether a message is to be answered, as the settings or people say."""
        match self.options.answer:
            case "never":
                return False
            case "reply":
                return address is not None and address.how == "reply"
            case "mention":
                return address is not None
        if address is not None:
            return True
        # Of several agents in a room, the one that is addressed answers, and otherwise the first.
        others = [each for each in self.service.of_room(self.options.room) if each is not self]
        if any(each.addressed(message, pointers) for each in others):
            return False
        always = [each.options.agent for each in others if each.answers_always]
        return self.options.agent <= min(always, default=self.options.agent)

    @property
    def answers_always(self) -> bool:
        """Whether the agent answers what is addressed to nobody."""
        return self.options.answer == "always" and self.has_voice

    async def _ask(self, message: InboundMessage, heard: Heard, occupant: RoomOccupant) -> None:
        agents, who = self._kernel.agents, identity(occupant)
        is_agent = occupant.is_agent or await self._ask_is_agent(occupant)
        if is_agent and await self._has_person_spoken():
            self._manners.heard_person()
        if not heard.is_pending:
            return  # it was stopped
        heard.is_pending = False
        self._pending = [one for one in self._pending if one is not heard]
        if not heard.text or self.service.is_exchange(self.options.room.with_resource(who)):
            return  # it was retracted, or one too many
        if agents is None:
            if not is_agent and self._manners.may_say("no model", HOUR_S):
                self.say(_NO_MODEL, message, occupant)
            return
        waiting = agents.conversations.waiting_of(self.session, who)
        verdict = self._manners.ask(who, is_agent=is_agent, waiting=waiting)
        if not verdict.answers:
            heard.is_asked = False
            if verdict.sentence:
                self.say(verdict.sentence, message, occupant)
            return
        reference = "" if message.replies_to is None else message.replies_to.id
        files = message.attachments or self.ring.take_files(heard, reference, _FILES_S)
        overheard = self.ring.take(heard)
        room = self.options.room
        thread = message.conversation.thread
        request = TurnRequest(
            id=self._turn_id(message),
            starter=MessageStarter(
                room.with_resource(occupant.nick), heard.ids[0] if heard.ids else None
            ),
            conversation=Conversation(self.agent, room, in_room=True, thread=thread),
            principal=self.account(occupant) or self.options.principal,
            reply_to=self._here(thread),
            text=with_files(heard.words, files),
            files=tuple([SentFile(sent=file) for file in files]),
            language=message.language,
            room=self.room_request(occupant, overheard, message.stanza_id or ""),
        )
        emoji = self.options.section.acknowledge
        if emoji and message.stanza_id:
            agents.speech.acknowledge(self._here(None), message.stanza_id, emoji)
        refusal = await hand_over(self._kernel, request)
        if refusal:
            self.say(refusal, message, occupant)

    def room_request(
        self, occupant: RoomOccupant, overheard: tuple[Overheard, ...] = (), stanza_id: str = ""
    ) -> RoomRequest:
        """Return what a request of an occupant has besides that of a person."""
        account, section = self.account(occupant), self.options.section
        is_known = account is not None
        return RoomRequest(
            occupant=identity(occupant),
            nick=occupant.nick,
            account=account,
            skills=("*",) if is_known else section.skills,
            read_only=section.read_only and not is_known,
            budget_usd=section.budget_usd,
            persona=self.options.persona,
            overheard=overheard,
            name=self.membership.name,
            stanza_id=stanza_id,
        )

    async def _ask_is_agent(self, occupant: RoomOccupant) -> bool:
        """Return whether an occupant says that it is a program. Each one is asked once in a visit,
        and has little time to answer.
        """
        visit = occupant.visit
        if visit in self._asking:
            await self._asking[visit].wait()
        elif visit not in self._asked:
            self._asked[visit] = False
            self._asking[visit] = answered = anyio.Event()
            try:
                with anyio.move_on_after(_ANSWER_S):
                    self._asked[visit] = await self.membership.ask_is_agent(occupant)
            finally:
                del self._asking[visit]
                answered.set()
        return self._asked.get(visit) or False

    async def _has_person_spoken(self) -> bool:
        """Return whether a person has spoken since another agent has asked last. Only now those who
        have spoken are asked whether they are programs: most rooms have none.
        """
        spoke = [self._spoke.pop(visit) for visit in list(self._spoke)]
        for one in spoke:
            if not await self._ask_is_agent(one):
                return True
        return False

    def _turn_id(self, message: InboundMessage) -> str:
        """Return the same id for all copies of a message, which the room tells apart (XEP-0359)."""
        if not message.stanza_id:
            return system.token_hex(_ID_BYTES)
        parts = (str(self.agent), str(self.options.room), message.stanza_id)
        return sha256(msgspec.json.encode(parts)).hexdigest()[: 2 * _ID_BYTES]

    def _take_pending(self) -> bool:
        """Make no request of the messages that came before; return whether there were any."""
        pending, self._pending = self._pending, []
        for heard in pending:
            heard.is_pending = False
        return bool(pending)

    async def _stop(self, *, was_pending: bool, is_addressed: bool) -> None:
        """Stop everything that the agent does for the room."""
        agents = self._kernel.agents
        if agents is None:
            return
        activity = agents.conversations.activity(self.session)
        is_busy = was_pending or activity.running or activity.waiting or activity.parked
        if not is_busy and not is_addressed:
            return  # it was said to somebody else
        try:
            said = await agents.conversations.stop(self.session)
        except StorageError as error:
            log_failure(_log, "could not stop the turns of a room", error)
            said = AT_FAULT
        if said == NOTHING_TO_STOP and was_pending:
            said = STOPPED
        if self.has_voice:
            self.say(said)

    # What the agent says.

    def say(
        self,
        text: str,
        message: InboundMessage | None = None,
        occupant: RoomOccupant | None = None,
    ) -> None:
        """Say something to all occupants, as a reply to a message."""
        answered = None
        if message is not None and occupant is not None and message.stanza_id:
            author = str(self.options.room.with_resource(occupant.nick))
            answered = Reference(message.stanza_id, is_ours=False, author=author)
        thread = None if message is None else message.conversation.thread
        self._kernel.stream.messenger.send(
            OutboundMessage(
                id=system.token_hex(_ID_BYTES),
                conversation=Conversation(self.agent, self.options.room, in_room=True),
                to=self._here(thread),
                parts=(Text(text),),
                replies_to=answered,
                must_arrive=True,
            )
        )

    def _here(self, thread: str | None) -> ReplyAddress:
        return ReplyAddress(str(self.options.room), self.membership.address, "groupchat", thread)

    def refused(self, error: StanzaError) -> None:
        """Note that the room has refused a message of the agent (XEP-0045 §7.4, §7.9)."""
        if error.condition == "forbidden":
            self._silent_until = self.service.clock() + _SILENT_S
        _log.warning(
            "a room has refused a message",
            room=str(self.options.room),
            agent=str(self.agent),
            reason=error.text or error.condition,
        )
        if error.condition == "not-acceptable":
            self.membership.connected()  # the agent is not there any more


def is_delayed(stanza: Incoming) -> bool:
    """Return whether somebody says that a message was sent before: then it is not answered."""
    return not _DELAYS.isdisjoint(stanza.child_names)


async def hand_over(kernel: Kernel, request: TurnRequest) -> str:
    """Pass a request to the agent; return why it is not accepted, as a sentence, or nothing."""
    assert kernel.agents is not None, "there is a model"
    try:
        kernel.tasks.pause_gate.check(request.principal)
        await kernel.agents.conversations.received(request)
    except StanzaError as error:
        return error.text
    except StorageError as error:
        log_failure(_log, "could not accept a message", error)
        return AT_FAULT
    return ""


def _limits(options: RoomOptions) -> Limits:
    section = options.section
    return Limits(
        answers=section.answers_per_minute,
        per_occupant=section.answers_per_occupant,
        agents=section.agents,
    )


def _text_of(message: InboundMessage) -> str:
    """Return the text of a message for a model, with a line for each file."""
    return with_files(_spoken(message), message.attachments)


def _spoken(message: InboundMessage) -> str:
    return f"/me {message.text}" if message.is_action else message.text
