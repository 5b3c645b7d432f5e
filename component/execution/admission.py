"""Admission: checks every request in one order (RPL-001), whether it is an IQ, a form or a model's
call.

`Admission.steps` is the table of the specification, from its second row on; the router checks the
first, whether the sender is admitted at all. Each step lets a request pass, answers it, or raises
the StanzaError of its row. A step that has to wait returns a coroutine function that does the
waiting, so a request for which no step waits needs no task of the event loop.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Final, Protocol, TypeAlias

from component import system
from component.execution.notes import NoNotes, Notes
from component.execution.request import SkillRequest
from component.skills import InvalidParam, Skill, View, prepare
from component.skills.inputs import Arguments
from component.skills.params import prepare_texts
from component.tasks.approvers import UNKNOWN, Unknown
from component.tasks.confirmation import action_of, check_size
from component.tasks.outputs import error_of
from component.tasks.pacing import SMALL, Pacer
from component.tasks.protocol import Asker, Confirmation
from component.tasks.service import TaskService
from component.tasks.skill_call import SkillCall
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.identifiers import check_identifier
from xep.jid import JID
from xep.stanza_error import StanzaError

ExecutionAnswer: TypeAlias = Result | Accepted
Judged: TypeAlias = ExecutionAnswer | None
"""The recorded answer to a repetition, or None: the request passes."""
Waiting: TypeAlias = Callable[[SkillRequest], Awaitable[Judged]]
"""The part of a step that waits. It has not started, so it can be dropped."""
Step: TypeAlias = Callable[[SkillRequest], Judged | Waiting]

ANSWERS: Final = (Result, Accepted)


class Confirming(Protocol):
    """Determines which requests a person must confirm, and who."""

    def needed(self, principal: JID, skill: Skill, asker: Asker = "caller", /) -> bool:
        """Return whether a confirmation may be needed. Never waits."""

    def at_once(
        self, principal: JID, requester: JID, skill: Skill, asker: Asker, /
    ) -> Confirmation | Unknown | None:
        """Return the result of `find` if it is known without waiting, else UNKNOWN. Never waits.

        Raises StanzaError: `confirmation-unavailable`.
        """

    async def find(
        self, principal: JID, requester: JID, target: JID, skill: Skill, asker: Asker, /
    ) -> Confirmation | None:
        """Return who has to confirm; None if nobody has to.

        Raises StanzaError: `confirmation-unavailable`.
        """


class Admission:
    """Judges requests.

    Args:
        view: the skills that a principal sees; other skills are reported as unknown.
        tasks: the durable work.
        confirming: determines who must confirm a request.
        let_in: raises StanzaError if new requests of this principal are rejected now.
        now: returns the time, for deadlines.
        notes: records refusals.
    """

    def __init__(
        self,
        view: Callable[[JID], View],
        tasks: TaskService,
        confirming: Confirming,
        let_in: Callable[[JID], None] = lambda _: None,
        now: Callable[[], datetime] = system.now,
        notes: Notes = NoNotes(),  # noqa: B008 - it holds nothing
    ) -> None:
        self._view = view
        self._tasks = tasks
        self._remembered = tasks.remembered
        self._confirming = confirming
        self._may_ask = confirming.needed
        self._let_in = let_in
        self._now = now
        self._notes = notes
        self._pacer = Pacer()
        self.steps: tuple[Step, ...] = (
            self.well_formed,
            self.in_view,
            self.not_repeated,
            self.not_delegated,
            self.earlier_tasks,
            self.mode,
            self.deadline,
            self.parameters,
            self.confirmation,
            self.room,
        )

    def judge(self, request: SkillRequest) -> Judged | Waiting:
        """Take a request through all steps; return None if it is admitted.

        Raises StanzaError: the error of the first step that fails; the returned function may raise
        it too.
        """
        for step in self.steps:
            found = step(request)
            if found is not None:
                return found if isinstance(found, ANSWERS) else partial(self._judge_on, step, found)
        return None

    async def _judge_on(self, waits: Step, waiting: Waiting, request: SkillRequest) -> Judged:
        answer = await waiting(request)
        for step in self.steps[self.steps.index(waits) + 1 :]:
            if answer is not None:
                return answer
            found = step(request)
            if found is None or isinstance(found, ANSWERS):
                answer = found
            else:
                answer = await found(request)
        if answer is None:
            # The same request may have arrived, and may have been answered, while this one waited.
            answer = self._remembered(request.key)
        return answer

    # The steps. Each is a row of the table in "The Order of Admission".

    def well_formed(self, request: SkillRequest) -> None:
        """Row 2, else `malformed`: identifiers (COM-017); the decoder has checked the rest."""
        call = request.call
        if call.request is not None:
            check_identifier("execute", "request", call.request)
        if call.context is not None:
            check_identifier("execute", "context", call.context)
        for earlier in call.earlier:
            check_identifier("earlier", "task", earlier)

    def in_view(self, request: SkillRequest) -> None:
        """Row 3, else `unknown-skill`."""
        skill = self._view(request.principal).get(request.call.skill)
        if skill is None:
            self._notes.refused(request.principal, request.call.skill, "unknown or hidden skill")
            raise errors.unknown_skill()
        request.skill = skill
        request.may_ask = self._may_ask(request.principal, skill, request.asker)

    def not_repeated(self, request: SkillRequest) -> Judged | Waiting:
        """Row 4: a repetition gets the recorded answer, or `conflict`."""
        if request.size >= SMALL:
            return self._large_not_repeated
        if request.runs_at_once and request.name is None:
            # The key includes the content, and no record on disk has this content.
            request.key = request.compute_key_in_memory()
            return self._remembered(request.key)
        request.key = request.compute_key()
        return self._remembered(request.key) or self._on_disk

    async def _large_not_repeated(self, request: SkillRequest) -> Judged:
        async with self._pacer.turn(str(request.principal), request.size):
            request.key = request.compute_key()
        if request.runs_at_once and request.name is None:
            return self._remembered(request.key)
        return await self._on_disk(request)

    async def _on_disk(self, request: SkillRequest) -> Judged:
        return await self._tasks.repeated(request.key)

    def not_delegated(self, request: SkillRequest) -> None:
        """Row 5, else `delegation-unavailable`: the limits of a delegation are not enforced yet."""
        if request.call.delegation is not None:
            raise errors.delegation_unavailable()

    def earlier_tasks(self, request: SkillRequest) -> Waiting | None:
        """Row 6, else `unknown-task`."""
        return self._check_earlier if request.call.earlier else None

    async def _check_earlier(self, request: SkillRequest) -> None:
        if not await self._tasks.earlier(request.principal, request.target, request.call.earlier):
            raise errors.unknown_task()

    def mode(self, request: SkillRequest) -> None:
        """Row 7, else `mode-unavailable`: a skill with a queue has to wait for its turn."""
        if request.call.mode == "inline" and request.skill.queue is not None:
            raise errors.mode_unavailable("inline")

    def deadline(self, request: SkillRequest) -> None:
        """Row 8, else `deadline-expired`."""
        deadline = request.call.deadline
        if deadline is not None and deadline <= self._now():
            raise errors.deadline_expired()

    def parameters(self, request: SkillRequest) -> Waiting | None:
        """Row 9, else `invalid-param` or `malformed`."""
        if request.size >= SMALL:
            return self._large_parameters
        request.arguments = _arguments(request.skill, request.call)
        return None if request.skill.complete is None else self._complete

    async def _large_parameters(self, request: SkillRequest) -> None:
        async with self._pacer.turn(str(request.principal), request.size):
            request.arguments = _arguments(request.skill, request.call)
        await self._complete(request)

    async def _complete(self, request: SkillRequest) -> None:
        skill, requester = request.skill, request.requester
        try:
            request.arguments = await completed(skill, requester, request.target, request.arguments)
        except InvalidParam as error:
            raise error_of(skill, error) from error

    def confirmation(self, request: SkillRequest) -> Waiting | None:
        """Row 10, else `confirmation-unavailable`."""
        return self._find_confirmation if request.may_ask else None

    async def _find_confirmation(self, request: SkillRequest) -> None:
        principal, skill, mode = request.principal, request.skill, request.call.mode
        asker = request.asker
        try:
            found = self._confirming.at_once(principal, request.requester, skill, asker)
            if found is UNKNOWN and (request.origin != "iq" or mode == "inline"):
                found = await self._confirming.find(
                    principal, request.requester, request.target, skill, asker
                )
            if isinstance(found, Confirmation) and mode == "inline":
                raise errors.confirmation_unavailable()
        except StanzaError:
            self._notes.refused(principal, skill.name, "no one can confirm it")
            raise
        if found is None:
            return
        check_size(request.call.size)
        if found is UNKNOWN:
            action_of(skill, request.arguments)  # refuse now a request that no one can confirm
            request.undecided = True
        else:
            request.confirmation = found

    def room(self, request: SkillRequest) -> None:
        """Row 11, else `retry`. The limit of open tasks is checked when a new one is committed."""
        self._let_in(request.principal)


async def completed(skill: Skill, requester: JID, target: JID, arguments: Arguments) -> Arguments:
    """Return the arguments with those that depend on the requester. Raises InvalidParam and
    StorageError.
    """
    if skill.complete is None:
        return arguments
    return await skill.complete(requester, target, arguments)


def _arguments(skill: Skill, call: SkillCall) -> Arguments:
    try:
        if call.json is None:
            return prepare_texts(skill, call.params)
        texts = [(param.name, param.text) for param in call.params]
        return prepare(skill, texts, bytes(call.json))
    except InvalidParam as error:
        raise error_of(skill, error) from error
