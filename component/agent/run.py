"""A running turn: its requests and its state."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from component.agent import prompt
from component.agent.completions import Guard, Verdict
from component.agent.history import View, in_order
from component.agent.journal import Journal
from component.agent.protocol import Caller, Profile
from component.agent.requests import MessageStarter, Starter, TurnRequest
from component.agent.untrusted_text import Fence
from component.budget.protocol import Spender
from component.config.agents import Loop
from component.conversations.lines import Said, ShownMemory, Summary
from component.conversations.sessions import Sessions
from component.memory.store import Recalled
from component.memory_directory.layout import SessionKey
from component.models.messages import ModelMessage, ToolCall, text_message
from component.models.protocol import Model
from component.policy.flows import TRUSTED
from component.policy.taint import Taint
from component.system import time

if TYPE_CHECKING:
    from component.agent.conversation import Conversation
    from component.agent.tool_calls import Offered


def _ignore(_sentence: str) -> None:
    pass


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a turn.

    `id` identifies the turn; it is the id of the first of its `messages`, which are answered
    together. `starter` is what starts it now, `resumed` says that it may have started before.
    `interrupts` is the conversation, which reports messages that arrive meanwhile; `notice` sends a
    short sentence to the person. `may_archive` permits archiving a session that was idle for too
    long; `held` are the parked turns of the session. `paid_by` is the turn whose budget pays, if
    not its own. `operator` is the operator who started the parent turn, if one did. `said`
    are the person's messages in the parent's conversation, and `written` what the person and the
    operator have written there.
    """

    id: str
    key: SessionKey
    profile: Profile
    messages: Sequence[TurnRequest]
    starter: Starter
    resumed: bool = False
    interrupts: "Conversation | None" = None
    notice: Callable[[str], None] = _ignore
    may_archive: bool = True
    held: Collection[str] = ()
    paid_by: str | None = None
    operator: str = ""
    said: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


class Run:
    """The state of one running turn. None of it is stored.

    Attributes:
        taints: those of everything that the model has read.
        closing: whether the model may not call tools any more.
        retried: whether the model was asked again, after an answer that was empty or cut off.
        unread: whether the last answer had the markup of a call that could not be made.
        partial: the beginning of an answer that was cut off.
        pressure: how often the model has rejected the prompt as too long.
        most: maximum number of tokens of the conversation since then; None before.
        rounds: the number of rounds of calls.
        memories: the memories in the prompt that are still stored unchanged, by key and digest.
    """

    def __init__(self, ask: Ask, model: Model, sessions: Sessions, loop: Loop) -> None:
        profile = ask.profile
        self.ask = ask
        self.model = model
        self.journal = Journal(sessions, ask.key, ask.id)
        self.fence = Fence()
        self.guard = Guard(profile.max_iterations or loop.max_iterations, loop.same_call)
        request = ask.messages[0]
        self.spender = Spender(
            (profile.agent, *profile.above),
            request.principal,
            ask.paid_by or ask.id,
            request.payer,
            request.budget_usd,
        )
        self.taints: set[Taint] = {one.taint for one in ask.messages if one.taint is not None}
        self.taints.update(*(one.taints for one in ask.messages))
        self.closing = False
        self.retried = False
        self.unread = False
        self.partial = ""
        self.pressure = 0
        self.most: int | None = None
        self.rounds = 0
        self.offered: Offered | None = None
        self.memories: dict[tuple[str, str], Recalled] = {}
        self._again = ""
        self._notified = False
        self._view: View | None = None
        self._view_below: Summary | None = None
        self._instructions = ""

    async def open(self, tokens: int) -> None:
        """Read the session, up to so many tokens, and the lines of the turn. Raises
        StorageError.
        """
        ask, resumed = self.ask, self.ask.resumed
        await self.journal.open(
            tokens,
            self.model.tokens,
            may_archive=ask.may_archive and not resumed,
            resumed=[one.id for one in ask.messages] if resumed else (),
        )
        self.fence = Fence(self.journal.fence)
        rounds, results = self.journal.rounds(), self.journal.results()
        self.rounds = self.guard.asked = len(rounds)
        for calls in rounds:
            made = [ToolCall(call.id, call.name, call.arguments) for call in calls]
            self.guard.judge(made, [results.get(call.id) for call in calls])

    def message_line(
        self,
        request: TurnRequest,
        finding: str,
        recalled: Sequence[tuple[Recalled, str]],
        *,
        notes: bool,
    ) -> Said:
        """Make the line of a message, including its context in the prompt.

        `finding` is what the scanner has found in it, `recalled` the memories that match it. With
        `notes`, the context has the notes on the person if they have changed.
        """
        profile, fence = self.ask.profile, self.fence
        shown = [prompt.context(profile, fence, request, datetime.fromtimestamp(time(), UTC))]
        digest = prompt.notes_digest(profile)
        changed = notes and digest != (self.journal.notes or prompt.NO_NOTES)
        if changed:
            shown.append(prompt.notes(profile, fence))
        self.memories.update(((one.key, one.digest), one) for one, _ in recalled)
        taints = {one.taint for one, _ in recalled if one.taint is not None} | {*request.taints}
        self.taints |= taints
        return Said(
            role="user",
            content=request.text,
            msg_id=request.msg_id,
            sender=str(request.principal) if isinstance(request.starter, MessageStarter) else None,
            operator=request.operator,
            turn=request.id,
            taint=request.taint,
            taints=in_order(taints),
            context="\n\n".join(shown),
            memories=tuple(
                [
                    ShownMemory(one.key, one.digest, len(one.text), finding)
                    for one, finding in recalled
                ]
            ),
            notes=digest if changed else "",
            fence=fence.word,
            finding=finding,
        )

    def caller(self) -> Caller:
        """Return the caller of the turn's tools, with the current taints."""
        profile = self.ask.profile
        untrusted = not self.taints <= TRUSTED
        return Caller(
            request=self.ask.messages[0],
            agent=profile.agent,
            turn=self.ask.id,
            paid_by=self.ask.paid_by or self.ask.id,
            spawn=profile.spawn,
            tier=profile.tier,
            model_of=profile.model_of,
            zone=profile.zone,
            operator=self.ask.operator or self.ask.messages[0].operator or "",
            capabilities=profile.capabilities,
            skills=profile.skills,
            taints=frozenset(self.taints),
            written=self._written(),
            said=(*self.ask.said, *self.journal.said_by_person()) if untrusted else (),
            results=tuple(self.journal.returned()) if untrusted else (),
        )

    def _written(self) -> tuple[str, ...]:
        profile = self.ask.profile
        if profile.above:  # the model of the parent has written its task and its instructions
            return self.ask.written
        texts = (profile.identity, profile.personality, profile.instructions, profile.context)
        return (*texts, *self.journal.said_by_person())

    def view(self, result_tokens: int) -> View:
        """Return how lines are shown; the same object until that changes or lines are
        summarised.
        """
        ids, summary = tuple(self.journal.ids), self.journal.summary
        omitted = self.journal.omitted()
        view = self._view
        if (
            view is None
            or summary is not self._view_below
            or (view.turns, view.result_tokens, view.omitted) != (ids, result_tokens, omitted)
        ):
            view = View(
                *(self.fence, self.model.tokens, result_tokens, ids),
                memories=self.memories,
                omitted=omitted,
            )
            self._view, self._view_below = view, summary
        return view

    def instructions(self) -> str:
        """Return the first message of the prompt."""
        if not self._instructions:
            profile, who = self.ask.profile, self.ask.key.who
            self._instructions = prompt.instructions(profile, self.fence, who)
        return self._instructions

    def notify(self, sentence: str) -> None:
        """Send the person a short notice, once in a turn."""
        if not self._notified:
            self._notified = True
            self.ask.notice(sentence)

    def ask_again(self, verdict: Verdict) -> None:
        """Let the next call of the model correct the last answer."""
        self.retried = True
        self.partial = verdict.partial
        self._again = verdict.again

    def discard_retry(self) -> None:
        """Discard the request to correct the last answer."""
        self.partial = self._again = ""

    def notes(self) -> list[ModelMessage]:
        """Return the messages at the end of the prompt that are only for this call of the model."""
        notes = []
        if self.partial:
            notes.append(text_message("assistant", self.partial))
        if self._again:
            notes.append(text_message("system", self._again))
        if self.closing:
            notes.append(text_message("system", prompt.NO_MORE_TOOLS))
        return notes
