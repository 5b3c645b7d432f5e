"""A running turn: its requests, its lines in the file of its session, and its state."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from component.agent import prompt
from component.agent.completions import Guard, Verdict
from component.agent.history import MadeBlocks, View, in_order, read_taints, shortened
from component.agent.protocol import Caller, Profile, ToolResult, Waiting
from component.agent.requests import MessageStarter, Starter, TurnRequest
from component.agent.sentences import GOES_ON, STOPPED_NOTE, WAITS_FOR_PERSON
from component.agent.untrusted_text import Fence
from component.budget.protocol import Spender, TurnBudget
from component.config.agents import Loop
from component.conversations.lines import (
    Called,
    Correction,
    Line,
    Note,
    OverheardLine,
    Resulted,
    Said,
    ShownMemory,
    StoredLine,
    Summary,
    Told,
    corrected,
    corrected_summary,
)
from component.conversations.sessions import Sessions
from component.conversations.tail import tokens_of_each
from component.memory.knowledge_lines import seconds_of
from component.memory.store import Remembered
from component.memory_directory.layout import SessionKey
from component.models.messages import (
    ImagePart,
    ModelMessage,
    OpaquePart,
    TextPart,
    ToolCall,
    text_message,
)
from component.models.protocol import Completion, Model, Usage
from component.policy.flows import TRUSTED
from component.policy.taint import Taint
from component.system import time
from xep.file_sharing import FileSharing

if TYPE_CHECKING:
    from component.agent.conversation import Conversation
    from component.agent.task_lines import TaskLines
    from component.agent.tool_calls import Offered


_MOST_FILES: Final = 10
"""Files that an answer has at most."""
_LONGEST_RESULT: Final = 4_000
"""Maximum number of characters of results that are an answer."""
_MOST_OVERHEARD: Final = 50
_OVERHEARD_CHARACTERS: Final = 16_384
_LONGEST_OVERHEARD: Final = 2_000
"""The maximum numbers of messages of others before a message in a room, and of their characters."""


def _ignore(_sentence: str) -> None:
    pass


class TurnInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a turn.

    `id` identifies the turn; it is the id of the first of its `messages`, which are answered
    together. `starter` is what starts it now, `resumed` says that it may have started before.
    `interrupts` is the conversation, which reports messages that arrive meanwhile; `notice` sends a
    short sentence to the person. `may_archive` permits archiving a session that was idle for too
    long; `held` are the parked turns of the session. `budget` pays instead of that of the turn.
    `operator` is the operator who started the parent turn, if one did. `said`
    are the person's messages in the parent's conversation, and `written` what the person and the
    operator have written there. A sub-agent runs as a `task`, in whose record the `lines` of its
    conversation are. `may_get_more` says that a larger budget may be given for it if this one does
    not suffice.
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
    budget: TurnBudget | None = None
    operator: str = ""
    said: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    task: str = ""
    may_get_more: bool = False
    lines: "TaskLines | None" = None


class Journal:
    """The lines of a conversation, during one turn.

    Attributes:
        summary: replaces the lines before `lines`.
        lines: the end of the conversation, including the lines that this turn adds.
        costs: the tokens of each of them.
        left_out: whether there are lines between the summary and these that were not read.
        derived: the blocks that were made of `lines` by earlier turns.
        ids: the turn, and the messages that joined it.
        asker: identifies the occupant who asks, in a room: what all others have written there is
            not that person's. Empty elsewhere.
    """

    def __init__(
        self,
        sessions: Sessions,
        key: SessionKey,
        turn: str,
        asker: str = "",
        task_lines: "TaskLines | None" = None,
    ) -> None:
        self.summary: Summary | None = None
        self.lines: list[Line] = []
        self.costs: list[int] = []
        self.left_out = False
        self.derived: dict[Any, MadeBlocks] = {}
        self.ids: list[str] = [turn]
        self.asker = asker
        self._sessions = sessions
        self._task_lines = task_lines
        self._key = key
        self._turn = turn
        self._above: list[Line] = []  # of this turn, but before `lines` or in an archive

    async def open(
        self, tokens: int, count: Callable[[str], int], *, may_archive: bool, resumed: Sequence[str]
    ) -> None:
        """Read the end of the conversation, up to so many tokens, and all lines of the messages in
        `resumed`.
        """
        self._count = count
        if self._task_lines is not None:
            self._above, self.summary, self.lines = await self._task_lines.read()
            self.costs = tokens_of_each(self.lines, count)
            return
        found = await self._sessions.read(
            self._key, tokens=tokens, count=count, may_archive=may_archive
        )
        self.summary, self.lines, self.costs = found.summary, [*found.lines], [*found.costs]
        self.left_out, self.derived = found.left_out, found.derived
        there = {id(line) for line in self.lines}
        for turn in resumed:
            for line in await self._sessions.turn(self._key, turn):
                if id(line) not in there and line not in self.lines:
                    self._above.append(line)

    async def add(
        self, lines: Sequence[StoredLine], *, sync: bool = False, acts: bool = False
    ) -> None:
        """Store lines; `acts` says that one is the result of a call with effects. Raises
        StorageError.
        """
        if not lines:
            return
        if self._task_lines is not None:
            await self._task_lines.add(lines, acts=acts)
            sync = False  # the file has a copy, which people can read
        await self._sessions.append(self._key, lines, sync=sync)
        for line in lines:
            if isinstance(line, Summary):
                at = len(self.lines) - line.kept
                self._above += [one for one in self.lines[:at] if self._is_own(one)]
                del self.lines[:at], self.costs[:at]
                self.summary, self.left_out = line, False
            elif isinstance(line, Correction):
                self._correct(line)
            else:
                self.lines.append(line)
                self.costs += tokens_of_each((line,), self._count)

    def _correct(self, line: Correction) -> None:
        messages: dict[str | None, Said] = {line.turn: line.message}
        self._above = [corrected(one, messages) for one in self._above]
        self.lines = [corrected(one, messages) for one in self.lines]
        self.costs = tokens_of_each(self.lines, self._count)
        if self.summary is not None:
            self.summary = corrected_summary(self.summary, messages)

    def add_requests(self, messages: Iterable[TurnRequest]) -> list[TurnRequest]:
        """Add messages to the turn, and return those that have no line yet and are not
        retracted.
        """
        messages = list(messages)
        self.ids += [one.id for one in messages if one.id not in self.ids]
        known = {line.turn for line in self.own() if _asks(line)}
        return [one for one in messages if one.text and one.id not in known]

    def differing(self, messages: Iterable[TurnRequest]) -> list[tuple[TurnRequest, Said]]:
        """Return the messages that were corrected after their lines were stored, and the lines."""
        stored = {line.turn: line for line in self._said() if _asks(line)}
        return [
            (one, line)
            for one in messages
            if (line := stored.get(one.id)) is not None
            and (line.content != one.text or _has_removed(one, line))
        ]

    def calls_since(self, message: str) -> list[Called]:
        """Return the calls of this turn after a message, which may be caused by it."""
        found: list[Called] | None = None
        if self.summary is not None and any(one.turn == message for one in self.summary.requests):
            found = []
        for line in self.own():
            if _asks(line) and line.turn == message:
                found = []
            elif isinstance(line, Called) and found is not None:
                found.append(line)
        return found or []

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
            if line.role == "user" and line.taint in (None, "person") and self._is_theirs(line)
        ]

    def _is_theirs(self, line: Said) -> bool:
        """Whether the one who asks has sent a message."""
        return not self.asker or line.sender == self.asker

    def _turns_of_asker(self) -> set[str | None]:
        said = (*self._said(), *self._above)
        return {
            one.turn
            for one in said
            if isinstance(one, Said) and one.role == "user" and self._is_theirs(one)
        }

    @property
    def has_others(self) -> bool:
        """Whether the prompt has what other occupants of a room have written, or what the agent
        has done for them. A summary may have anything.
        """
        if not self.asker:
            return False
        theirs = self._turns_of_asker()
        return self.summary is not None or any(
            line.turn not in theirs for line in self.shown() if not isinstance(line, Note | Told)
        )

    def known_as(self, nick: str) -> set[str | None]:
        """Return the senders in a room that have had this nickname."""
        return {line.sender for line in self._said() if line.nick == nick}

    def ids_in_room(self) -> set[str]:
        """Return the ids that the room gave the messages in the prompt."""
        said = self._said()
        found = {one.id for line in said for one in line.overheard}
        return (found | {line.stanza_id for line in said}) - {""}

    def returned(self) -> list[tuple[str, str]]:
        """What tools have returned that no stranger has written, each with the tool's name, of what
        the model is shown.
        """
        lines = self.shown()
        if self.asker:
            theirs = self._turns_of_asker()
            lines = [line for line in lines if line.turn in theirs]
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

    def was_told_today(self, sentence: str) -> bool:
        """Whether the conversation has this sentence of the service as an answer of today (UTC)."""
        today = datetime.fromtimestamp(time(), UTC).date().isoformat()
        return any(
            isinstance(line, Said) and line.notice == sentence and (line.ts or "").startswith(today)
            for line in self.lines
        )

    def answer(self) -> Said | None:
        """The answer of this turn, if it is already stored."""
        for line in reversed(self.own()):
            if isinstance(line, Said) and line.final and line.turn == self._turn:
                return line
        return None

    def was_stopped(self) -> bool:
        """Whether this turn was stopped."""
        own = [line for line in self.own() if isinstance(line, Note)]
        return any(line.turn == self._turn and line.content == STOPPED_NOTE for line in own)

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

    def files(self) -> tuple[FileSharing, ...]:
        """The files that this turn's calls have made for the person, each once, the latest at the
        end; at most `_MOST_FILES`.
        """
        found: dict[object, FileSharing] = {}
        for line in self.own():
            for file in line.files if isinstance(line, Resulted) else ():
                found.setdefault(file.file.hashes or file.sources, file)
        return tuple(found.values())[-_MOST_FILES:]

    def open_calls(self) -> list[tuple[Called, str | None]]:
        """The calls of this turn without a result, with the task that each waits for."""
        results = {line.id: line for line in self.own() if isinstance(line, Resulted)}
        return [
            (call, result.task if result is not None else None)
            for calls in self.rounds()
            for call in calls
            if (result := results.get(call.id)) is None or result.task is not None
        ]

    def not_made(self) -> set[str]:
        """The calls of this turn that certainly had no effect, by id."""
        return {line.id for line in self.own() if isinstance(line, Resulted) and line.not_made}

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

    def repeated(self, answer: str) -> str:
        """Return the results of the last calls of this turn, if an answer repeats what the model
        has said since the turn began: beside its calls, or in another turn. Else the answer.

        Small models do that when a result comes late, and the person would not learn it. JSON is
        no text for people.
        """
        rounds = self.rounds()
        if not rounds or _plain(answer) not in self._said_since():
            return answer
        known = self.results()
        texts = [known.get(call.id, "").strip() for call in rounds[-1]]
        said = [text for text in texts if text and not text.startswith(("{", "["))]
        return "\n\n".join(said)[:_LONGEST_RESULT] if len(said) == len(texts) else answer

    def _said_since(self) -> set[str]:
        lines = [*self._above, *self.lines]
        first = next((at for at, line in enumerate(lines) if self._is_own(line)), len(lines))
        found: set[str] = set()
        for line in lines[first:]:
            if isinstance(line, Called):
                found.add(_plain(line.text))
            elif isinstance(line, Said) and line.role == "assistant":
                found.add(_plain(line.content))
        return found - {""}

    def found(self) -> tuple[str, ...]:
        """The names of the skills that searches in this conversation have found, the latest last,
        as far as its lines are known.
        """
        lines = (*self._above, *self.lines)
        names = [name for line in lines if isinstance(line, Resulted) for name in line.found]
        return tuple(reversed(dict.fromkeys(reversed(names))))

    def taints(self) -> set[Taint]:
        """The taints of all lines in the prompt."""
        found = read_taints(self.shown() + ([self.summary] if self.summary else []))
        return found | {"room"} if self.has_others else found


def _has_removed(request: TurnRequest, line: Said) -> bool:
    """Whether a message that the line shows before its own was removed from the request since."""
    kept = () if request.room is None else {one.id for one in request.room.overheard}
    return any(one.id and one.id not in kept for one in line.overheard)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .!")


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
        files=result.files,
        shown=shown,
        finding=finding,
        late=late,
        not_made=result.not_made,
        found=result.found,
    )


def _asks(line: Line) -> bool:
    return isinstance(line, Said) and line.role == "user"


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
        files: the contents of files in the prompt, by digest; None for one that was deleted.
    """

    fence: Fence

    def __init__(self, ask: TurnInput, model: Model, sessions: Sessions, loop: Loop) -> None:
        profile = ask.profile
        self.ask = ask
        self.model = model
        request = ask.messages[0]
        asker = "" if request.room is None else request.room.occupant
        self.journal = Journal(sessions, ask.key, ask.id, asker, ask.lines)
        self.guard = Guard(profile.max_iterations or loop.max_iterations, loop.same_call)
        self.budget = ask.budget or TurnBudget(ask.id, request.effective_payer, request.budget_usd)
        self.spender = Spender(
            (profile.agent, *profile.above),
            request.principal,
            self.budget.task,
            self.budget.payer,
            self.budget.limit_usd,
            self.budget.limit_tokens,
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
        self.memories: dict[tuple[str, str], Remembered] = {}
        self.files: dict[str, str | ImagePart | None] = {}
        self._again = ""
        self._notified = False
        self._view: View | None = None
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
        if self.journal.has_others:
            self.taints.add("room")
        rounds, results = self.journal.rounds(), self.journal.results()
        self.rounds = self.guard.asked = len(rounds)
        for calls in rounds:
            made = [ToolCall(call.id, call.name, call.arguments) for call in calls]
            self.guard.judge(made, [results.get(call.id) for call in calls])

    def revise(self, messages: Iterable[TurnRequest]) -> None:
        """Replace messages of the turn by corrected ones."""
        by_id = {one.id: one for one in messages}
        revised = [by_id.get(one.id, one) for one in self.ask.messages]
        self.ask = msgspec.structs.replace(self.ask, messages=revised)

    def message_line(
        self,
        request: TurnRequest,
        finding: str,
        recalled: Sequence[tuple[Remembered, str]],
        *,
        notes: bool,
        overheard: tuple[OverheardLine, ...] = (),
    ) -> Said:
        """Make the line of a message, including its context in the prompt.

        `finding` is what the scanner has found in it, `recalled` the memories that match it. With
        `notes`, the context has the notes on the person if they have changed. `overheard` is what
        others have written in the room before it.
        """
        profile, fence, room = self.ask.profile, self.fence, request.room
        now = datetime.fromtimestamp(time(), UTC)
        is_other = room is not None and bool(self.journal.known_as(room.nick) - {room.occupant})
        shown = [prompt.context(profile, fence, request, now, is_other=is_other)]
        digest = prompt.notes_digest(profile)
        changed = notes and digest != (self.journal.notes or prompt.NO_NOTES)
        if changed:
            shown.append(prompt.notes(profile, fence, self.about))
        self.memories.update(((one.key, one.digest), one) for one, _ in recalled)
        taints = {one.taint for one, _ in recalled if one.taint is not None} | {*request.taints}
        if overheard:
            taints.add("room")
        self.taints |= taints
        sender = str(request.principal) if room is None else room.occupant
        return Said(
            role="user",
            content=request.text,
            msg_id=request.msg_id,
            sender=sender if isinstance(request.starter, MessageStarter) else None,
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
            nick="" if room is None else room.nick,
            stanza_id="" if room is None else room.stanza_id,
            overheard=overheard,
        )

    @property
    def about(self) -> str:
        """Whom the notes are about."""
        in_room = self.ask.messages[0].room is not None and self.ask.key.who.resource is None
        return "this room" if in_room else "the person"

    def overheard(self, request: TurnRequest) -> list[OverheardLine]:
        """Return what others have written in the room before a message, without what the prompt has
        already: the latest, up to so many characters.
        """
        room, left = request.room, _OVERHEARD_CHARACTERS
        found: list[OverheardLine] = []
        known = self.journal.ids_in_room()
        for one in reversed(() if room is None else room.overheard[-_MOST_OVERHEARD:]):
            if one.id in known:
                continue
            text = shortened(one.text, _LONGEST_OVERHEARD)
            left -= len(text)
            if left < 0:
                break
            sent = f"at {datetime.fromtimestamp(one.sent, UTC):%Y-%m-%d %H:%M} UTC"
            found.append(OverheardLine(one.nick, text, sent if one.sent else "", one.id))
        return found[::-1]

    def caller(self) -> Caller:
        """Return the caller of the turn's tools, with the current taints."""
        untrusted = not self.taints <= TRUSTED
        return Caller(
            request=self.ask.messages[0],
            profile=self.ask.profile,
            turn=self.ask.id,
            task=self.ask.task,
            budget=self.budget,
            operator=self.ask.operator or self.ask.messages[0].operator or "",
            taints=frozenset(self.taints),
            written=self._written(),
            found=self.journal.found(),
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
        """Return how lines are shown; the same object until that changes."""
        journal, view = self.journal, self._view
        ids, omitted = tuple(journal.ids), journal.omitted()
        now = ids, result_tokens, omitted
        if view is None or (view.turns, view.result_tokens, view.omitted) != now:
            shown_as = (self.fence.word, self.model.tokens, result_tokens, omitted)
            if shown_as not in journal.derived:
                journal.derived.clear()
            view = self._view = View(
                *(self.fence, self.model.tokens, result_tokens, ids),
                memories=self.memories,
                omitted=omitted,
                files=self.files,
                earlier=journal.derived.setdefault(shown_as, {}),
            )
        return view

    def instructions(self) -> str:
        """Return the first message of the prompt."""
        if not self._instructions:
            profile, who = self.ask.profile, self.ask.key.who
            self._instructions = prompt.instructions(
                profile, self.fence, who, self.ask.messages[0].room
            )
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
