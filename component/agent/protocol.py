"""What the loop is given, and what it asks of other rooms."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from component.memory.recalled import Recalled as Recalled  # noqa: PLC0414 - part of this contract
from component.models.protocol import Tool, ToolCall
from component.policy.taint import Taint
from component.settings.llm import Tier
from xep.jid import JID


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A message to an agent.

    `id` names it for us: unique, and what its turn is called. `agent` is the localpart it was sent
    to, `target` the address of ours as it was written, `requester` the full JID it came from,
    `principal` the bare one. `taint` says whether a person wrote it; it is None until that is
    known, which is before its turn. `msg_id`, `type`, `thread` and `lang` are the message's;
    `chat_states` says that its client shows who is writing.
    """

    id: str
    agent: str
    principal: JID
    requester: JID
    target: JID
    body: str
    taint: Taint | None = None
    msg_id: str | None = None
    type: Literal["chat", "normal"] = "chat"
    thread: str | None = None
    lang: str | None = None
    chat_states: bool = False


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What is said to the one who wrote `to`; `id` is the same if it is said again."""

    id: str
    to: Incoming
    body: str


class Voice(Protocol):
    """Sends what an agent says."""

    def say(self, reply: Reply) -> bool:
        """Put it on its way, in order; False if there is no stream now. Never waits."""

    def composing(self, to: Incoming, on: bool) -> None:
        """Show, where a client can, that an answer is being written (XEP-0085)."""

    def waits(self) -> bool:
        """Whether something is on its way that would be lost if this process ended now."""

    async def sent(self) -> None:
        """Wait until nothing is that was said before."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf, and within what, a tool is called.

    `agent` is the agent or sub-agent that calls, `capabilities` the patterns of what it may touch,
    `skills` those of the names it is offered. `turn` is the turn, which is the trace too. `taints`
    are those of everything the model has been shown in this conversation. `paid_by` is the turn
    whose budget it all counts against, `spawn` whether the agent may have sub-agents, `tier` the
    kind of model it uses, `model_of` the agent whose own it uses instead.
    """

    incoming: Incoming
    agent: str
    turn: str
    capabilities: tuple[str, ...] = ("*",)
    skills: tuple[str, ...] = ("*",)
    taints: frozenset[Taint] = frozenset()
    paid_by: str = ""
    spawn: bool = True
    tier: Tier = "standard"
    model_of: str = ""


class ToolResult(msgspec.Struct, frozen=True):
    """What came of a call, as a text for the model."""

    content: str
    is_error: bool = False
    taint: Taint | None = None


class Waiting(msgspec.Struct, frozen=True):
    """The call goes on as a task: it needs a person, or takes long."""

    task: str
    question: bool = False


class Tools(Protocol):
    """The skills, as a model sees them; each call goes the road of an execute request."""

    def offered(self, caller: Caller) -> Sequence[Tool]:
        """The tools that a model may be offered for this caller. Never waits."""

    def together(self, caller: Caller, name: str) -> bool:
        """Whether calls of this tool may run beside others of the same round."""

    async def call(
        self, caller: Caller, call_id: str, name: str, arguments: str
    ) -> ToolResult | Waiting:
        """Call a tool, or learn what became of that very call.

        A repetition with the same turn and `call_id` does nothing twice. Everything that can be
        wrong, with the arguments or the skill, is a result for the model. Raises StorageError.
        """

    def refused(self, caller: Caller, name: str) -> None:
        """Record that a call was not made: no such tool is offered, or its arguments cannot be
        read. Never waits.
        """

    async def outcome(self, caller: Caller, call: ToolCall, task: str) -> ToolResult | Waiting:
        """What became of a task that a call goes on as. Raises StorageError."""

    async def give_up(self, caller: Caller, call: ToolCall, task: str | None) -> None:
        """A call is no longer wanted: end what it goes on as, which is `task` if that is known.

        One that nobody waits for any more may be under way all the same. Raises StorageError.
        """


class Recall(Protocol):
    """Finds memories."""

    async def recall(
        self, agent: str, principal: JID, words: str, most: int, *, trace: str = ""
    ) -> Sequence[Recalled]:
        """The memories of one principal (and those shared with it) that bear on these words.

        `trace` is the turn.
        """


class Scanner(Protocol):
    """Looks for attempts to give the model orders through data."""

    def scan(self, text: str) -> str | None:
        """What is suspicious about a text, in a few words, or None. Never waits."""
