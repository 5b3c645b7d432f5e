"""Requests to agents, and their outcomes."""

from collections.abc import Collection, Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from component.budget.protocol import Payer
from component.link.messages.inbound import Attachment, Conversation, Reference, ReplyAddress
from component.memory_directory.layout import SessionKey
from component.policy.flows import AgentLimits
from component.policy.globs import common
from component.policy.taint import Taint
from component.skills.errors import printable
from xep.file_sharing import FileSharing
from xep.jid import JID


class MessageStarter(msgspec.Struct, frozen=True, tag="message", omit_defaults=True):
    """A message. `sender` is the full address that it came from, `msg_id` the id by which a
    correction or a retraction refers to it.
    """

    sender: JID
    msg_id: str | None = None


class OperatorStarter(msgspec.Struct, frozen=True, tag="operator"):
    """A command of an operator: `operator` is the bare JID of an admin, or `operator` for a command
    on the command line.
    """

    operator: str


class WorkStarter(msgspec.Struct, frozen=True, tag="work"):
    """Work that starts without a request, such as the firing of a schedule.

    `source` is the kind of its trigger, `name` the name of the schedule, watch or webhook.
    """

    source: str
    name: str


class Resumption(msgspec.Struct, frozen=True, tag="resumption"):
    """A turn that began earlier continues.

    `cause` is `restart` after a restart of the service, `task` when a task that the turn waited for
    has ended, `time` when a delayed answer is due, and `storage` after a storage failure.
    """

    cause: Literal["restart", "task", "time", "storage"]


RequestStarter: TypeAlias = MessageStarter | OperatorStarter | WorkStarter
"""What starts a new turn."""
Starter: TypeAlias = RequestStarter | Resumption
"""What starts or continues a turn."""


_LONGEST_NAME: Final = 200
_LONGEST_URL: Final = 2_000


class SentFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of a message.

    Attributes:
        sent: the file as its sender describes it.
        name: the name under which it is stored, once it was fetched; so are its `sha256`, its
            `media_type` by its content and its `size` in bytes.
        unread: a sentence that says why the model cannot read it; empty if it can.
    """

    sent: Attachment
    name: str = ""
    sha256: str = ""
    media_type: str = ""
    size: int = 0
    unread: str = ""

    @property
    def is_fetched(self) -> bool:
        """Whether it is known what it contains, or why that cannot be known."""
        return bool(self.sha256 or self.unread)


def described(file: Attachment) -> str:
    """Return the line about a file in the text of a message, which models are shown."""
    name = printable(file.name or file.description or "a file", _LONGEST_NAME)
    what = [] if file.media_type is None else [printable(file.media_type, _LONGEST_NAME)]
    what += [] if file.size is None else [f"{file.size} bytes"]
    about = f" ({', '.join(what)})" if what else ""
    is_web = file.url.lower().startswith(("https:", "http:"))  # others may contain a key
    where = f", at {printable(file.url, _LONGEST_URL)}" if is_web else ""
    return f"[Attached: {name}{about}{where}]"


def with_files(text: str, files: Iterable[Attachment]) -> str:
    """Return the text of a message for a model, with a line for each of its files."""
    return "\n".join(filter(None, (text, *map(described, files))))


class Overheard(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that others have written in a room before the request. `sent` is in seconds since
    1970. `id` is the stanza id that the room gave it (XEP-0359), by which a moderator removes it.
    """

    nick: str
    text: str
    sent: float = 0.0
    id: str = ""


class RoomRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request in a room has besides that of one person.

    Attributes:
        occupant: identifies who asks, also under another nickname; the same for nobody else.
        nick: the nickname of that occupant.
        account: the bare JID of that occupant, where presence shows it.
        skills: the patterns of the names of the skills that the turn may use.
        read_only: whether it may use only skills that only read.
        budget_usd: the most that all turns in the room may cost in a day; None for no limit.
        persona: the persona of the agent in the room; empty for its own.
        overheard: what others have written since the agent last answered, the oldest first.
        name: the name of the room for people; empty for its address.
        stanza_id: the id that the room gave the message (XEP-0359), to which the answer replies;
            empty if it gave none.
    """

    occupant: str
    nick: str
    account: JID | None = None
    skills: tuple[str, ...] = ("*",)
    read_only: bool = True
    budget_usd: float | None = None
    persona: str = ""
    overheard: tuple[Overheard, ...] = ()
    name: str = ""
    stanza_id: str = ""


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to an agent: it becomes a turn or joins one.

    Attributes:
        id: unique; the turn has the same id.
        starter: what caused the request.
        conversation: whose history it belongs to. Its agent has a localpart.
        principal: the bare JID whose rights the turn has.
        reply_to: where the answer goes; None if nobody gets one.
        at: the address of the agent that tasks of the turn have if there is no `reply_to`.
        text: the message or instruction for the agent; empty for a message that was retracted after
            its turn had begun.
        files: the files of the message, which the text describes.
        taint: who could have written the text; None while that is unknown, and for texts of
            operators.
        taints: those of everything that a model had read before it wrote the text, if one did.
        limits: those of the agent whose model has asked for this, if one did.
        language: the BCP 47 tag of the recipient's language.
        payer: the budget that pays; None for those of the principal and the agent.
        budget_usd: the maximum cost of the turn, in US dollars; None for no additional maximum.
        room: what it has if it is a request in a room, or a private message of an occupant.
        drafted: whether a draft of its answer was sent, which the answer corrects.
        after_told: whether the agent had told something by itself that the session does not have.
    """

    id: str
    starter: RequestStarter
    conversation: Conversation
    principal: JID
    reply_to: ReplyAddress | None = None
    at: JID | None = None
    text: str
    files: tuple[SentFile, ...] = ()
    taint: Taint | None = None
    taints: tuple[Taint, ...] = ()
    limits: AgentLimits = AgentLimits()
    language: str | None = None
    payer: Payer | None = None
    budget_usd: float | None = None
    room: RoomRequest | None = None
    drafted: bool = False
    after_told: bool = False

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return self.conversation.agent.local or ""

    @property
    def session(self) -> SessionKey:
        """The session that has the conversation's history: in a room, that of the room; for private
        messages of an occupant, one of its own.
        """
        peer = self.conversation.peer
        return SessionKey(self.agent, peer.bare if self.room is None else peer)

    @property
    def owner(self) -> JID:
        """Whose memory the turn has: that of the principal, or that of a room or of its occupant,
        which has nothing of anybody's own.
        """
        return self.principal if self.room is None else self.conversation.peer

    @property
    def party(self) -> str:
        """Who waits for the answer: the principal, or one occupant of a room, where several may
        have the same principal.
        """
        room = self.room
        if room is None:
            return str(self.principal)
        return f"{self.conversation.peer.bare} {room.occupant}"

    @property
    def rights(self) -> AgentLimits:
        """The limits of the turn: `limits`, and those of the room. Nobody can confirm a call for an
        occupant whose account is unknown.
        """
        room, limits = self.room, self.limits
        if room is None:
            return limits
        return AgentLimits(
            common(limits.skills, room.skills),
            limits.capabilities,
            limits.read_only or room.read_only,
            limits.unconfirmed or room.account is None,
        )

    @property
    def effective_payer(self) -> Payer | None:
        """The budget that pays instead of those of the principal and the agent: `payer`, or that of
        the room.
        """
        room = self.room
        if room is None or self.payer is not None:
            return self.payer
        return Payer("room", str(self.conversation.peer.bare), room.budget_usd)

    @property
    def requester(self) -> JID:
        """The address on whose behalf tools are called, which is asked for confirmations: the full
        JID of the sender, if there is one. In a room it is the principal: another person may have
        the nickname next, and would be asked.
        """
        starter = self.starter
        if self.room is not None:
            return self.principal
        return starter.sender if isinstance(starter, MessageStarter) else self.principal

    @property
    def target(self) -> JID:
        """The address of the agent to which the message was sent, or at which the work was asked
        for.
        """
        if self.reply_to is not None:
            return self.reply_to.from_
        return self.at or self.conversation.agent

    @property
    def operator(self) -> str | None:
        """The operator who caused the request, if one did."""
        starter = self.starter
        return starter.operator if isinstance(starter, OperatorStarter) else None

    @property
    def msg_id(self) -> str | None:
        """The id of the message, if the request is a message with an id."""
        starter = self.starter
        return starter.msg_id if isinstance(starter, MessageStarter) else None

    @property
    def needs_label(self) -> bool:
        """Whether it is still unknown who could have written the text, and its sender can say."""
        return self.taint is None and self.room is None and isinstance(self.starter, MessageStarter)

    @property
    def awaits_files(self) -> bool:
        """Whether some of its files were not fetched yet."""
        return not all(one.is_fetched for one in self.files)

    @property
    def is_unread(self) -> bool:
        """Whether it consists of files of which the model can read none."""
        described_alone = "\n".join([described(one.sent) for one in self.files])
        return bool(self.text) and self.text == described_alone and not self.readable

    @property
    def readable(self) -> bool:
        """Whether the model can read one of its files."""
        return not all(one.unread for one in self.files)

    def belongs_with(self, other: "TurnRequest") -> bool:
        """Whether one answer can answer both: messages of one exchange with the same payer. Other
        occupants of a room have exchanges of their own.
        """
        mine, its = self.reply_to, other.reply_to
        return (
            isinstance(self.starter, MessageStarter)
            and isinstance(other.starter, MessageStarter)
            and mine is not None
            and its is not None
            and (self.party, self.principal, self.payer, mine.thread, mine.type, mine.from_)
            == (other.party, other.principal, other.payer, its.thread, its.type, its.from_)
            and not (self.is_unread or other.is_unread)
        )


def without_overheard(request: TurnRequest, ids: Collection[str]) -> TurnRequest:
    """Return a request without these messages of others in its room; the same object if it has none
    of them.
    """
    room = request.room
    kept = () if room is None else tuple([one for one in room.overheard if one.id not in ids])
    if room is None or len(kept) == len(room.overheard):
        return request
    return msgspec.structs.replace(request, room=msgspec.structs.replace(room, overheard=kept))


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A message of an agent, with `files` that are sent after the text. `id` is the same if it is
    sent again.

    `unrequested` says that the recipient has not asked for it; it is not sent to people who want no
    such messages. `replies_to` is the message in a room that it replies to, `corrects` the id of
    the draft that it corrects, if there is one.
    """

    id: str
    to: ReplyAddress
    text: str
    unrequested: bool = False
    replies_to: Reference | None = None
    files: tuple[FileSharing, ...] = ()
    corrects: str = ""


def reply_to(request: TurnRequest, what: str, text: str) -> Reply | None:
    """Make the reply to a request, with an id that ends with `what`; None without a reply
    address.
    """
    if request.reply_to is None:
        return None
    return Reply(
        id=f"{request.id}.{what}",
        to=request.reply_to,
        text=text,
        unrequested=not isinstance(request.starter, MessageStarter),
        replies_to=_answered(request),
    )


def _answered(request: TurnRequest) -> Reference | None:
    """Return the message to which an answer in a room replies, for all who read it there."""
    starter, room, to = request.starter, request.room, request.reply_to
    if not isinstance(starter, MessageStarter) or room is None or not room.stanza_id:
        return None
    if to is None or to.type != "groupchat":
        return None
    return Reference(room.stanza_id, is_ours=False, author=str(starter.sender))


OutcomeKind = Literal[
    "answered",
    "silent",
    "delayed",
    "excused",
    "parked",
    "asked",
    "stopped",
    "away",
    "postponed",
    "failed",
]


CONTINUES: Final = frozenset[OutcomeKind](("parked", "asked", "delayed", "postponed"))
"""The outcomes after which the turn continues later."""


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a turn so far; `text` is the answer, or the reason why there is none, `files`
    are those of an answer, and `taints` those of everything that the model had read before it.

    `excused`: the answer is a sentence of the service, because the model gave none. After the
    outcomes in `CONTINUES` the turn continues later: `delayed`, `parked` (it waits for a task),
    `asked` (it waits for a person's answer about one) and `postponed`.
    """

    kind: OutcomeKind
    text: str = ""
    files: tuple[FileSharing, ...] = ()
    taints: tuple[Taint, ...] = ()
