"""Questions that are put to rooms: they are asked there, and the room sees how they are decided.

A question is asked in its room as soon as the agent is there, can speak and sees the accounts of
the occupants. Whenever its state changes, its message is corrected (XEP-0308). Where the room
cannot decide, those who may decide and are known are asked themselves: the accounts that the rule
names, and those on the lists of the room. All votes are one tally, and all state is in the
database: what a room was shown last is compared with the state of its question.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Literal, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import DEFAULT_AGENT, system
from component.caches import FIFOCache
from component.features.questions.room_votes import ranks_from
from component.kernel.kernel import Kernel
from component.kernel.rooms.membership import Change, Membership, Stay
from component.kernel.rooms.occupants import Joined
from component.link.messages.inbound import (
    THUMBS_DOWN,
    THUMBS_UP,
    Conversation,
    ReplyAddress,
)
from component.link.messages.messenger import TooBigError
from component.link.messages.outbound import OutboundMessage, Text
from component.link.router.table import Request
from component.store import StorageError
from component.store.database import Database
from component.store.outages import log_failure
from component.task_messages import approvals
from component.task_messages.value_rendering import listed, printable_name
from component.tasks import question_rows, room_question_rows, rows, votes
from component.tasks.protocol import Notice, Question
from component.tasks.votes import Vote
from xep.binding import Payload
from xep.fallback import Fallback, FallbackBody
from xep.fluux_agent.confirm import Approvals, ApproverRoom, Confirm
from xep.fluux_poll import NAMESPACE as POLLS
from xep.fluux_poll import Option, Poll, PollClosed, Tally
from xep.hats import NAMESPACE as HATS
from xep.jid import JID
from xep.muc import AdminItem, AdminQuery
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.questions")

USER: Final = "approvals"
"""The name of these questions among the users of a membership."""
_LOOK_S: Final = 2.0
"""Seconds between two looks at what other instances have changed."""
_RETRY_S: Final = 5.0
_AGAIN_S: Final = 60.0
"""Seconds until a message is sent again that a room has not sent back."""
_BACK_S: Final = 10.0
"""Seconds in which a room has to send a message back."""
_STABLE_IDS: Final = "http://jabber.org/protocol/muc#stable_id"
"""The feature of rooms that keep the ids of messages (XEP-0045)."""
_LIST_S: Final = 10.0
"""Seconds in which a room has to answer who its members are."""
_MOST_ASKED: Final = 20
"""People of the lists of a room who are asked: more would be a flood of messages."""
_MOST_REMEMBERED: Final = 10_000
_ID_BYTES: Final = 16
_LANG: Final = "en"
_AWAY: Final = "I was away: please vote again if you have voted since."
_HIDDEN: Final = "it does not show me the accounts of its occupants"
_MUTED: Final = "I have no voice there"
_NO_HATS: Final = "it gives its occupants no hats"
_ADVICE: Final = {
    _NO_HATS: "Demand an affiliation in place of the hat",
    _HIDDEN: "Make the room non-anonymous, or the agent a moderator",
    _MUTED: "Give the agent voice",
}


Write: TypeAlias = Callable[[Database], None]


class RoomQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a room whose end the room does not know yet.

    `shown` is the state that the room was shown last. `ids` are the ids of its messages.
    """

    question: Question
    confirm: Confirm
    approvals: Approvals
    room: ApproverRoom
    agent: JID
    state: Literal["open", "answered", "expired", "withdrawn"]
    shown: str
    votes: Sequence[Vote]
    ids: Sequence[str]

    @property
    def id(self) -> str:
        """The id of the question."""
        return self.question.id

    @property
    def was_asked(self) -> bool:
        """Whether its room may have been asked: the message's id is stored before it is sent."""
        return bool(self.shown) or self.id in self.ids

    @property
    def approved_by(self) -> Sequence[JID]:
        """Those who have approved, the first one first."""
        return [vote.jid for vote in self.votes if vote.value == "approve"]

    @property
    def denied_by(self) -> JID | None:
        """The person who has denied it."""
        return next((vote.jid for vote in self.votes if vote.value == "deny"), None)


def unfinished(database: Database) -> list[RoomQuestion]:
    """Return the questions whose rooms do not know their end yet."""
    found = []
    for row in room_question_rows.unfinished(database):
        put = question_rows.input_row(database, row.input)
        task = None if put is None else rows.load(database, put.task, lock=False)
        if put is None or task is None:
            continue
        confirm = put.content
        assert isinstance(confirm, Confirm)
        assert confirm.approvals is not None
        assert confirm.approvals.room is not None
        asked = question_rows.people_asked(database, put.id)
        found.append(
            RoomQuestion(
                question=question_rows.question_of(task, confirm, asked, put.revision),
                confirm=confirm,
                approvals=confirm.approvals,
                room=confirm.approvals.room,
                agent=row.agent,
                state=put.state,
                shown=row.shown,
                votes=votes.votes_on(database, put.id),
                ids=room_question_rows.messages_of(database, put.id),
            )
        )
    return found


class RoomQuestions:
    """Asks questions in rooms, and corrects their messages.

    Attributes:
        said: called with each message that one of the rooms sends to all. Never waits.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._tasks = kernel.tasks.service
        self._words = kernel.tasks.questions
        self._wake = anyio.Event()
        self._known: dict[str, RoomQuestion] = {}
        """Those of the database, by id."""
        self._ids: FIFOCache[tuple[JID, str], str] = FIFOCache(_MOST_REMEMBERED)
        """The questions that messages in rooms ask, by room and id of the message; empty for an id
        that is not used any more.
        """
        self._away: set[str] = set()
        """The questions whose votes may have been missed."""
        self._sending: dict[str, tuple[str, str]] = {}
        """The state that a room is being shown of a question, and the id of the message."""
        self._awaited: dict[tuple[JID, str], anyio.Event] = {}
        """The messages that their rooms have to send back."""
        self._keeps_ids: set[JID] = set()
        """Rooms that have sent a message back with its id."""
        self._silent: set[JID] = set()
        """Rooms that have not sent the last message back."""
        self._asked_otherwise: dict[str, str] = {}
        """Why these questions were put to people instead of their rooms."""
        self.said: Callable[[Membership, Request[None]], None] | None = None

    # What happens. None of these waits.

    def wake(self) -> None:
        """Look at the questions again."""
        self._wake.set()

    def task_changed(self, notice: Notice) -> None:
        """Look at the questions again if a task has changed that has one."""
        confirm = notice.task.confirm
        wants = None if confirm is None else confirm.approvals
        is_new = wants is not None and wants.room is not None
        if is_new or any(each.question.task == notice.task.id for each in self._known.values()):
            self.wake()

    def _changed(self, membership: Membership, change: Change) -> None:
        if isinstance(change, Joined):
            self._away |= {
                each.id for each in self._known.values() if self._is_there(each, membership)
            }
        if self.has_any(membership.room):
            self.wake()

    @staticmethod
    def _is_there(one: RoomQuestion, membership: Membership) -> bool:
        return one.state == "open" and one.was_asked and one.room.jid == membership.room

    # Messages of rooms.

    def has_any(self, room: JID) -> bool:
        """Return whether a room has a question whose end it does not know yet."""
        return any(each.room.jid == room for each in self._known.values())

    def find(self, room: JID, message_id: str) -> str | None:
        """Return the id of the question that a message in a room asks."""
        return self._ids.get((room.bare, message_id)) or None

    def find_named(self, room: JID, beginning: str) -> str | None:
        """Return the id of the only open question of a room with this beginning."""
        found = [
            one.id
            for one in self._known.values()
            if one.state == "open" and one.room.jid == room.bare and one.id.startswith(beginning)
        ]
        return found[0] if len(found) == 1 else None

    def open_question(self, id_: str) -> RoomQuestion | None:
        """Return an open question by its id."""
        found = self._known.get(id_)
        return found if found is not None and found.state == "open" else None

    def sent_back(self, room: JID, id_: str) -> None:
        """Note that a room has sent one of our messages to all. Never waits."""
        if self.find(room, id_) is not None:
            self._keeps_ids.add(room)
        if (room, id_) in self._awaited:
            self._awaited[room, id_].set()

    def reflected(self, room: JID, id_: str, stanza_id: str) -> Write | None:
        """Note the id that a room has given to one of our messages. Return how it is stored; None
        for a message that asks nothing.
        """
        question = self.find(room, id_)
        if question is None or (room, stanza_id) in self._ids:
            return None
        self._ids[room, stanza_id] = question
        return lambda db: room_question_rows.add_message(db, room, stanza_id, question)

    def disown(self, room: JID, id_: str) -> Write | None:
        """Forget the id of one of our messages that another occupant has given to a message, too:
        who refers to it may mean that message. Return how that is stored; None for other ids.
        """
        if self.find(room, id_) is None:
            return None
        self._ids[room, id_] = ""
        return lambda db: room_question_rows.remove_message(db, room, id_)

    # The work.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Ask and correct until cancelled."""
        agent = self._kernel.stream.addresses.address_of(DEFAULT_AGENT)
        here = {each.room for each in self._kernel.rooms if each.is_in}
        for room in self._kernel.environment.catalog.rights.policy.rooms:
            self._enter(agent, room)
        task_status.started()
        is_first = True
        while True:
            self._wake = anyio.Event()
            retry_s: float | None = _RETRY_S
            try:
                found, shared = await self._kernel.storage.read(
                    lambda db: (unfinished(db), db.dialect == "postgresql")
                )
                retry_s = _LOOK_S if shared else None
                if is_first:
                    is_first = False
                    self._begin(found, here)
                await self._settle_all(found)
                if self._silent:
                    retry_s = _AGAIN_S
            except StorageError as error:
                log_failure(_log, "cannot show rooms the state of their questions", error)
                retry_s = _RETRY_S
            with anyio.move_on_after(retry_s):
                await self._wake.wait()

    def _begin(self, found: Sequence[RoomQuestion], here: Collection[JID]) -> None:
        """Begin with the questions that were asked before. The agent was in the rooms that are
        `here`; it leaves those that no rule names any more.
        """
        self._away |= {each.id for each in found if each.was_asked and each.room.jid not in here}
        named = self._kernel.environment.catalog.rights.policy.rooms
        wanted = {*named, *(each.room.jid for each in found)}
        for membership in self._kernel.rooms:
            if membership.room not in wanted:
                self._kernel.rooms.leave(membership.address, membership.room, USER)

    def _enter(self, agent: JID, room: JID) -> Membership:
        found = self._kernel.rooms.get(agent, room)
        stay = None if found is None else found.stays.get(USER)
        if found is not None and stay is not None and stay.said == self.said:
            return found
        name = self._kernel.stream.addresses.agent_at(agent)
        stay = Stay(self._changed, said=self.said)
        return self._kernel.rooms.enter(agent, room, USER, stay, name)

    async def _settle_all(self, found: Sequence[RoomQuestion]) -> None:
        self._known = {each.id: each for each in found}
        self._away &= self._known.keys()
        self._silent.clear()
        for gone in self._sending.keys() - self._known.keys():
            del self._sending[gone]
        for each in found:
            for id_ in each.ids:
                self._ids.setdefault((each.room.jid, id_), each.id)
        for each in found:
            try:
                await self._settle(each)
            except StorageError:
                raise
            except Exception:  # noqa: BLE001 - the other questions must still be asked
                _log.exception("cannot show a room the state of a question", question=each.id)

    async def _settle(self, one: RoomQuestion) -> None:
        """Bring a room to the state of its question."""
        membership = self._enter(self.agent_of(one), one.room.jid)
        if one.state != "open":
            await self._conclude(one, membership)
            return
        if membership.state in ("offline", "joining", "elsewhere"):
            return
        why_not = self._why_not(one, membership)
        if why_not:
            await self._ask_people(one, membership, why_not)
            return
        names = self._names(one.approved_by, membership)
        state = approvals.state(one.approvals, names)
        if one.id in self._away:
            state = f"{state} {_AWAY}".lstrip()
        await self._show(one, membership, state)

    async def _conclude(self, one: RoomQuestion, membership: Membership) -> None:
        state = self._ending(one, membership)
        if not one.was_asked:
            await self._kernel.storage.write(
                lambda db: room_question_rows.show(db, one.id, "", done=True)
            )
        elif membership.is_in and not membership.is_muted:
            await self._show(one, membership, state)

    @staticmethod
    def _why_not(one: RoomQuestion, membership: Membership) -> str:
        """Return why the occupants of a room cannot decide; empty if they can."""
        if not membership.is_in:
            return f"I am not there: {membership.reason}"
        if membership.is_muted:
            return _MUTED
        if one.room.hat is not None and HATS not in membership.features:
            return _NO_HATS
        own, others = membership.view.own, membership.view.occupants.values()
        sees_all = membership.shows_accounts or (own is not None and own.role == "moderator")
        return "" if sees_all or any(each.jid for each in others) else _HIDDEN

    def _ending(self, one: RoomQuestion, membership: Membership) -> str:
        if one.state == "expired":
            return "Expired: I have not done it."
        if one.state == "withdrawn":
            return "Withdrawn: it is not to be decided any more."
        denied = one.denied_by
        if denied is not None:
            return f"Denied by {self._names((denied,), membership)[0]}."
        names = self._names(one.approved_by, membership)
        return f"Approved by {listed(names)}."

    @staticmethod
    def _names(people: Iterable[JID], membership: Membership) -> Sequence[str]:
        """Return names of people for a room: their accounts, if it shows those to everybody."""
        if membership.shows_accounts:
            return [printable_name(str(jid)) for jid in people]
        nicks = {each.jid: each.nick for each in membership.view.occupants.values()}
        return [printable_name(nicks.get(str(jid)) or jid.local or "somebody") for jid in people]

    async def _show(self, one: RoomQuestion, membership: Membership, state: str) -> None:
        """Ask a question in its room, or correct the message that has asked it."""
        is_open = one.state == "open"
        shown = f"{one.state} {state}"
        room = one.room.jid
        if one.shown == shown or room in self._silent:
            return
        is_first = is_open and not one.shown
        sending, id_ = self._sending.get(one.id, ("", ""))
        if sending != shown:
            id_ = one.id if is_first else system.token_hex(_ID_BYTES)
            self._sending[one.id] = shown, id_
        text = self._words.in_room(one.question, state, is_open=is_open)
        self._ids[room, id_] = one.id
        await self._kernel.storage.write(
            lambda db: room_question_rows.add_message(db, room, id_, one.id)
        )
        message = OutboundMessage(
            id=id_,
            conversation=Conversation(membership.address.bare, room, in_room=True),
            to=ReplyAddress(str(room), membership.address, "groupchat"),
            parts=(Text(text, _LANG),),
            payloads=_payloads(one, self._words.title_of(one.question), text),
            replaces=None if is_first else one.id,
            must_arrive=True,
        )
        if not await self._send(message, membership):
            return
        del self._sending[one.id]
        await self._kernel.storage.write(
            lambda db: room_question_rows.show(db, one.id, shown, done=not is_open)
        )

    async def _send(self, message: OutboundMessage, membership: Membership) -> bool:
        """Send a message to a room; return whether the room has it. If the connection was lost, it
        is sent again in the next session; if the room does not answer, some time later.
        """
        messenger, room = self._kernel.stream.messenger, membership.room
        keeps_ids = room in self._keeps_ids or _STABLE_IDS in membership.features
        is_back = self._awaited[room, message.id] = anyio.Event()
        try:
            try:
                delivery = messenger.send(message)
            except TooBigError:  # the text alone has everything, too
                delivery = messenger.send(msgspec.structs.replace(message, payloads=()))
            if not await delivery.settled() or not await messenger.handled():
                return False
            if keeps_ids:
                with anyio.move_on_after(_BACK_S):
                    await is_back.wait()
                if not is_back.is_set():
                    self._silent.add(room)
                    return False
        finally:
            del self._awaited[room, message.id]
        return True

    # People in place of the room.

    async def _ask_people(self, one: RoomQuestion, membership: Membership, why: str) -> None:
        """Ask those who may decide and are known, because the room cannot decide; without enough
        of them the task fails, unless the room was asked before or can be asked soon.
        """
        if self._asked_otherwise.get(one.id) == why:
            return
        people = {*one.question.asked, *await self._listed(one, membership)}
        able = people | {vote.jid for vote in one.votes}
        # Where nobody has to correct anything, the agent will be in the room soon.
        stays_out = membership.is_in or bool(membership.advice)
        if len(able) < one.approvals.need and stays_out and not one.shown:
            await self._tasks.fail_unanswerable(one.id, _unanswerable(one, len(able), why))
            return
        _log.info("a room cannot decide; people are asked", room=str(one.room.jid), reason=why)
        await self._tasks.ask_also(one.id, people)
        self._asked_otherwise[one.id] = why

    async def _listed(self, one: RoomQuestion, membership: Membership) -> Collection[JID]:
        """Return those who may decide by their affiliation, as far as the room tells."""
        if one.room.hat is not None:  # no list has the hats
            return ()
        found: dict[JID, None] = {}
        barred = frozenset[JID]() if one.approvals.requester else one.question.request.requesters
        with anyio.move_on_after(_LIST_S):
            for rank in ranks_from(one.room.affiliation):
                query = AdminQuery(items=(AdminItem(affiliation=rank),))
                try:
                    answer = await self._kernel.stream.call_optional(
                        "get", one.room.jid, query, AdminQuery, from_=membership.address
                    )
                except StanzaError:
                    continue  # only some may see this list (XEP-0045 §9.5)
                listed = () if answer is None else answer.items
                found |= dict.fromkeys(each.jid.bare for each in listed if each.jid is not None)
        admits = self._kernel.environment.catalog.admits
        able = [one for one in found if one not in barred and admits(one) and self.may_vote(one)]
        return able[:_MOST_ASKED]

    def agent_of(self, one: RoomQuestion) -> JID:
        """Return the bare address by which the agent that asks is in the room."""
        return self._kernel.stream.addresses.agent_address(one.agent)

    def may_vote(self, account: JID) -> bool:
        """Return whether an account is not known to be that of an agent."""
        is_peer = self._kernel.environment.catalog.is_peer(account)
        return not is_peer and self._kernel.contacts.persons.known(account, account) is not False


def _payloads(one: RoomQuestion, title: str, text: str) -> tuple[Payload, ...]:
    """Return what clients show that know confirmations or polls."""
    counts = {
        THUMBS_UP: len(one.approved_by),
        THUMBS_DOWN: int(one.denied_by is not None),
    }
    is_text_of_poll = Fallback(for_=POLLS, bodies=(FallbackBody(),))
    if one.state != "open":
        tallies = tuple([Tally(emoji=emoji, count=count) for emoji, count in counts.items()])
        return (PollClosed(message_id=one.id, title=title, tallies=tallies),)
    options = (
        Option(emoji=THUMBS_UP, label="Approve"),
        Option(emoji=THUMBS_DOWN, label="Deny"),
    )
    poll = Poll(title=title, description=text, deadline=one.confirm.expires, options=options)
    return (one.confirm, poll, is_text_of_poll)


def _unanswerable(one: RoomQuestion, able: int, why: str) -> str:
    """Return why nobody can decide a question, and what to do."""
    need, room = one.approvals.need, printable_name(str(one.room.jid))
    needs = "the approval of one person" if need == 1 else f"{need} approvals"
    who = "nobody" if not able else f"only {able}"
    advice = _ADVICE.get(why, "Let the agent enter the room")
    return (
        f"This skill needs {needs} of the room {room}, and {who} can be asked: {why.rstrip('.')}."
        f" {advice}, or name accounts in approvers."
    )
