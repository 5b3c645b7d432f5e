"""From a request to its outcome, in the one order of admission (RPL-001).

What cannot wait, and may run again, is answered at once, without a task, a record or a digest.
Everything else goes through the durable work, which decides by itself how durable it has to be.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import Final, Protocol

import msgspec

from component.execution.notes import NoNotes, Notes
from component.execution.recent import Recent
from component.execution.written import Written
from component.skills import AnySkill, InvalidParam, SkillFailed, View, prepare
from component.skills.context import Context
from component.skills.native import call_inline
from component.skills.params import prepare_texts
from component.tasks.confirmation import check_size
from component.tasks.outcomes import error_of, result_of
from component.tasks.pacing import Pacer
from component.tasks.protocol import Asker, Call, Confirmation, Hand, Origin, Tasks, Told
from component.tasks.replay import again, digest_of, given, key_of
from xep.binding import Encoded
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Execute, Result
from xep.fluux_agent.identifiers import check_identifier
from xep.jid import JID
from xep.stanza_error import StanzaError

_SESSION: Final = "session "
"""No identifier of a caller's has a space, so none can be that of a command's session."""


class Confirming(Protocol):
    """Knows which requests need a person's word, and whose."""

    def needed(self, principal: JID, skill: AnySkill, asker: Asker = "caller", /) -> bool:
        """Whether somebody may have to be asked. Never waits."""

    async def whom(
        self, principal: JID, requester: JID, target: JID, skill: AnySkill, asker: Asker, /
    ) -> Confirmation | None:
        """Who is to be asked; None if nobody has to be.

        Raises StanzaError: `confirmation-unavailable`.
        """


class Road:
    """Runs skills for those who may use them.

    Args:
        view: the skills that a principal sees; what it does not see is not there.
        tasks: the durable work.
        confirming: who has to be asked.
        recent: what was just answered at once.
        let_in: raises StanzaError if nothing new of this principal is taken on now.
        accepted: is told the id of a task whose request is answered with `<accepted/>` without
            waiting for anything more.
        now: the time, for deadlines.
        default_agent: the localpart of the agent that serves the domain itself.
        notes: is told what became of requests, but not of those of models: whoever makes their
            calls tells of them.
    """

    def __init__(
        self,
        view: Callable[[JID], View],
        tasks: Tasks,
        confirming: Confirming,
        recent: Recent,
        let_in: Callable[[JID], None] = lambda _: None,
        accepted: Callable[[str], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        default_agent: str = "assistant",
        notes: Notes = NoNotes(),  # noqa: B008 - it holds nothing
    ) -> None:
        self._view = view
        self._tasks = tasks
        self._confirming = confirming
        self._recent = recent
        self._let_in = let_in
        self._accepted = accepted
        self._now = now
        self._default_agent = default_agent
        self._notes = notes
        self._writing: dict[str, Written] = {}
        self._pacer = Pacer()

    def execute(
        self,
        requester: JID,
        principal: JID,
        target: JID,
        execute: Execute,
        *,
        stanza_id: str = "",
        size: int = 0,
        lang: str | None = None,
    ) -> Encoded | Result | Accepted | Awaitable[Result | Accepted]:
        """Serve an execute request, at once if nothing about it waits.

        A result that is one plain text is XML text already (see `Written`).

        Args:
            requester: the full address that asks.
            principal: its bare address.
            target: the address of ours that was asked.
            execute: the request.
            stanza_id: the id of its IQ, by which a repetition is known if it names no other.
            size: about how many bytes it took.
            lang: its language.

        Raises StanzaError as the error table of the specification says; so may the awaitable.
        """
        if execute.request is not None or execute.context is not None or execute.earlier:
            _check_identifiers(execute)
        view, let_in = self._view, self._let_in
        find = view(principal).get
        skill = find(execute.skill)
        if skill is None:
            raise self._unknown(principal, execute)
        if execute.request is None:
            recent, key = self._recent, (requester, target, stanza_id)
            known = recent.get(key, execute)
            if (
                known is None
                and skill.at_once
                and execute.mode != "async"
                and not execute.earlier
                and execute.delegation is None
                and not self._confirming.needed(principal, skill)
            ):
                if execute.deadline is not None:
                    self._check_deadline(execute.deadline)
                if execute.json_params is None:
                    try:
                        arguments = prepare_texts(skill, execute.params)
                    except InvalidParam as error:
                        raise error_of(skill, error) from error
                else:
                    arguments = _arguments(skill, execute)
                let_in(principal)
                written = self._writing.get(skill.name) or self._written(skill)
                context = None
                if written.wants_context:
                    context = _context(skill, principal, requester, Hand(self._agent_at(target)))
                answer = written.run(arguments, context)
                recent.put(key, execute, size, answer)
                if isinstance(answer, StanzaError):
                    self._notes.ran(principal, skill.name, "failed", written.seconds)
                    raise again(answer)
                self._notes.ran(principal, skill.name, "done", written.seconds)
                return answer
            if known is not None and known != "elsewhere":
                return known
            recent.went_elsewhere(key)
        key_text = key_of(requester, target, execute.request, stanza_id)
        return self._admit(requester, principal, target, execute, skill, key_text, "iq", lang)

    def execute_in_session(
        self,
        requester: JID,
        principal: JID,
        target: JID,
        execute: Execute,
        *,
        session: str,
        origin: Origin,
        lang: str | None = None,
        hand: Hand | None = None,
        told: Told | None = None,
    ) -> Awaitable[Result | Accepted]:
        """Serve a request that came by another face than an IQ of its own.

        `session` is what a repetition is known by: the session of a command (FAC-006), a turn and
        the number of a model's call in it. `hand` says which agent calls, if not the one at
        `target` for its caller, `told` is as in `component.tasks.protocol.Call`. Otherwise as
        `execute`.
        """
        _check_identifiers(execute)
        skill = self._view(principal).get(execute.skill)
        if skill is None:
            raise self._unknown(principal, execute)
        key = key_of(requester, target, _SESSION + session, "")
        return self._admit(
            requester, principal, target, execute, skill, key, origin, lang, hand, told
        )

    async def withdraw(self, requester: JID, target: JID, session: str) -> bool:
        """Nobody wants a request in a session any more: end what it has become.

        False if it is not under way. Raises StorageError.
        """
        return await self._tasks.withdraw(key_of(requester, target, _SESSION + session, ""))

    def _written(self, skill: AnySkill) -> Written:
        written = self._writing[skill.name] = Written(skill)
        return written

    async def _admit(
        self,
        requester: JID,
        principal: JID,
        target: JID,
        execute: Execute,
        skill: AnySkill,
        key: str,
        origin: Origin,
        lang: str | None,
        hand: Hand | None = None,
        told: Told | None = None,
    ) -> Result | Accepted:
        hand = hand or Hand(self._agent_at(target))
        who, size = str(principal), execute.size
        async with self._pacer.turn(who, size):
            digest = digest_of(execute)
        known = self._tasks.remembered(key, digest) or await self._tasks.repeated(key, digest)
        if known is not None:
            return known
        if execute.delegation is not None:
            # Its limits are not kept yet, and work that runs without them is not what was asked.
            raise errors.delegation_unavailable()
        if execute.earlier:
            named = [earlier.task for earlier in execute.earlier]
            if not await self._tasks.earlier(principal, target, named):
                raise errors.unknown_task()
        if execute.deadline is not None:
            self._check_deadline(execute.deadline)
        async with self._pacer.turn(who, size):
            arguments = _arguments(skill, execute)
        confirmation = None
        if self._confirming.needed(principal, skill, hand.asker):
            try:
                confirmation = await self._confirming.whom(
                    principal, requester, target, skill, hand.asker
                )
                if confirmation is not None and execute.mode == "inline":
                    raise errors.confirmation_unavailable()
            except StanzaError:
                self._notes.refused(principal, skill.name, "nobody who could confirm it")
                raise
            if confirmation is not None:
                check_size(size)
        self._let_in(principal)
        if skill.at_once and confirmation is None and execute.mode != "async":
            # Another may have come in while this one waited.
            known = self._tasks.remembered(key, digest)
            if known is not None:
                return known
            began = perf_counter()
            outcome = _run_inline(skill, arguments, principal, requester, hand, told)
            self._tasks.remember(key, digest, outcome)
            if hand.asker == "caller":
                how = "failed" if isinstance(outcome, StanzaError) else "done"
                self._notes.ran(principal, skill.name, how, perf_counter() - began)
            return given(outcome)
        call = Call(
            principal=principal,
            requester=requester,
            target=target,
            skill=skill,
            arguments=arguments,
            execute=execute,
            key=key,
            digest=digest,
            origin=origin,
            lang=lang,
            hand=hand,
            confirmation=confirmation,
            told=told,
        )
        answer = await (self._noted(call) if hand.asker == "caller" else self._tasks.execute(call))
        if isinstance(answer, Accepted):
            self._accepted(answer.task)
        return answer

    async def _noted(self, call: Call) -> Result | Accepted:
        """Give work to the tasks, and note what came of it."""
        began = perf_counter()
        outcome, task, detail = "failed", "", ""
        try:
            answer = await self._tasks.execute(call)
            if isinstance(answer, Accepted):
                outcome, task = "accepted", answer.task
            elif not answer.is_error:
                outcome = "done"
        except StanzaError as error:
            detail = error.application[0].xml.local if error.application else error.condition
            raise
        finally:
            seconds = perf_counter() - began
            self._notes.went_on(call.principal, call.skill.name, outcome, seconds, task, detail)
        return answer

    def _unknown(self, principal: JID, execute: Execute) -> StanzaError:
        self._notes.refused(principal, execute.skill, "no such skill for them")
        return errors.unknown_skill()

    def _agent_at(self, target: JID) -> str:
        return target.local or self._default_agent

    def _check_deadline(self, deadline: datetime) -> None:
        if deadline <= self._now():
            raise errors.deadline_expired()


def _check_identifiers(execute: Execute) -> None:
    """Raise StanzaError, `malformed`, for an identifier that is none (COM-017)."""
    if execute.request is not None:
        check_identifier("execute", "request", execute.request)
    if execute.context is not None:
        check_identifier("execute", "context", execute.context)
    for earlier in execute.earlier:
        check_identifier("earlier", "task", earlier.task)


def _arguments(skill: AnySkill, execute: Execute) -> msgspec.Struct:
    try:
        if execute.json_params is None:
            return prepare_texts(skill, execute.params)
        texts = [(param.name, param.text) for param in execute.params]
        return prepare(skill, texts, bytes(execute.json_params.json))
    except InvalidParam as error:
        raise error_of(skill, error) from error


def _run_inline(
    skill: AnySkill,
    arguments: msgspec.Struct,
    principal: JID,
    requester: JID,
    hand: Hand,
    told: Told | None,
) -> Result | StanzaError:
    """What comes of it: an error too is an outcome, and is recorded (RPL-013)."""
    context = _context(skill, principal, requester, hand) if skill.wants_context else None
    try:
        made = call_inline(skill, arguments, context)
        if told is not None and made.taints is not None:
            told(skill.taint_of(made))
        return result_of(skill, made)
    except (InvalidParam, SkillFailed) as error:
        return error_of(skill, error)


def _context(skill: AnySkill, principal: JID, requester: JID, hand: Hand) -> Context:
    return Context(
        principal=str(principal),
        sender=str(requester),
        skill=skill.name,
        agent=hand.agent,
        taints=hand.taints,
        trace=hand.trace,
    )
