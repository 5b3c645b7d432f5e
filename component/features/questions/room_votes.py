"""Votes in rooms: reactions and replies to the message of a question.

A vote counts only from an occupant whose presence shows an account that may decide. Nothing in a
message proves who has sent it: the occupant is the one with the nickname in its address when it
arrives, and everything else about the occupant is what the room itself has said in its presence.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component import system
from component.features.questions.answers import thumbs_of
from component.kernel.kernel import Kernel
from component.kernel.rooms.membership import Membership
from component.kernel.rooms.occupants import RoomOccupant
from component.link.messages.inbound import Conversation, InboundMessage, ReplyAddress
from component.link.messages.outbound import OutboundMessage, Text
from component.link.messages.parsing import parse_message
from component.link.router.table import Request
from component.store import StorageError
from component.store.outages import log_failure
from component.task_messages.questions import SHORT_ID
from component.task_messages.spoken_answers import refusal_in, said_in
from component.task_messages.value_rendering import printable_name
from component.tasks.question_rows import Answerer
from xep.fluux_agent.confirm import ApproverRoom, Decision, Rank
from xep.jid import JID, JIDError
from xep.stanza_error import StanzaError

if TYPE_CHECKING:
    from component.features.questions.room_questions import RoomQuestion, RoomQuestions, Write

_log = structlog.get_logger("component.questions")

RANKS: Final[tuple[Rank, ...]] = ("none", "member", "admin", "owner")
"""From the lowest to the highest."""
_ID_BYTES: Final = 16
_WITH_NAME: Final = re.compile(rf"(\S.*\S)\s+([0-9a-fA-F]{{{SHORT_ID},}})\s*[.!]?", re.DOTALL)
_OWN: Final = "{nick}: you have requested this yourself, so somebody else has to decide it."

Value: TypeAlias = Literal["approve", "deny", "withdraw"]


class Ballot(msgspec.Struct, frozen=True):
    """What a message says to a question."""

    question: str
    value: Value
    reason: str | None = None
    by_reaction: bool = False


def ranks_from(least: Rank) -> Sequence[Rank]:
    """Return the affiliations of which a room has lists, from the least that is needed."""
    return [rank for rank in RANKS[RANKS.index(least) :] if rank != "none"]


def is_entitled(occupant: RoomOccupant, room: ApproverRoom) -> bool:
    """Return whether an occupant may decide, by what the presence of the room shows: a real JID,
    an affiliation that is high enough, and the hat.
    """
    if not occupant.jid or occupant.is_agent:
        return False
    has_hat = room.hat is None or room.hat in occupant.hats
    return has_hat and occupant.affiliation in RANKS[RANKS.index(room.affiliation) :]


def _named(text: str, nick: str) -> tuple[str, str] | None:
    """Return the words of a message to an occupant with a nickname, and the beginning of the
    identifier after them: not all clients can react or reply.
    """
    text = text.strip().removeprefix("@")
    if not text.casefold().startswith(nick.casefold()):
        return None
    found = _WITH_NAME.fullmatch(text[len(nick) :].lstrip(" :,"))
    return None if found is None else (found[1], found[2].casefold())


class RoomVotes:
    """Takes the votes in rooms.

    Votes of one account are handled one after another, in the order in which they arrived.
    """

    def __init__(self, kernel: Kernel, questions: "RoomQuestions") -> None:
        self._kernel = kernel
        self._questions = questions
        self._tasks = kernel.tasks.service
        self._group: TaskGroup | None = None
        self._latest: dict[tuple[JID, str], anyio.Event] = {}
        self._told: set[tuple[str, str]] = set()
        questions.said = self.said

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Handle votes until cancelled."""
        try:
            async with anyio.create_task_group() as self._group:
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._group = None

    def is_vote(self, membership: Membership, message: InboundMessage) -> bool:
        """Return whether a message in a room is a vote, and so not meant for a conversation."""
        return self._ballot(membership, message) is not None

    def said(self, membership: Membership, request: Request[None]) -> None:
        """Handle a message that a room has sent to all. Never waits."""
        if self._group is None or not self._questions.has_any(membership.room):
            return
        nick = request.sender.resource or ""
        message = parse_message(request.stanza, request.sender, request.to, system.now())
        if message.delayed or message.copy:
            return
        if nick == membership.view.nick:
            self._reflected(membership, message)
            return
        occupant = membership.occupant(nick)
        if self._kernel.rooms.is_own_agent(membership.room, nick):
            return
        for id_ in (message.id, message.origin_id):
            if id_:
                self._store(self._questions.disown(membership.room, id_))
        ballot = self._ballot(membership, message)
        if occupant is None or ballot is None:
            return
        key = membership.room, occupant.jid
        before, mine = self._latest.get(key), anyio.Event()
        self._latest[key] = mine

        async def in_order() -> None:
            try:
                if before is not None:
                    await before.wait()
                await self._take(membership, occupant, message, ballot)
            finally:
                mine.set()
                if self._latest.get(key) is mine:
                    del self._latest[key]

        self._group.start_soon(in_order)

    def _ballot(self, membership: Membership, message: InboundMessage) -> Ballot | None:
        """Return what a message says to a question in a room; None if it is not a vote."""
        reacted, reply = message.reacted, message.replies_to
        if reacted is not None:
            question = self._questions.find(membership.room, reacted.id)
            if question is None:
                return None
            value: Value = thumbs_of(reacted) or "withdraw"
            if value == "approve" and (message.text or message.unclear):
                return None
            return Ballot(question, value, by_reaction=True)
        question, text = None, message.text
        if reply is not None:
            question = self._questions.find(membership.room, reply.id)
        if question is None and (named := _named(text, membership.view.nick)) is not None:
            question, text = self._questions.find_named(membership.room, named[1]), named[0]
        if question is None or message.is_action:
            return None
        said, refusal = said_in(text), refusal_in(text)
        if said is not None and said.value == "approve":
            return None if message.unclear else Ballot(question, "approve")
        if said is not None and said.value == "deny":
            return Ballot(question, "deny", said.reason)
        return None if refusal is None else Ballot(question, "deny", refusal.reason)

    def _reflected(self, membership: Membership, message: InboundMessage) -> None:
        """Note the id that the room has given to a message of the agent itself."""
        if not message.id:
            return
        room, id_ = membership.room, message.stanza_id
        self._questions.sent_back(room, message.id)
        if id_:
            self._kernel.stream.messenger.sent.reflected(message.conversation, message.id, id_)
            self._store(self._questions.reflected(room, message.id, id_))

    def _store(self, write: "Write | None") -> None:
        if write is not None and self._group is not None:
            self._group.start_soon(self._write, write)

    async def _write(self, write: "Write") -> None:
        try:
            await self._kernel.storage.write(write)
        except StorageError as error:
            log_failure(_log, "could not store the id of a question in a room", error)

    async def _take(
        self, membership: Membership, occupant: RoomOccupant, message: InboundMessage, vote: Ballot
    ) -> None:
        """Count a vote, if the occupant may decide the question."""
        one = self._questions.open_question(vote.question)
        if one is None or self._questions.agent_of(one) != membership.address.bare:
            return
        who = self._account(occupant, one)
        if who is None or await membership.ask_is_agent(occupant):
            return
        by = Answerer(
            who,
            one.question.request.target,
            message.language,
            room=membership.room,
            by_reaction=vote.by_reaction,
        )
        try:
            if vote.value == "withdraw":
                await self._tasks.withdraw_vote(by, one.id)
                return
            decision = Decision(
                id=one.id, value=vote.value, reason=vote.reason, hash=one.confirm.hash
            )
            await self._tasks.vote(by, decision)
        except StanzaError as error:
            if error.condition == "forbidden" and (one.id, str(who)) not in self._told:
                self._told.add((one.id, str(who)))
                self._say(membership, _OWN.format(nick=printable_name(occupant.nick)))
        except StorageError as error:
            log_failure(_log, "could not count a vote", error)
            nick = printable_name(occupant.nick)
            self._say(membership, f"{nick}: I cannot count your vote now. Please try again later.")

    def _account(self, occupant: RoomOccupant, one: "RoomQuestion") -> JID | None:
        """Return the account of an occupant who may decide a question, or has requested it."""
        try:
            who = JID.parse(occupant.jid).bare
        except JIDError:
            return None
        is_named = who in one.question.asked and not occupant.is_agent
        if not (is_named or is_entitled(occupant, one.room)):
            return None
        return who if self._questions.may_vote(who) else None

    def _say(self, membership: Membership, text: str) -> None:
        room = membership.room
        self._kernel.stream.messenger.send(
            OutboundMessage(
                id=system.token_hex(_ID_BYTES),
                conversation=Conversation(membership.address.bare, room, in_room=True),
                to=ReplyAddress(str(room), membership.address, "groupchat"),
                parts=(Text(text, "en"),),
            )
        )
