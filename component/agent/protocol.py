"""The interfaces of the loop to other packages."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from component.agent.requests import Reply, TurnRequest
from component.link.messages.inbound import ReplyAddress
from component.memory.recalled import Recalled as Recalled  # noqa: PLC0414 - part of this contract
from component.models.messages import FilePart, ImagePart, ToolCall
from component.models.protocol import Tool
from component.policy.taint import Taint
from component.settings.llm import Tier
from xep.jid import JID


class Voice(Protocol):
    """Sends what an agent says."""

    def say(self, reply: Reply) -> bool:
        """Queue a reply, in order; False if there is no stream now. Never waits."""

    def composing(self, to: ReplyAddress, on: bool) -> None:
        """Show in clients that support it whether an answer is being written (XEP-0085)."""

    def waits(self) -> bool:
        """Whether a queued reply would be lost if this process ended now."""

    async def sent(self) -> None:
        """Wait until the server has handled all replies that are queued now."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a tool: on whose behalf it is called, and the limits of the call.

    `request` is the request of the turn, `agent` the agent or sub-agent that calls, `capabilities`
    are the patterns of its capabilities, `skills` those of the names of its skills. `turn` is the
    id of the turn and of the trace. `taints` are those of everything that the model has read in
    this conversation. `paid_by` is the turn whose budget pays, `spawn` says whether the agent may
    have sub-agents, `tier` is the kind of model that it uses, `model_of` the agent whose own model
    it uses instead, `zone` the time zone of the person. `operator` is the operator who started the
    turn, if one did.

    `written` are the texts of this conversation that the person and the operator have written, and
    no model.

    If one of the taints is untrusted, `said` has the person's messages in this conversation, and
    `results` the results of tools in it that no stranger has written, each with the name of its
    tool; both as far as the model sees them.
    """

    request: TurnRequest
    agent: str
    turn: str
    capabilities: tuple[str, ...] = ("*",)
    skills: tuple[str, ...] = ("*",)
    taints: frozenset[Taint] = frozenset()
    paid_by: str = ""
    spawn: bool = True
    tier: Tier = "standard"
    model_of: str = ""
    zone: str = "UTC"
    operator: str = ""
    written: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a call: a text for the model, and images or files.

    `taints` are those of everything that a sub-agent had read before it wrote the text.
    """

    content: str
    is_error: bool = False
    taint: Taint | None = None
    parts: tuple[ImagePart | FilePart, ...] = ()
    taints: tuple[Taint, ...] = ()


class Waiting(msgspec.Struct, frozen=True):
    """The call continues as a task, because it needs a person or takes long."""

    task: str
    question: bool = False


class Tools(Protocol):
    """The skills, as a model sees them; each call is handled as an execute request."""

    def offered(self, caller: Caller) -> Sequence[Tool]:
        """Return the tools for the model of this caller. Never waits."""

    def together(self, caller: Caller, name: str) -> bool:
        """Whether calls of this tool have no effects that other calls of the same answer could see,
        so that they may run in parallel.
        """

    async def confirm_together(
        self, caller: Caller, calls: Sequence[ToolCall], *, again: bool
    ) -> Mapping[str, ToolResult | Waiting]:
        """Ask a person once about those of these calls of one answer that need a confirmation.

        Return what each call that was asked about in this way waits for, by the id of the call. The
        others have to be called, and may be asked about alone. With `again`, the calls were made
        before: a question that was asked is found, and none is asked. Raises StorageError.
        """

    async def call(
        self, caller: Caller, call_id: str, name: str, arguments: str
    ) -> ToolResult | Waiting:
        """Call a tool, or return the outcome of an identical call.

        A repetition with the same turn and `call_id` has no further effects. Errors in the
        arguments, and failures of the skill, are results for the model. Raises StorageError.
        """

    def refused(self, caller: Caller, name: str) -> None:
        """Record that a call was not made, because the tool is not offered or its arguments cannot
        be read. Never waits.
        """

    async def outcome(self, caller: Caller, call: ToolCall, task: str) -> ToolResult | Waiting:
        """Return the outcome of the task as which a call continues. Raises StorageError."""

    async def give_up(self, caller: Caller, call: ToolCall, task: str | None) -> None:
        """Cancel a call that is no longer wanted, and its task, which is `task` if it is known.

        A call without a known task may still be running. Raises StorageError.
        """


class Recall(Protocol):
    """Finds memories."""

    async def recall(
        self, agent: str, principal: JID, words: str, most: int, *, trace: str = ""
    ) -> Sequence[Recalled]:
        """Return the memories of one principal (and those shared with it) that match these words.

        `trace` is the turn.
        """

    async def unchanged(
        self, agent: str, principal: JID, shown: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Recalled]:
        """Return the memories with these keys and digests (`Recalled.digest`) that are still stored
        unchanged. Raises StorageError.
        """


class Scanner(Protocol):
    """Looks for instructions to the model that are hidden in data."""

    def scan(self, text: str) -> str | None:
        """Return what is suspicious about a text, in a few words, or None. It is called in several
        worker threads at the same time.
        """
