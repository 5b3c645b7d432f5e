"""Execution (urn:fluux:agent:0#execute): a skill by name, its parameters, its result."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import structlog

from component.router.table import Answer, IQRoute, Request
from component.skills.context import Context
from component.skills.declare import AnySkill
from component.skills.errors import InvalidParam, SkillFailed, SkillTimeout
from component.skills.native import call, call_inline
from component.skills.outputs import SkillResult
from component.skills.params import prepare
from component.skills.registry import View
from component.skills.threads import Threads
from xep import fluux_agent
from xep.fluux_agent import errors
from xep.fluux_agent.execute import NAMESPACE, Execute, Output, Result, Usage
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.execute")


class ExecuteHandler:
    """Runs skills for those who may use them.

    Args:
        view: the skills that a principal sees; what it does not see is not there.
        threads: the worker threads that plain skills share.
        inline_s: seconds that work may take to be answered within its IQ.
        now: the time, for deadlines.
    """

    def __init__(
        self,
        view: Callable[[JID], View],
        threads: Threads,
        inline_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._view = view
        self._threads = threads
        self._inline_s = inline_s
        self._now = now

    def routes(self) -> tuple[IQRoute, ...]:
        """The routes of this handler."""
        features = (fluux_agent.NAMESPACE, NAMESPACE)
        return (IQRoute("set", Execute, self.execute, features),)

    def execute(self, request: Request[Execute]) -> Answer | Awaitable[Answer]:
        """Run a skill: at once if it never blocks, else in a task of its own.

        Raises StanzaError as the error table of the specification says.
        """
        asked = request.payload
        skill = self._view(request.principal).get(asked.skill)
        if skill is None:
            raise errors.unknown_skill()
        if asked.delegation is not None:
            # Its limits are not kept yet, and work that runs without them is not what was asked.
            raise errors.delegation_unavailable()
        if asked.earlier:
            raise errors.unknown_task()  # there are no tasks yet, so none that could be meant
        if asked.mode == "async":
            raise errors.mode_unavailable(asked.mode)
        remaining = None if asked.deadline is None else self._remaining(asked.deadline)
        texts = [(param.name, param.text) for param in asked.params]
        json = None if asked.json_params is None else bytes(asked.json_params.json)
        try:
            arguments = prepare(skill, texts, json)
            if skill.annotations.destructive:
                raise errors.confirmation_unavailable()
            if skill.kind != "inline":
                return self._run(skill, arguments, _context(skill, request), remaining)
            context = _context(skill, request) if skill.wants_context else None
            return _payload(skill, call_inline(skill, arguments, context))
        except InvalidParam as error:
            raise _invalid(error) from error
        except SkillFailed as error:
            raise _failed(skill, error) from error

    async def _run(
        self, skill: AnySkill, arguments: msgspec.Struct, context: Context, remaining: float | None
    ) -> Result:
        limit = self._inline_s if remaining is None else min(self._inline_s, remaining)
        try:
            result = await call(
                skill, arguments, context, self._threads.share(context.principal), timeout=limit
            )
        except InvalidParam as error:
            raise _invalid(error) from error
        except SkillFailed as error:
            raise _failed(skill, error) from error
        except SkillTimeout as error:
            if remaining is not None and error.seconds == remaining:
                raise errors.deadline_expired() from error
            raise errors.timed_out(repeatable=skill.annotations.repeatable) from error
        return _payload(skill, result)

    def _remaining(self, deadline: datetime) -> float:
        """Seconds until the deadline."""
        remaining = (deadline - self._now()).total_seconds()
        if remaining <= 0:
            raise errors.deadline_expired()
        return remaining


def _context(skill: AnySkill, request: Request[Execute]) -> Context:
    return Context(principal=str(request.principal), sender=str(request.sender), skill=skill.name)


def _payload(skill: AnySkill, result: SkillResult) -> Result:
    return Result(
        skill=skill.name,
        is_error=result.is_error,
        outputs=tuple(
            [
                Output(name=made.name or _name(number), type=made.media_type, text=made.text)
                for number, made in enumerate(result.outputs)
            ]
        ),
        usage=Usage(duration_ms=round(result.duration * 1000)),
    )


def _name(number: int) -> str:
    return f"output-{number + 1}" if number else "output"


def _invalid(error: InvalidParam) -> StanzaError:
    if error.name is None:
        return errors.malformed(str(error))
    found = errors.invalid_param(error.name, error.reason)
    found.text = str(error)  # the path inside the parameter, where there is one
    return found


def _failed(skill: AnySkill, error: SkillFailed) -> StanzaError:
    _log.error("a skill failed", skill=skill.name, exc_info=error.__cause__ or error)
    return errors.internal()
