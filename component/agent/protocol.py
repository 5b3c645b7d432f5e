"""What the loop gets from other packages: the profile of an agent, its tools, and its voice."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from component.agent.requests import Reply, TurnRequest
from component.budget.protocol import TurnBudget
from component.config.llm import Tier
from component.link.messages.inbound import ReplyAddress
from component.memory_directory.layout import SessionKey
from component.models.messages import FilePart, ImagePart, ToolCall
from component.models.protocol import Tool
from component.personas.workspace import Character
from component.policy.flows import AgentLimits
from component.policy.globs import common
from component.policy.taint import Taint
from xep.file_sharing import FileSharing
from xep.jid import JID


class Profile(Character, frozen=True, kw_only=True):
    """An agent as it is for one person, during a turn.

    `agent` is its localpart, or `parent/id` of a sub-agent, `above` the ancestors of a sub-agent,
    the nearest first; `title` is the name that it gives itself. Empty texts have a default.
    `zone` is the name of the person's time zone. `max_iterations` replaces the value of the
    settings, `max_tokens` lowers their maximum for an answer. `read_only` and `unconfirmed` are as
    in `AgentLimits`. `model_of` is the agent whose own
    model it uses instead of that of a tier. `spawn` says whether it may have sub-agents,
    `for_admin` whether the person is an admin.
    """

    agent: str
    title: str = ""
    zone: str = "UTC"
    tier: Tier = "standard"
    model_of: str = ""
    temperature: float | None = None
    capabilities: tuple[str, ...] = ("*",)
    skills: tuple[str, ...] = ("*",)
    max_iterations: int | None = None
    max_tokens: int | None = None
    spawn: bool = True
    above: tuple[str, ...] = ()
    for_admin: bool = False
    read_only: bool = False
    unconfirmed: bool = False

    @property
    def limits(self) -> AgentLimits:
        """What the agent may use."""
        return AgentLimits(self.skills, self.capabilities, self.read_only, self.unconfirmed)

    def limited(self, limits: AgentLimits) -> "Profile":
        """Return the profile with at most the rights of another agent, which has asked for its
        work.
        """
        if limits == AgentLimits():
            return self
        return msgspec.structs.replace(
            self,
            capabilities=common(self.capabilities, limits.capabilities),
            skills=common(self.skills, limits.skills),
            read_only=self.read_only or limits.read_only,
            unconfirmed=self.unconfirmed or limits.unconfirmed,
        )


class Away(msgspec.Struct, frozen=True):
    """The agent does not answer now: it is paused, killed or unknown. `sentence` says so.

    `begun` is its profile for turns that have started before, if it may finish them.
    """

    sentence: str
    begun: Profile | None = None


Profiles: TypeAlias = Callable[[SessionKey, TurnRequest | None], Awaitable[Profile | Away]]
"""Returns the profile of an agent for a person, for the turn of a request if there is one. Raises
StorageError.
"""


class Voice(Protocol):
    """Sends what an agent says."""

    def say(self, reply: Reply) -> bool:
        """Queue a reply, in order; False if there is no stream now. Never waits."""

    def composing(self, to: ReplyAddress, on: bool) -> None:
        """Show in clients that support it whether an answer is being written (XEP-0085)."""

    def drafts(self, to: ReplyAddress) -> bool:
        """Whether answers to this address are shown while they are written."""

    def draft(self, reply: Reply) -> bool:
        """Show the beginning of an answer, which no archive stores and the answer corrects. False
        if it is not sent. Never waits.
        """

    def waits(self) -> bool:
        """Whether a queued reply would be lost if this process ended now."""

    async def sent(self) -> None:
        """Wait until the server has handled all replies that are queued now."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a tool: on whose behalf it is called, and the limits of the call.

    `request` is the request of the turn, `profile` that of the agent or sub-agent that calls.
    `turn` is the id of the turn and of the trace, `task` that of the task of a sub-agent. `taints`
    are those of everything that the model has read in this conversation. `budget` pays, `operator`
    is the operator who started the turn, if one did.

    `written` are the texts of this conversation that the person and the operator have written, and
    no model.

    `found` are the names of the skills that searches have found, the latest last.

    If one of the taints is untrusted, `said` has the person's messages in this conversation, and
    `results` the results of tools in it that no stranger has written, each with the name of its
    tool; both as far as the model sees them.
    """

    request: TurnRequest
    profile: Profile
    turn: str
    taints: frozenset[Taint] = frozenset()
    budget: TurnBudget | None = None
    operator: str = ""
    task: str = ""
    written: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()

    @property
    def agent(self) -> str:
        """The name of the agent or sub-agent."""
        return self.profile.agent


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a call: a text for the model, and images or files.

    `files` are those that the person gets with the answer. `taint` is the least trusted of the
    possible authors of the text, `taints` are all of them if there are several. `not_made` says
    that the call certainly had no effect, because it was not made. `found` are the names of skills
    that a search has found; they are tools from then on, and the text describes them.
    """

    content: str
    is_error: bool = False
    taint: Taint | None = None
    parts: tuple[ImagePart | FilePart, ...] = ()
    files: tuple[FileSharing, ...] = ()
    taints: tuple[Taint, ...] = ()
    not_made: bool = False
    found: tuple[str, ...] = ()


class Waiting(msgspec.Struct, frozen=True):
    """The call continues as a task, because it needs a person or takes long. `question` says that
    somebody was asked, and `room` in which room, if not the person alone.
    """

    task: str
    question: bool = False
    room: JID | None = None


class Tools(Protocol):
    """The skills, as a model sees them; each call is handled as an execute request."""

    def offered(self, caller: Caller) -> Sequence[Tool]:
        """Return the tools for the model of this caller. Never waits."""

    def together(self, caller: Caller, name: str) -> bool:
        """Whether calls of this tool have no effects that other calls of the same answer could see,
        so that they may run in parallel.
        """

    def only_reads(self, caller: Caller, name: str) -> bool:
        """Whether calls of this tool have no effects at all."""

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

    async def retract(self, caller: Caller, tasks: Sequence[str]) -> bool:
        """Cancel the tasks as which calls continue, if none of them has done anything; else change
        nothing, and return False. Raises StorageError.
        """

    async def give_up(self, caller: Caller, call: ToolCall, task: str | None) -> None:
        """Cancel a call that is no longer wanted, and its task, which is `task` if it is known.

        A call without a known task may still be running. Raises StorageError.
        """
