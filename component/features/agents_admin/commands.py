"""The commands about agents: what people can use, and for admins their states, the cost of models,
and instructions.

The turn of an instruction has the rights of the person in whose conversation it is given, who gets
the answer and any question for confirmation. The operator is named in the history of the
conversation and in the audit log.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from component import DEFAULT_AGENT, system
from component.agent.conversations import Conversations, TooManyWaitingError
from component.agent.registry import AgentError, Agents, AgentState
from component.agent.requests import OperatorStarter, Outcome, OutcomeKind, TurnRequest
from component.audit.protocol import AuditEvent
from component.budget.book import BudgetBook
from component.budget.protocol import BudgetUsage, Payer
from component.commands import (
    SEVERAL_LINES,
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    NoParams,
    Outline,
    Run,
    person_of,
)
from component.link.messages.inbound import Conversation, ReplyAddress
from component.zones import spoken_time
from xep.jid import JID, JIDError
from xep.stanza_error import StanzaError

if TYPE_CHECKING:
    from component.features.agents_admin.listing import AgentListing
    from component.kernel.kernel import Kernel  # the command line, which loads this, has none

Change: TypeAlias = Callable[[str, str], Awaitable[AgentState]]
"""Changes an agent's state on behalf of an operator. Raises AgentError, StorageError."""


class NameParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a command about one agent.

    Args:
        name: Name of the agent: the part of its address before the @.
    """

    name: Annotated[str, msgspec.Meta(title="Agent")]


class AgentsParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the list of agents.

    Args:
        name: Name of an agent or of a persona, for everything about it.
    """

    name: str = ""


class DayParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a command about one day.

    Args:
        day: Day in UTC, such as 2026-11-22. Default: today.
    """

    day: Annotated[str, msgspec.Meta(pattern=r"^(\d{4}-\d{2}-\d{2})?$")] = ""


AGENTS = Outline(
    name="agents",
    title="Agents",
    about="list the agents and personas: what each can do, costs and may",
    params=AgentsParams,
    group="agents",
    only_reads=True,
)
PAUSE_AGENT = Outline(
    name="pause-agent",
    title="Pause an agent",
    about="stop an agent from answering until it is resumed",
    params=NameParams,
    who="admin",
    group="agents",
)
RESUME_AGENT = Outline(
    name="resume-agent",
    title="Resume an agent",
    about="let a paused agent answer again",
    params=NameParams,
    who="admin",
    group="agents",
)
KILL_AGENT = Outline(
    name="kill-agent",
    title="Kill an agent",
    about="shut an agent down permanently and stop its work",
    params=NameParams,
    who="admin",
    group="agents",
)
USAGE = Outline(
    name="usage",
    title="Usage",
    about="show what language models have cost for you today",
    params=NoParams,
    group="conversation",
    only_reads=True,
)
BUDGET = Outline(
    name="budget",
    title="Budget",
    about="show what language models have cost, by agent and person",
    params=DayParams,
    who="admin",
    group="agents",
)


class AgentCommands:
    """The commands that list agents and change their states.

    Args:
        listed: lists what a person can use; None where no service runs.
    """

    def __init__(self, agents: Agents, listed: "AgentListing | None" = None) -> None:
        self._agents = agents
        self._listed = listed

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the commands."""
        agents = self._agents
        changes: Sequence[tuple[Outline[NameParams], Change, str]] = (
            (PAUSE_AGENT, agents.pause, "It finishes its current work and then stops answering."),
            (RESUME_AGENT, agents.resume, "It answers again."),
            (KILL_AGENT, agents.kill, "It is shut down permanently. Its memory stays on disk."),
        )
        made = [
            outline.done_by(_changed_by(change, said), {"name": self._titles})
            for outline, change, said in changes
        ]
        return (AGENTS.done_by(self._list), *made)

    async def _titles(self, _asking: Asking) -> Mapping[str, str]:
        await checkpoint()
        return {one.name: f"{one.name}, {one.state}" for one in self._agents.list()}

    async def _list(self, asking: Asking, params: AgentsParams) -> CommandResult:
        name = params.name.strip().casefold()
        if asking.principal is not None and self._listed is not None:
            return await self._list_for(self._listed, asking, asking.principal, name)
        found = [one for one in self._agents.list() if name in ("", one.name)]
        if not found:
            raise _no_agent(params.name)
        lines = [
            f"{one.name}: {one.state}" + (f" - {one.description}" if one.description else "")
            for one in found
        ]
        return CommandResult("\n".join(lines), found)

    async def _list_for(
        self, listed: "AgentListing", asking: Asking, principal: JID, name: str
    ) -> CommandResult:
        # Imported here, because the command line has no agents.
        from component.features.agents_admin.listing import listing_text, whole_text  # noqa: PLC0415

        agent = asking.agent or DEFAULT_AGENT
        rows = await listed.rows(agent, principal, asking.room or principal)
        if not name:
            return CommandResult(listing_text(rows), rows)
        found = [row for row in rows if row.name.casefold() == name]
        if not found:
            raise _no_agent(name)
        return CommandResult("\n\n".join(map(whole_text, found)), found)


def _no_agent(name: str) -> CommandError:
    return CommandError(f"There is no agent or persona called {name!r}.", "name")


def _changed_by(change: Change, said: str) -> Run[NameParams]:
    async def run(asking: Asking, params: NameParams) -> CommandResult:
        try:
            found = await change(params.name, asking.caller)
        except AgentError as error:
            raise CommandError(str(error), "name") from None
        return CommandResult(f"{found.name} is {found.state}. {said}", found)

    return run


class SpendingCommands:
    """The commands about the cost of language models.

    `default_agent` is the localpart of the agent that serves the domain itself; `zone` returns the
    name of the time zone of a caller.
    """

    def __init__(
        self,
        spending: BudgetBook,
        default_agent: str,
        zone: Callable[[Asking], Awaitable[str]] | None = None,
    ) -> None:
        self._spending = spending
        self._default_agent = default_agent
        self._zone = zone

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the commands."""
        return (USAGE.done_by(self._usage), BUDGET.done_by(self._budget))

    async def _usage(self, asking: Asking, _params: NoParams) -> CommandResult:
        if asking.principal is None:
            raise CommandError(
                "/usage works only over XMPP. The budget command shows the usage of everybody."
            )
        agent = asking.agent or self._default_agent
        found = await self._spending.usage(agent, asking.principal, asking.room)
        yours, of_all = found
        zone = "UTC" if self._zone is None else await self._zone(asking)
        now = system.now()
        renewed = (now.astimezone(UTC) + timedelta(days=1)).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        lines = (
            f"Today {'you have' if asking.room is None else 'this room has'} used {_words(yours)}.",
            f"For everybody together, this agent has used {_words(of_all)}.",
            f"I start to count anew {spoken_time(renewed, now, zone)}.",
        )
        return CommandResult("\n".join(lines), found)

    async def _budget(self, _asking: Asking, params: DayParams) -> CommandResult:
        found = [_named(row) for row in await self._spending.report(params.day or None)]
        if not found:
            return CommandResult("Nothing was spent.", ())
        lines = [
            f"{'Everybody' if row.scope == 'total' else f'{row.scope} {row.of}'}: "
            f"{_usage_text(row)}"
            for row in found
        ]
        return CommandResult("\n".join(lines), found)


def _words(row: BudgetUsage) -> str:
    """Return the usage of a budget in words, for people."""
    if not row.calls:
        return "nothing"
    tokens = f"{row.tokens:,} tokens{_of(row.limit_tokens, ',')}"
    parts = [f"{row.cached:,} of them from a cache"] if row.cached else []
    parts += [f"{row.reasoning:,} for reasoning"] if row.reasoning else []
    if parts:
        tokens += f" ({', '.join(parts)})"
    usd = f"{row.usd:.2f} USD" if row.usd >= 0.01 or not row.usd else "less than 0.01 USD"
    calls = "1 call" if row.calls == 1 else f"{row.calls:,} calls"
    return f"{tokens} and {usd}{_of(row.limit_usd, 'g')}, in {calls} of a language model"


def _named(row: BudgetUsage) -> BudgetUsage:
    if row.scope != "day":
        return row
    return msgspec.structs.replace(row, scope="total", of="everybody")


def _usage_text(row: BudgetUsage) -> str:
    tokens = f"{row.tokens:,} tokens{_of(row.limit_tokens, ',')}"
    parts = [f"{row.cached:,} cached"] if row.cached else []
    parts += [f"{row.reasoning:,} reasoning"] if row.reasoning else []
    if parts:
        tokens += f" ({', '.join(parts)})"
    usd = f"{row.usd:.4f} USD{_of(row.limit_usd, 'g')}"
    calls = "call" if row.calls == 1 else "calls"
    return f"{tokens}, {usd}, in {row.calls} {calls} of a model"


def _of(limit: float | None, layout: str) -> str:
    return "" if limit is None else f" of {limit:{layout}}"


WAIT_S: Final = 50.0
"""Seconds for which the command waits; the control socket allows a command a little longer."""
_ID_BYTES: Final = 16
_LONGEST_TEXT: Final = 20_000


class TellParams(NameParams, frozen=True, forbid_unknown_fields=True):
    """The agent, the instruction, and the person in whose conversation it is given.

    Args:
        text: What the agent is asked to do.
        person: Address of the person whose conversation and rights the agent uses, such as
            juliet@example.com.
        budget: Budget to charge: total, agent:NAME or principal:JID. Default: those of the person
            and the agent. Every cost also counts against the total.
    """

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_TEXT), SEVERAL_LINES]
    person: str = msgspec.field(name="for")
    budget: str = ""
    wait: Annotated[
        bool,
        msgspec.Meta(description=f"Wait up to {WAIT_S:.0f} seconds for the answer, and show it."),
    ] = False


TELL = Outline(
    name="tell-agent",
    title="Tell an agent",
    about="have an agent do something in a person's conversation and with that person's rights",
    params=TellParams,
    who="admin",
    group="agents",
)


class TurnSheet(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was started: `outcome` is its outcome so far, `answer` the agent's text."""

    turn: str
    agent: str
    person: str
    budget: str
    outcome: OutcomeKind | str
    answer: str = ""


_SENTENCES: Final[dict[OutcomeKind, str]] = {
    "answered": "{agent} has answered {person}: {text}",
    "silent": "{agent} had no answer for {person}.",
    "delayed": "{agent} will say this to {person} later: {text}",
    "excused": "{agent} could not answer, and told {person}: {text}",
    "parked": "{agent} is waiting for a task and will answer {person} when it ends.",
    "asked": "{agent} is waiting for {person} to answer a question.",
    "stopped": "It was stopped.",
    "away": "{agent} did not answer, and told {person}: {text}",
    "postponed": "It has to wait, because the storage failed: {text}",
    "failed": "It failed; the log says why. {person} was told: {text}",
}


class TellCommands:
    """The command that starts turns for operators."""

    def __init__(self, kernel: "Kernel", conversations: Conversations, agents: Agents) -> None:
        self._conversations = conversations
        self._agents = agents
        self._contacts = kernel.contacts
        self._let_in = kernel.tasks.pause_gate.check
        self._recorder = kernel.environment.monitoring.recorder
        self._addresses = kernel.stream.addresses

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the command."""
        return (TELL.done_by(self._tell),)

    async def _tell(self, asking: Asking, params: TellParams) -> CommandResult:
        request = self._request(asking, params)
        try:
            self._let_in(asking.principal)
        except StanzaError as error:
            raise CommandError(error.text or "New requests are rejected at the moment.") from None
        ended, outcomes = anyio.Event(), list[Outcome]()

        def note(outcome: Outcome) -> None:
            outcomes.append(outcome)
            ended.set()

        try:
            await self._conversations.received(request, note)
        except TooManyWaitingError as error:
            raise CommandError(
                f"{request.principal} has {error.count} requests waiting, which is the maximum."
                " Try again when some of them are answered."
            ) from None
        self._record(request, params.budget)
        sheet = TurnSheet(
            turn=request.id,
            agent=request.agent,
            person=str(request.principal),
            budget=params.budget or "of the person and the agent",
            outcome="started",
        )
        begun = f"Turn {request.id} has started."
        if not params.wait:
            return CommandResult(f"{begun} {request.principal} gets the answer.", sheet)
        with anyio.move_on_after(WAIT_S):
            await ended.wait()
        if not outcomes:
            late = f"It has not ended after {WAIT_S:.0f} s, and continues."
            return CommandResult(
                f"{begun} {late} {request.principal} gets the answer.",
                msgspec.structs.replace(sheet, outcome="running"),
            )
        kind, text = outcomes[0].kind, outcomes[0].text
        said = _SENTENCES[kind].format(agent=request.agent, person=request.principal, text=text)
        return CommandResult(
            f"{begun} {said}", msgspec.structs.replace(sheet, outcome=kind, answer=text)
        )

    def _request(self, asking: Asking, params: TellParams) -> TurnRequest:
        agent = self._addresses.address_of(self._agent(params.name))
        person = self._person(params.person, agent)
        text = params.text.strip()
        if not text:
            raise CommandError("The text is empty: say what the agent should do.", "text")
        return TurnRequest(
            id=system.token_hex(_ID_BYTES),
            starter=OperatorStarter(asking.caller),
            conversation=Conversation(agent, person),
            principal=person,
            reply_to=ReplyAddress(str(person), self._contacts.address_of(params.name, person)),
            text=text,
            payer=self._payer(params.budget.strip()),
        )

    def _agent(self, name: str) -> str:
        found = self._agents.get(name)
        if found is None:
            names = ", ".join(one.name for one in self._agents.list())
            raise CommandError(f"There is no agent called {name!r}; there are: {names}.", "name")
        if found.state == "paused":
            raise CommandError(f"{name} is paused: resume it first.", "name")
        if found.state == "killed":
            raise CommandError(f"{name} was shut down and no longer answers.", "name")
        return name

    def _person(self, address: str, agent: JID) -> JID:
        person = person_of(address)
        if person.local is None or self._addresses.is_own(person):
            raise CommandError(
                f"{person} is not a person: give the address of an account, such as"
                " juliet@example.com.",
                "for",
            )
        if not self._contacts.admits(person):
            raise CommandError(
                f"{person} is not admitted to this service: see [agent] in the settings.", "for"
            )
        if not self._contacts.may_write(agent, person):
            raise CommandError(
                f"{person} has stopped messages from {agent.local} and would not get the answer.",
                "for",
            )
        return person

    def _payer(self, budget: str) -> Payer | None:
        scope, _, of = budget.partition(":")
        if not budget:
            return None
        if budget == "total":
            return Payer("day")
        if scope == "agent" and self._agents.get(of) is not None:
            return Payer("agent", of)
        if scope == "principal" and self._has_budget(of):
            return Payer("principal", str(JID.parse(of).bare))
        agents = ", ".join(f"agent:{one.name}" for one in self._agents.list())
        raise CommandError(
            f"There is no budget {budget!r}; there are: total, {agents}, and principal:JID for the"
            " address of each person who is admitted.",
            "budget",
        )

    def _has_budget(self, address: str) -> bool:
        try:
            person = JID.parse(address).bare
        except JIDError:
            return False
        return person.local is not None and self._contacts.admits(person)

    def _record(self, request: TurnRequest, budget: str) -> None:
        self._recorder.record(
            AuditEvent(
                kind="agent",
                outcome="told",
                principal=request.operator or "",
                agent=request.agent,
                trace=request.id,
                subject=str(request.principal),
                detail=f"budget {budget}" if budget else "",
            )
        )
