"""One turn's view of its session's file."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from component.agent import history
from component.agent.protocol import ToolResult, Waiting
from component.agent.requests import TurnRequest
from component.agent.sentences import GOES_ON, WAITS_FOR_PERSON
from component.conversations.lines import Called, Line, Note, Resulted, Said, Summary
from component.conversations.sessions import Sessions
from component.memory.knowledge_lines import seconds_of
from component.memory_directory.layout import SessionKey
from component.models.messages import OpaquePart, TextPart, ToolCall
from component.models.protocol import Completion, Usage
from component.policy.taint import Taint

_NOTIFIED: Final = "The person was told, by a notification:"


class Journal:
    """The lines of a conversation, during one turn.

    Attributes:
        summary: replaces the lines before `lines`.
        lines: the end of the conversation, including the lines that this turn adds.
        left_out: whether there are lines between the summary and these that were not read.
        ids: the turn, and the messages that joined it.
    """

    def __init__(self, sessions: Sessions, key: SessionKey, turn: str) -> None:
        self.summary: Summary | None = None
        self.lines: list[Line] = []
        self.left_out = False
        self.ids: list[str] = [turn]
        self._sessions = sessions
        self._key = key
        self._turn = turn
        self._above: list[Line] = []  # of this turn, but before `lines` or in an archive

    async def open(
        self, tokens: int, count: Callable[[str], int], *, may_archive: bool, resumed: Sequence[str]
    ) -> None:
        """Read the end of the conversation, up to so many tokens, and all lines of the messages in
        `resumed`.
        """
        read = self._sessions.open if may_archive else self._sessions.read
        found = await read(self._key, tokens=tokens, count=count)
        self.summary, self.lines = found.summary, list(found.lines)
        self.left_out = found.left_out
        there = {id(line) for line in self.lines}
        for turn in resumed:
            for line in await self._sessions.turn(self._key, turn):
                if id(line) not in there and line not in self.lines:
                    self._above.append(line)

    async def add(self, lines: Sequence[Line], *, sync: bool = False) -> None:
        """Append lines to the file. Raises StorageError."""
        if not lines:
            return
        await self._sessions.append(self._key, lines, sync=sync)
        for line in lines:
            if isinstance(line, Summary):
                at = len(self.lines) - line.kept
                self._above += [one for one in self.lines[:at] if self._is_own(one)]
                del self.lines[:at]
                self.summary, self.left_out = line, False
            else:
                self.lines.append(line)

    def add_requests(self, messages: Iterable[TurnRequest]) -> list[TurnRequest]:
        """Add messages to the turn, and return those that have no line yet."""
        messages = list(messages)
        self.ids += [one.id for one in messages if one.id not in self.ids]
        known = {line.turn for line in self.own() if _asks(line)}
        return [one for one in messages if one.id not in known]

    @property
    def fence(self) -> str:
        """The word of the fences in this session; empty if it has none yet."""
        asked = [line for line in self._said() if line.fence]
        return asked[-1].fence if asked else ""

    @property
    def notes(self) -> str:
        """The digest of the latest notes on the person in the prompt."""
        found = "" if self.summary is None else self.summary.notes
        return next((line.notes for line in reversed(self._said()) if line.notes), found)

    def _said(self) -> list[Said]:
        earlier = () if self.summary is None else self.summary.requests
        return [line for line in (*earlier, *self.shown()) if isinstance(line, Said)]

    def shown(self) -> list[Line]:
        """Return the lines that the prompt has after the summary. They include the beginning of
        this turn, unless the summary was made within the turn and replaces it.
        """
        covers = self.summary is not None and any(map(self._is_own, self.summary.requests))
        return [*([] if covers else self._above), *self.lines]

    def omitted(self) -> frozenset[str]:
        """The parts that the model is not shown, because its provider refuses them."""
        return frozenset(
            digest for line in self.shown() if isinstance(line, Note) for digest in line.omitted
        )

    def said_by_person(self) -> list[str]:
        """What the person has written in this conversation, of what the model is shown."""
        return [
            line.content
            for line in self._said()
            if line.role == "user" and line.taint in (None, "person")
        ]

    def returned(self) -> list[tuple[str, str]]:
        """What tools have returned that no stranger has written, each with the tool's name, of what
        the model is shown.
        """
        lines = self.shown()
        names = {(line.turn, line.id): line.name for line in lines if isinstance(line, Called)}
        return [
            (names[line.turn, line.id], line.content)
            for line in lines
            if isinstance(line, Resulted)
            and line.task is None
            and not line.is_error
            and line.taint in (None, "person")
            and (line.turn, line.id) in names
        ]

    def _is_own(self, line: Line) -> bool:
        return line.turn in self.ids

    def own(self) -> list[Line]:
        """The lines of this turn and of the messages that joined it."""
        return [line for line in (*self._above, *self.lines) if self._is_own(line)]

    def asked_at(self) -> float | None:
        """The time at which the latest message of this turn was stored, in seconds since 1970."""
        return next((seconds_of(line.ts) for line in reversed(self.own()) if _asks(line)), None)

    def answer(self) -> Said | None:
        """The answer of this turn, if it is already stored."""
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

    def results(self) -> dict[str, str]:
        """The results of this turn's completed calls, by id."""
        return {
            line.id: line.content
            for line in self.own()
            if isinstance(line, Resulted) and line.task is None
        }

    def open_calls(self) -> list[tuple[Called, str | None]]:
        """The calls of this turn without a result, with the task that each waits for."""
        results = {line.id: line for line in self.own() if isinstance(line, Resulted)}
        return [
            (call, result.task if result is not None else None)
            for calls in self.rounds()
            for call in calls
            if (result := results.get(call.id)) is None or result.task is not None
        ]

    def interleaved(self) -> bool:
        """Whether another turn, whose prompt had the last call of this one, has run since that
        call.
        """
        for line in reversed(self.lines):
            if isinstance(line, Called) and line.turn == self._turn:
                return False
            if line.turn is not None and not self._is_own(line):
                return True
        return False

    def taints(self) -> set[Taint]:
        """The taints of all lines in the prompt."""
        return history.taints_of(self.shown() + ([self.summary] if self.summary else []))


def called(turn: str, number: int, completion: Completion, calls: Sequence[ToolCall]) -> list[Line]:
    """Make the lines of a round. `calls` are those of the completion, with their final ids.

    The first line holds all text and the usage. Only an answer with opaque parts needs its parts in
    order; then each line holds those before its call, and the last one those after it, too.
    """
    before = _parts_before_calls(completion, len(calls))
    first = {"text": completion.paragraphs, **usage_fields(completion.usage)}
    return [
        Called(
            turn=turn,
            round=number,
            id=call.id,
            name=call.name,
            arguments=call.arguments,
            before=parts,
            **(first if at == 0 else {}),
        )
        for at, (call, parts) in enumerate(zip(calls, before, strict=True))
    ]


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Return the fields of a line that have the usage of a call of the model."""
    fields = msgspec.structs.asdict(usage)
    del fields["estimated"]
    return fields


def opaque_parts(completion: Completion) -> tuple[TextPart | OpaquePart, ...]:
    """Return the parts of an answer, without calls, if one of them is opaque; otherwise none."""
    parts = tuple([part for part in completion.parts if not isinstance(part, ToolCall)])
    return parts if any(isinstance(part, OpaquePart) for part in parts) else ()


def _parts_before_calls(
    completion: Completion, calls: int
) -> list[tuple[TextPart | OpaquePart, ...]]:
    if not opaque_parts(completion):
        return [()] * calls
    found: list[list[TextPart | OpaquePart]] = [[]]
    for part in completion.parts:
        if not isinstance(part, ToolCall):
            found[-1].append(part)
        elif len(found) < calls:
            found.append([])
    return [tuple(parts) for parts in found]


def resulted(
    turn: str,
    call: str,
    result: ToolResult | Waiting,
    *,
    shown: int | None = None,
    finding: str = "",
    late: str = "",
) -> Resulted:
    """Make the line of a result, or of a task that has it later; see `Resulted` for the
    arguments.
    """
    if isinstance(result, Waiting):
        sentence = WAITS_FOR_PERSON if result.question else GOES_ON
        return Resulted(
            turn=turn, id=call, content=sentence.format(task=result.task), task=result.task
        )
    return Resulted(
        turn=turn,
        id=call,
        content=result.content,
        is_error=result.is_error,
        taint=result.taint,
        taints=result.taints,
        parts=result.parts,
        shown=shown,
        finding=finding,
        late=late,
    )


def _asks(line: Line) -> bool:
    return isinstance(line, Said) and line.role == "user"


async def add_notification(
    sessions: Sessions, key: SessionKey, notification: Said, about: str
) -> None:
    """Add a message that a person got outside of a turn to a conversation, once: without it, the
    model would not know what the person answers to.

    `about` says in one sentence what the message is, such as the result of a skill that a schedule
    has run. Raises StorageError.
    """
    turn = notification.turn
    assert turn is not None, "a notification has an id"
    if not await sessions.turn(key, turn):
        note = f"[This is not a message of the person. {about} {_NOTIFIED}]"
        asked = Said(role="user", content=note, turn=turn)
        await sessions.append(key, (asked, notification), sync=True)
