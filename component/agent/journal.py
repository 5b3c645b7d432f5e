"""The session's file as one turn sees and writes it."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from component.agent import history
from component.agent.protocol import Incoming, ToolResult, Waiting
from component.agent.sentences import GOES_ON, WAITS_FOR_PERSON
from component.memory.lines import Called, Line, Resulted, Said, SessionKey, Summary
from component.memory.sessions import Forgotten, History
from component.models.protocol import Completion, ToolCall
from component.policy.taint import Taint


class Sessions(Protocol):
    """What the loop asks of the conversations on disk: `component.memory.sessions.Sessions`.

    Each raises StorageError.
    """

    async def open(
        self, key: SessionKey, *, tokens: int | None = None, count: Callable[[str], int] = ...
    ) -> History:
        """Begin with a message; a conversation that was silent for too long is archived first."""

    async def read(
        self, key: SessionKey, *, tokens: int | None = None, count: Callable[[str], int] = ...
    ) -> History:
        """Read the end of a conversation."""

    async def append(self, key: SessionKey, lines: Sequence[Line], *, sync: bool) -> None:
        """Add lines; with `sync` they are on the disk when this returns."""

    async def turn(self, key: SessionKey, turn: str) -> Sequence[Line]:
        """Read the lines of a turn, wherever they are."""

    async def archive(self, key: SessionKey) -> object | None:
        """Put a conversation away, so that the next message begins a new one."""

    async def forget(self, key: SessionKey) -> Forgotten:
        """Erase a conversation and what is known of the person."""


class Journal:
    """The lines of a conversation, for the time of one turn.

    Attributes:
        summary: stands for what is above `lines`.
        lines: the end of the conversation, what this turn adds included.
        tokens: about how many that end had when it was read.
        ids: the turn, and the messages that it answers too.
    """

    def __init__(self, sessions: Sessions, key: SessionKey, turn: str) -> None:
        self.summary: Summary | None = None
        self.lines: list[Line] = []
        self.tokens = 0
        self.ids: list[str] = [turn]
        self._sessions = sessions
        self._key = key
        self._turn = turn
        self._above: list[Line] = []  # of this turn, but above `lines` or in an archive

    async def open(
        self, tokens: int, count: Callable[[str], int], *, may_archive: bool, resumed: Sequence[str]
    ) -> None:
        """Read the end of the conversation, up to so many tokens, and if the turn is `resumed`
        whatever these messages have left.
        """
        read = self._sessions.open if may_archive else self._sessions.read
        found = await read(self._key, tokens=tokens, count=count)
        self.summary, self.lines, self.tokens = found.summary, list(found.lines), found.tokens
        there = {id(line) for line in self.lines}
        for turn in resumed:
            for line in await self._sessions.turn(self._key, turn):
                if id(line) not in there and line not in self.lines:
                    self._above.append(line)

    async def add(self, lines: Sequence[Line], *, sync: bool = False) -> None:
        """Write lines down. Raises StorageError."""
        if not lines:
            return
        await self._sessions.append(self._key, lines, sync=sync)
        for line in lines:
            if isinstance(line, Summary):
                del self.lines[: len(self.lines) - line.kept]
                self.summary = line
            else:
                self.lines.append(line)

    async def heard(self, messages: Iterable[Incoming]) -> None:
        """Write down what was said, of what is not there yet."""
        known = {
            line.turn for line in self.shown() if isinstance(line, Said) and line.role == "user"
        }
        new: list[Line] = []
        for one in messages:
            if one.id not in self.ids:
                self.ids.append(one.id)
            if one.id not in known:
                new.append(
                    Said(
                        role="user",
                        content=one.body,
                        msg_id=one.msg_id,
                        sender=str(one.principal),
                        turn=one.id,
                        taint=one.taint,
                    )
                )
        await self.add(new)

    def shown(self) -> list[Line]:
        """What the model is shown: with the beginning of this turn, wherever it stands."""
        return [*self._above, *self.lines]

    def own(self) -> list[Line]:
        """The lines of this turn and of the messages that joined it."""
        return [
            line
            for line in (*self._above, *self.lines)
            if not isinstance(line, Summary) and line.turn in self.ids
        ]

    def answer(self) -> Said | None:
        """The answer of this turn, if it is written already."""
        for line in reversed(self.own()):
            if isinstance(line, Said) and line.final and line.turn == self._turn:
                return line
        return None

    def rounds(self) -> list[list[Called]]:
        """The calls of this turn, round by round."""
        found: dict[int, list[Called]] = {}
        for line in self.own():
            if isinstance(line, Called):
                found.setdefault(line.round, []).append(line)
        return list(found.values())

    def open_calls(self) -> list[tuple[Called, str | None]]:
        """The calls of this turn that have no result yet, with the task that each waits for."""
        results = {line.id: line for line in self.own() if isinstance(line, Resulted)}
        return [
            (call, result.task if result is not None else None)
            for calls in self.rounds()
            for call in calls
            if (result := results.get(call.id)) is None or result.task is not None
        ]

    def interleaved(self) -> bool:
        """Whether other messages have come since the last call of this turn."""
        for line in reversed(self.lines):
            if isinstance(line, Called) and line.turn == self._turn:
                return False
            if _asks(line) and isinstance(line, Said) and line.turn not in self.ids:
                return True
        return False

    def taints(self) -> set[Taint]:
        """Those of everything in this turn and around it."""
        return history.taints_of(self.shown() + ([self.summary] if self.summary else []))


def called(
    turn: str, number: int, completion: Completion, calls: Collection[ToolCall]
) -> list[Line]:
    """The lines of a round; what it has cost stands in the first."""
    usage = completion.usage
    lines: list[Line] = []
    for call in calls:
        first = not lines
        lines.append(
            Called(
                turn=turn,
                round=number,
                id=call.id,
                name=call.name,
                arguments=call.arguments,
                text=completion.text if first else "",
                tokens_in=usage.tokens_in if first else 0,
                tokens_out=usage.tokens_out if first else 0,
                cost_usd=usage.cost_usd if first else 0.0,
            )
        )
    return lines


def resulted(turn: str, call: str, result: ToolResult | Waiting) -> Resulted:
    """The line of a result, or of what it waits for."""
    if isinstance(result, Waiting):
        sentence = WAITS_FOR_PERSON if result.question else GOES_ON
        return Resulted(
            turn=turn, id=call, content=sentence.format(task=result.task), task=result.task
        )
    return Resulted(
        turn=turn, id=call, content=result.content, is_error=result.is_error, taint=result.taint
    )


def _asks(line: Line) -> bool:
    return isinstance(line, Said) and line.role == "user"
