"""Runs turns: from a message to its answer, in eight stages.

A turn is stored only in its session's file. If the process is killed at any point, the next process
runs the turn again: it returns the stored answer, or does the missing parts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import anyio
import msgspec
import structlog

from component.agent import completions, history, sentences
from component.agent.compaction import Compaction
from component.agent.completions import Verdict, directed
from component.agent.message_files import MessageFiles, unread_sentences
from component.agent.model_calls import ModelCalls
from component.agent.prompt import TokenBudget, build_prompt
from component.agent.protocol import Profile, Tools
from component.agent.requests import TurnRequest
from component.agent.revisions import Revisions
from component.agent.run import Run, TurnInput, opaque_parts, usage_fields
from component.agent.told import ToldMessages, authors_of, line_of
from component.agent.tool_calls import Parked, ToolCalls
from component.agent.untrusted_text import InjectionCheck, Scanner
from component.budget.protocol import BudgetExceededError
from component.caches import LRUCache
from component.config.agents import Loop
from component.conversations.lines import (
    Called,
    Correction,
    Note,
    OverheardLine,
    Said,
    StoredLine,
    Told,
)
from component.conversations.sessions import Sessions
from component.conversations.stored_files import StoredFiles
from component.memory.knowledge import Knowledge
from component.memory.store import Remembered
from component.memory_directory.layout import SessionKey, memory_event
from component.models.messages import OpaquePart, TextPart
from component.models.protocol import (
    Completion,
    ContentFilteredError,
    ContextOverflowError,
    Model,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    Usage,
)
from component.policy.taint import Taint, worst
from component.store.errors import StorageError
from component.store.outages import log_failure
from xep.file_sharing import FileSharing

_log = structlog.get_logger("component.agent")

Models: TypeAlias = Callable[[Profile], Model]

_SHORT_WAIT_S: Final = 20.0
"""Maximum number of seconds that a turn waits, once, for a model that says when to retry."""
_AHEAD: Final = 256
"""Messages whose memories are looked up ahead of their turns."""
_AHEAD_S: Final = 1.0
"""Seconds after which they are looked up again, because they may have changed."""
_SHORTENED: Final = 3
"""How often a prompt is shortened because the model rejected it as too long."""


class Answered(msgspec.Struct, frozen=True):
    """The turn has ended, and its answer is on disk. `text` may contain directives.

    `excused` says that it is a sentence of the service, because the model gave no answer, and
    `stopped` that the turn was stopped before, so that there is no answer. `taints` are those of
    everything that the model has read, `files` are those that its tools have made.
    """

    text: str
    excused: bool = False
    taints: tuple[Taint, ...] = ()
    files: tuple[FileSharing, ...] = ()
    stopped: bool = False

    @classmethod
    def of(cls, line: Said) -> "Answered":
        """Return the answer that a line contains."""
        excused = bool(line.notice and not line.content)
        return cls(line.sent_text, excused, line.taints, line.files)


class _Recalling(msgspec.Struct):
    """The memories that match a message, which are looked up while its row is written."""

    begun: float
    done: anyio.Event
    found: Sequence[Remembered] = ()


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a turn.

    Attributes:
        recalled: maximum number of memories shown with a message.
    """

    loop: Loop
    history_tokens: int = 8192
    max_tokens: int = 4096
    recalled: int = 5


class Engine:
    """Runs turns."""

    def __init__(
        self,
        *,
        models: Models,
        model_calls: ModelCalls,
        tools: Tools,
        sessions: Sessions,
        scanner: Scanner,
        limits: EngineLimits,
        recall: Knowledge | None = None,
        told: ToldMessages | None = None,
    ) -> None:
        self.sessions = sessions
        self.told = told
        self.model_calls = model_calls
        self._models = models
        self._recall = recall
        self._injection_check = InjectionCheck(scanner, model_calls.recorder)
        self.loop = limits.loop
        self._token_budget = TokenBudget(
            limits.history_tokens, limits.max_tokens, limits.loop.tool_result_tokens
        )
        self._recalled = limits.recalled
        self._recalling: LRUCache[str, _Recalling] = LRUCache(_AHEAD)
        self._tool_calls = ToolCalls(
            tools, self._injection_check, self._token_budget, model_calls.observer
        )
        self._compaction = Compaction(model_calls, self._token_budget)
        self._files: MessageFiles | None = None

    def show_files(self, files: StoredFiles) -> None:
        """Show models the files of messages, from now on."""
        self._files = MessageFiles(files, self._token_budget, self._injection_check)

    async def recall_ahead(self, request: TurnRequest) -> None:
        """Look up the memories for a message whose turn begins as soon as its row is on disk."""
        if self._recall is not None and self._recalled:
            ahead = _Recalling(anyio.current_time(), anyio.Event())
            self._recalling[request.id] = ahead
            try:
                ahead.found = await self._recalled_for(request.agent, request, request.id)
            finally:
                ahead.done.set()

    def limit_answers(self, max_tokens: int) -> None:
        """Let the answers that come have this number of tokens at most."""
        self._token_budget.max_tokens = max_tokens

    async def turn(self, ask: TurnInput) -> Answered | Parked:
        """Run a turn, or the rest of it.

        It can be cancelled at any point: stored lines are kept, and the turn can be run again.
        Raises StorageError, after which it can be run again, too; and BudgetExceededError, if a
        larger budget may be given for it.
        """
        with self.model_calls.observer.span(
            "invoke_agent",
            agent=ask.profile.agent,
            turn=ask.id,
            starter=str(ask.starter.__struct_config__.tag),
        ):
            run = await self._open(ask)
            written = run.journal.answer()
            if written is not None:
                return Answered.of(written)
            if run.journal.was_stopped():  # the process was killed before its row was deleted
                return Answered("", stopped=True)
            while True:
                try:
                    return await self._stages(run)
                except BudgetExceededError as stopped:
                    if stopped.scope == "task" and ask.may_get_more:
                        raise
                    excuse = str(stopped)
                    if stopped.scope == "room" and run.journal.was_told_today(excuse):
                        excuse = ""  # all who are there have read it
                except ModelError as error:
                    excuse = excuse_for(error, ask)
                if not _is_revised(run):
                    silent = Verdict(answer=completions.SILENT)
                    verdict = Verdict(notice=excuse) if excuse else silent
                    return await self._persist(run, verdict, Usage())

    async def _stages(self, run: Run) -> Answered | Parked:
        await self._look_up_memories(run)
        messages, interrupts = run.ask.messages, run.ask.interrupts
        if interrupts is not None and interrupts.more():
            messages = [*messages, *await interrupts.take()]
        await self._add_messages(run, messages, recall=True)
        if all(one.is_unread for one in run.ask.messages):
            return await self._persist(run, Verdict(), Usage())
        self._record_notes(run)
        parked = await self._tool_calls.unfinished(run)
        if parked is not None:
            return parked
        self._tool_calls.offer(run)
        if interrupts is not None and run.ask.resumed:
            interrupts.revisions.set_acted_on(self._acted_on(run))
        await self._compaction.look(run)
        while True:
            if interrupts is not None and interrupts.more():
                await self._add_messages(run, await interrupts.take(), recall=False)
            if interrupts is not None and interrupts.revisions.waiting:
                await self._take_revisions(run, interrupts.revisions)
            completion = await self._think(run)
            if completion is None or _is_revised(run):
                run.discard_retry()  # a message has arrived, or was corrected
                continue
            verdict = completions.classify(
                completion,
                partial=run.partial,
                retried=run.retried,
                tools=not run.closing,
                unread=run.unread,
            )
            if verdict.again:
                run.ask_again(verdict)
            elif verdict.calls:
                if not all(self._tool_calls.only_reads(run, call) for call in verdict.calls):
                    _act(run)
                parked = await self._tool_calls.call(run, completion, verdict.calls)
                if parked is not None:
                    return parked
                if interrupts is not None:
                    interrupts.revisions.set_acted_on(self._acted_on(run))
            else:
                answer = run.journal.repeated(verdict.answer)
                verdict = msgspec.structs.replace(verdict, answer=answer)
                whole = verdict.answer == completion.paragraphs
                parts = opaque_parts(completion) if whole else ()
                return await self._persist(run, verdict, completion.usage, parts)

    # 1: the session.

    async def _open(self, ask: TurnInput) -> Run:
        run = Run(ask, self._models(ask.profile), self.sessions, self.loop)
        await run.open(self._token_budget.read(run.model))
        return run

    # 2: messages and memories.

    async def _add_messages(
        self, run: Run, messages: Sequence[TurnRequest], *, recall: bool, sync: bool = False
    ) -> None:
        """Store messages that have no line yet, with their context, and corrections of others.

        With `recall`, the context of the last one has the memories that match it. `sync` is for a
        turn that ends without an answer, whose line would be synced.
        """
        new = run.journal.add_requests(messages)
        after_told = any(one.after_told for one in messages)
        told = await self._told_before(run, is_new=bool(new)) if after_told else ()
        lines: list[StoredLine] = [*await self._corrections(run, messages), *told]
        for one in new:
            is_last = one is new[-1]
            recalled = await self._remember(run, one) if recall and is_last else []
            finding = await self._scan(run, one)
            overheard = await self._overheard(run, one)
            line = run.message_line(one, finding, recalled, notes=is_last, overheard=overheard)
            if self._files is not None and one.files:
                line = await self._files.attach(run, one, line)
            lines.append(line)
        await run.journal.add(lines, sync=sync or bool(told))
        if told and self.told is not None:
            await self.told.written(run.ask.key, [one.id for one in told])

    async def _told_before(self, run: Run, *, is_new: bool) -> Sequence[Told]:
        """Return the lines of what the agent has told by itself before messages, if these are new.

        An earlier run of the turn may have written them, and not deleted them elsewhere.
        """
        found = () if self.told is None else await self.told.new(run.ask.key)
        told = found if is_new else ()
        texts = [(one.text, worst(authors_of(one))) for one in told]
        findings = await self._injection_check.scan_all(run, texts)
        most = self._token_budget.result(run.model, max(1, len(told)))
        return [
            line_of(run, one, finding, most) for one, finding in zip(told, findings, strict=True)
        ]

    async def new_session(self, key: SessionKey) -> bool:
        """Archive a session, so that the next message starts a new one; False if it was empty.
        Raises StorageError.
        """
        archived = await self.sessions.archive(key)
        if self.told is not None:
            await self.told.forget(key)
        return archived is not None

    async def _scan(self, run: Run, request: TurnRequest) -> str:
        if request.taint in (None, "person"):
            return ""
        return await self._injection_check.scan(run, request.text, request.taint)

    async def _overheard(self, run: Run, request: TurnRequest) -> tuple[OverheardLine, ...]:
        """Return what others have written in the room before a message, with the findings in it."""
        lines = run.overheard(request)
        findings = await self._injection_check.scan_all(run, [(one.text, "room") for one in lines])
        return tuple(
            msgspec.structs.replace(one, finding=finding)
            for one, finding in zip(lines, findings, strict=True)
        )

    async def _take_revisions(self, run: Run, revisions: Revisions) -> None:
        revised, known = await revisions.take(), set(run.journal.ids)
        own = [one for one in revised if one.id in known]
        run.revise(own)
        await self._add_messages(run, own, recall=True)
        others = [one for one in revised if one.id not in known]
        await run.journal.add(await self._corrections(run, others))

    async def _corrections(self, run: Run, messages: Sequence[TurnRequest]) -> list[StoredLine]:
        """Return the lines that replace those of messages that were corrected since.

        The time and the notes in the context of a message stay as they were.
        """
        lines: list[StoredLine] = []
        for request, before in run.journal.differing(messages):
            recalled = await self._remember(run, request) if request.text else []
            finding = await self._scan(run, request)
            after = run.message_line(request, finding, recalled, notes=False)
            kept = () if request.room is None else {one.id for one in request.room.overheard}
            message = msgspec.structs.replace(
                before,
                content=after.content,
                finding=finding,
                memories=after.memories,
                taints=history.in_order({*before.taints, *after.taints}),
                overheard=tuple([one for one in before.overheard if not one.id or one.id in kept]),
            )
            lines.append(Correction(turn=request.id, message=message))
            if request.id in run.journal.ids and run.journal.calls_since(request.id):
                lines.append(Note(content=sentences.CORRECTED, turn=run.ask.id))
        return lines

    def _acted_on(self, run: Run) -> set[str]:
        """Return the messages of a turn of which a correction is too late."""
        if run.journal.answer() is not None:
            return set(run.journal.ids)
        return {one for one in run.journal.ids if self._effects(run, one)}

    def _effects(self, run: Run, message: str) -> list[Called]:
        """Return the calls that a message may have caused and that may have had an effect."""
        not_made = run.journal.not_made()
        return [
            call
            for call in run.journal.calls_since(message)
            if call.id not in not_made and not self._tool_calls.only_reads(run, call)
        ]

    async def _remember(self, run: Run, request: TurnRequest) -> list[tuple[Remembered, str]]:
        """Return the memories that match a message, each with what the scanner has found in it."""
        ahead = self._recalling.pop(request.id, None)
        if ahead is not None and anyio.current_time() - ahead.begun < _AHEAD_S:
            await ahead.done.wait()
            recalled = ahead.found
        else:
            recalled = await self._recalled_for(run.ask.profile.agent, request, run.ask.id)
        texts = [(one.text, one.taint) for one in recalled]
        findings = await self._injection_check.scan_all(run, texts)
        return list(zip(recalled, findings, strict=True))

    async def _recalled_for(
        self, agent: str, request: TurnRequest, turn: str
    ) -> Sequence[Remembered]:
        if self._recall is None or not self._recalled:
            return ()
        try:
            found = await self._recall.recall(
                SessionKey(agent, request.owner), request.text, self._recalled, trace=turn
            )
        except StorageError as error:
            log_failure(_log, "memories cannot be searched", error, turn=turn)
            return ()
        return found if request.room is None else [one.of_room() for one in found]

    async def _look_up_memories(self, run: Run) -> None:
        """Look up the memories of earlier messages, so that the prompt has none that were deleted
        or changed since.
        """
        shown = {
            (one.key, one.digest)
            for line in run.journal.shown()
            if isinstance(line, Said)
            for one in line.memories
        }
        if not shown or self._recall is None:
            return
        request = run.ask.messages[-1]
        whose = SessionKey(run.ask.profile.agent, request.owner)
        try:
            found = await self._recall.unchanged(whose, shown)
        except StorageError as error:
            log_failure(_log, "memories cannot be read", error, turn=run.ask.id)
            return
        if request.room is not None:
            found = {key: one.of_room() for key, one in found.items()}
        run.memories.update(found)

    def _record_notes(self, run: Run) -> None:
        profile = run.ask.profile
        notes = {"user.md": profile.user, "memory.md": profile.memory}
        read = [name for name, text in notes.items() if text.strip()]
        if read:
            event = memory_event(run.ask.key, "done", ", ".join(read), "read", run.ask.id)
            self.model_calls.recorder.record(event)

    # 3 and 4: the prompt, and the model.

    async def _think(self, run: Run) -> Completion | None:
        waited = False
        while True:
            if run.guard.last:
                run.closing = True
            if self._files is not None:
                await self._files.load(run)
            asked = build_prompt(run, await self._compaction.fit(run))
            draft = None if run.ask.interrupts is None else run.ask.interrupts.draft
            if draft is not None:
                draft.begin(run.partial, partial(completions.readable, run.fence))
            try:
                completion = await self.model_calls.ask(
                    run.model, asked.request, asked.tokens, run.spender, run.ask.interrupts
                )
            except ContextOverflowError as error:
                if asked.is_mostly_fixed:
                    raise ModelRefusedError(
                        f"the instructions and tools of {run.ask.profile.agent} alone, about"
                        f" {asked.fixed:,} tokens, are too long for {run.model.name}: offer the"
                        f" agent fewer skills, or set another model ({error})"
                    ) from error
                if run.pressure == _SHORTENED:
                    raise
                run.notify(sentences.SHORTENED)
                await self._compaction.relieve(run, asked.tokens)
            except ModelUnavailableError as error:
                if waited or error.retry_after_s is None or error.retry_after_s > _SHORT_WAIT_S:
                    raise
                waited = True
                await anyio.sleep(error.retry_after_s)
            else:
                if completion is None:
                    return None
                run.guard.asked += 1
                if completion.refused:
                    omitted = tuple(sorted(completion.refused))
                    await run.journal.add([Note(content="", turn=run.ask.id, omitted=omitted)])
                completion, run.unread = completions.cleaned(completion, run.fence, asked.request)
                return completion

    # 5 and 6 are in `tool_calls`.
    # 7 and 8: the answer, on disk.

    async def _persist(
        self,
        run: Run,
        verdict: Verdict,
        usage: Usage,
        parts: tuple[TextPart | OpaquePart, ...] = (),
    ) -> Answered:
        _act(run)
        answer, unread = verdict.answer, unread_sentences(run.journal.own())
        line = Said(
            role="assistant",
            content="" if unread and directed(answer).silent else answer,
            notice="\n".join(filter(None, (verdict.notice, *unread))),
            turn=run.ask.id,
            final=True,
            taints=history.in_order(run.taints),
            parts=parts,
            files=run.journal.files(),
            **usage_fields(usage),
        )
        await run.journal.add([line], sync=True)
        return Answered.of(line)

    async def broke(self, ask: TurnInput, sentence: str) -> Answered:
        """End a turn that cannot be run because of a fault of the service. Raises StorageError."""
        run = await self._open(ask)
        written = run.journal.answer()
        if written is not None:
            return Answered.of(written)
        await self._add_messages(run, ask.messages, recall=False)
        return await self._persist(run, Verdict(notice=sentence), Usage())

    async def stop(self, ask: TurnInput) -> int:
        """Stop a turn: give up its tasks, and add a note for the model.

        Returns how many tasks were given up. Raises StorageError.
        """
        run = await self._open(msgspec.structs.replace(ask, resumed=True))
        if run.journal.answer() is not None:
            return 0
        await self._add_messages(run, ask.messages, recall=False, sync=True)
        lines, given_up = await self._tool_calls.give_up(run)
        if any(one.text for one in ask.messages):
            lines.append(Note(content=sentences.STOPPED_NOTE, turn=ask.id))
        await run.journal.add(lines, sync=True)
        return given_up

    async def retract(self, ask: TurnInput, message: str) -> bool:
        """Withdraw the calls of a turn that does not run which a message has caused, so that it can
        be corrected; False, and nothing is changed, if one of them has done something.

        Raises StorageError.
        """
        run = await self._open(msgspec.structs.replace(ask, resumed=True))
        run.journal.add_requests(ask.messages)
        if run.journal.answer() is not None:
            return False
        return await self._tool_calls.retract(run, self._effects(run, message))


def _act(run: Run) -> None:
    """Note that a turn does what a correction cannot undo."""
    if run.ask.interrupts is not None:
        run.ask.interrupts.revisions.act_on(run.journal.ids)


def _is_revised(run: Run) -> bool:
    """Whether a correction of a message of a turn waits to be taken."""
    return run.ask.interrupts is not None and run.ask.interrupts.revisions.waiting


def excuse_for(error: ModelError, ask: TurnInput) -> str:
    """Log why a turn gets no answer of a model, and return the sentence for the person."""
    reason, turn = str(error), ask.id
    why = sentences.WHY_NO_MODEL if ask.profile.for_admin else ""
    match error:
        case ContextOverflowError():
            return sentences.TOO_LONG
        case ModelUnavailableError():
            _log.warning("no model is available", turn=turn, reason=reason)
            return f"{sentences.NO_MODEL}{why}"
        case ContentFilteredError():
            _log.warning("a content filter rejects a turn", turn=turn, reason=reason)
            return sentences.FILTERED
        case _:
            _log.error("the model refuses", turn=turn, reason=reason)
            return f"{sentences.REFUSED}{why}"
