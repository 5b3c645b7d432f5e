"""A turn while it is under way: what it was asked, and what it has come to."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from time import time

import msgspec

from component.agent import prompt
from component.agent.fences import Fence
from component.agent.finishes import Weighed
from component.agent.guard import Guard, Limits
from component.agent.history import View
from component.agent.journal import Journal, Sessions
from component.agent.observer import Observer
from component.agent.profile import Profile
from component.agent.protocol import Caller, Incoming, Recalled, Scanner, Tools
from component.agent.thinking import Attention, Undivided
from component.agent.toolbox import Toolbox
from component.budget.protocol import Spender
from component.memory.lines import SessionKey, Summary
from component.models.protocol import ChatMessage, Model, ToolCall
from component.policy.taint import Taint
from component.settings.agents import Loop


def _unheard(_sentence: str) -> None:
    pass


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn is asked.

    `id` names the turn; it is that of the first of its `messages`, which are answered together.
    `resumed` says that it may have begun before. `attention` brings what is said meanwhile,
    `notice` takes a short sentence for the person. `may_archive` lets a session that was silent
    for too long begin anew; `held` are other turns of it that wait for something. `paid_by` is the
    turn whose budget this one's calls count against, if not its own.
    """

    id: str
    key: SessionKey
    profile: Profile
    messages: Sequence[Incoming]
    resumed: bool = False
    attention: Attention = Undivided()
    notice: Callable[[str], None] = _unheard
    may_archive: bool = True
    held: Collection[str] = ()
    paid_by: str | None = None


class Run:
    """The state of one turn, of which nothing outlives it.

    Attributes:
        taints: those of everything the model has been shown.
        closing: whether the model may call no more tools.
        retried: whether it was asked again for an answer that was empty or cut off.
        partial: what there is of an answer that was cut off.
        pressure: how often the prompt had to be made shorter.
        rounds: how many rounds of calls there were.
    """

    def __init__(
        self, ask: Ask, model: Model, sessions: Sessions, scanner: Scanner, loop: Loop
    ) -> None:
        profile = ask.profile
        self.ask = ask
        self.model = model
        self.journal = Journal(sessions, ask.key, ask.id)
        self.fence = Fence()
        self.guard = Guard(
            Limits(
                max_iterations=profile.max_iterations or loop.max_iterations,
                same_tool=loop.same_tool,
                ping_pong=loop.ping_pong,
                same_call=loop.same_call,
            )
        )
        self.spender = Spender((profile.agent, *profile.above), ask.key.who, ask.paid_by or ask.id)
        self.recalled: Sequence[Recalled] = ()
        self.taints: set[Taint] = {one.taint for one in ask.messages if one.taint is not None}
        self.closing = False
        self.retried = False
        self.partial = ""
        self.pressure = 0
        self.rounds = 0
        self.toolbox: Toolbox
        self._has_tools = False
        self._scanner = scanner
        self._again = ""
        self._told = False
        self._view: View | None = None
        self._view_below: Summary | None = None
        self._instructions = ""

    def count_rounds(self) -> None:
        """Let the guard see the rounds of calls that are on record."""
        rounds = self.journal.rounds()
        self.rounds = self.guard.asked = len(rounds)
        for calls in rounds:
            judged = self.guard.judge([ToolCall(c.id, c.name, c.arguments) for c in calls])
            self.closing = self.closing or judged.verdict == "end"

    def open_toolbox(self, skills: Tools, builtin: Sequence[Tools], observer: Observer) -> None:
        """See which tools are offered, once in a turn."""
        if not self._has_tools:
            self.toolbox = Toolbox(skills, builtin, self.caller(), observer)
            self._has_tools = True

    def caller(self) -> Caller:
        """On whose behalf tools are called now."""
        profile = self.ask.profile
        return Caller(
            incoming=self.ask.messages[0],
            agent=profile.agent,
            turn=self.ask.id,
            paid_by=self.ask.paid_by or self.ask.id,
            spawn=profile.spawn,
            tier=profile.tier,
            model_of=profile.model_of,
            capabilities=profile.capabilities,
            skills=profile.skills,
            taints=frozenset(self.taints),
        )

    def scan(self, text: str) -> str | None:
        """What is suspicious about a text."""
        return self._scanner.scan(text)

    def view(self, result_tokens: int) -> View:
        """How lines are shown; the same one as long as nothing about that changes, and none of the
        lines has gone into a summary.
        """
        ids, summary = tuple(self.journal.ids), self.journal.summary
        view = self._view
        if (
            view is None
            or summary is not self._view_below
            or (view.turns, view.result_tokens) != (ids, result_tokens)
        ):
            view = View(self.fence, self.scan, self.model.tokens, result_tokens, ids)
            self._view, self._view_below = view, summary
        return view

    def instructions(self) -> str:
        """The first message of the prompt, the same throughout the turn."""
        if not self._instructions:
            self._instructions = prompt.instructions(
                self.ask.profile,
                self.fence,
                self.ask.messages[-1],
                self.recalled,
                datetime.fromtimestamp(time(), UTC),
                self.scan,
            )
        return self._instructions

    def tell(self, sentence: str) -> None:
        """Give the person a short notice, once in a turn."""
        if not self._told:
            self._told = True
            self.ask.notice(sentence)

    def ask_again(self, weighed: Weighed) -> None:
        """The next call of the model is to mend the last answer."""
        self.retried = True
        self.partial = weighed.partial
        self._again = weighed.again

    def begin_again(self) -> None:
        """What the last answer lacked does not matter any more."""
        self.partial = self._again = ""

    def notes(self) -> list[ChatMessage]:
        """What stands at the end of the prompt, for this call of the model only."""
        notes = []
        if self.partial:
            notes.append(ChatMessage("assistant", self.partial))
        if self._again:
            notes.append(ChatMessage("system", self._again))
        if self.closing:
            notes.append(ChatMessage("system", prompt.NO_MORE_TOOLS))
        return notes
