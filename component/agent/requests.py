"""Requests to agents, and their outcomes."""

from typing import Final, Literal, TypeAlias

import msgspec

from component.budget.protocol import Payer
from component.link.messages.inbound import Attachment, Conversation, ReplyAddress
from component.memory_directory.layout import SessionKey
from component.policy.flows import AgentLimits
from component.policy.taint import Taint
from component.skills.errors import printable
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

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return self.conversation.agent.local or ""

    @property
    def session(self) -> SessionKey:
        """The session that has the conversation's history."""
        return SessionKey(self.agent, self.conversation.peer.bare)

    @property
    def requester(self) -> JID:
        """The address on whose behalf tools are called: the full JID of the sender, if there is
        one.
        """
        starter = self.starter
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
        """Whether it is still unknown who could have written the text."""
        return self.taint is None and isinstance(self.starter, MessageStarter)

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
        """Whether one answer can answer both: messages of one exchange with the same payer."""
        mine, its = self.reply_to, other.reply_to
        return (
            isinstance(self.starter, MessageStarter)
            and isinstance(other.starter, MessageStarter)
            and mine is not None
            and its is not None
            and (self.principal, self.payer, mine.thread, mine.type, mine.from_)
            == (other.principal, other.payer, its.thread, its.type, its.from_)
            and not (self.is_unread or other.is_unread)
        )


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A message of an agent. `id` is the same if it is sent again.

    `unrequested` says that the recipient has not asked for it; it is not sent to people who want no
    such messages.
    """

    id: str
    to: ReplyAddress
    text: str
    unrequested: bool = False


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
    )


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
    """The outcome of a turn so far; `text` is the answer, or the reason why there is none.

    `excused`: the answer is a sentence of the service, because the model gave none. After the
    outcomes in `CONTINUES` the turn continues later: `delayed`, `parked` (it waits for a task),
    `asked` (it waits for a person's answer about one) and `postponed`.
    """

    kind: OutcomeKind
    text: str = ""
