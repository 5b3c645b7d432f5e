"""Calls of skills that workers run.

Policy, confirmation, capabilities and budgets decide whether a call may run, before it is sent. The
service's task remains the truth. The call's id is recorded in the task before the call is sent, so
an execution that resumes the task follows the same call and sends no second one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from msgspec.structs import replace

from component.features.workers.messages import (
    Asked,
    CallMessage,
    Declined,
    Outcome,
    Records,
    Stopped,
    encode,
)
from component.features.workers.statements import NewCall
from component.sandbox.messages import Failure, Result
from component.skills.context import Context
from component.skills.errors import (
    CapabilityMissing,
    Denied,
    InvalidParam,
    SkillError,
    SkillFailed,
    SkillInterrupted,
    SkillTimeout,
    SkillUnavailable,
)
from component.skills.inputs import Arguments
from component.skills.operations import ModelFailed, ModelOutcome
from component.skills.outputs import SkillResult

if TYPE_CHECKING:
    from component.features.workers.client import Client
    from component.features.workers.settings import WorkersEntry

_DEFAULT_S: Final = 3600.0
_OVER_S: Final = 0.01  # the call's time is over; the clocks of threads and the event loop differ


class WorkerFailure(Exception):  # noqa: N818 - it is the cause of a SkillFailed
    """A skill raised an exception on a worker; the text is its traceback, for the log."""


class WorkerCalls:
    """Calls one version of a skill.

    Args:
        lane: the version.
        repeatable: whether a call may run twice.
        timeout_s: seconds that the skill may run.
    """

    def __init__(
        self,
        entry: WorkersEntry,
        client: Client,
        skill: str,
        lane: str,
        *,
        repeatable: bool,
        timeout_s: float,
    ) -> None:
        self._entry = entry
        self._client = client
        self._skill = skill
        self._lane = lane
        self._repeatable = repeatable
        self._timeout_s = timeout_s

    async def invoke(self, arguments: Arguments, context: Context | None) -> SkillResult:
        """Run a call on a worker, and return its result. Raises as `calling.call`."""
        assert context is not None, "it wants a context"
        encoded = msgspec.json.encode(arguments)
        if len(encoded) > self._entry.max_argument_bytes:
            raise SkillError(
                f"The parameters have {len(encoded):,} bytes, and at most"
                f" {self._entry.max_argument_bytes:,} are sent to a worker."
            )
        records: Records = {}
        while True:
            # With effects, so that the task has a row before a worker can begin.
            id = await context.step("worker", _id_of, str)  # noqa: A001 - it is one
            message = CallMessage(
                skill=self._skill,
                arguments=encoded,
                most_bytes=self._entry.max_result_bytes,
                key=context.key,
                principal=context.principal,
                sender=context.sender,
                agent=context.agent,
                taints=context.taints,
                trace=context.trace,
                records=records,
            )
            outcome = await self._run(id, message, context)
            if not isinstance(outcome, Asked):
                return self._result(outcome)
            records = {**outcome.records, outcome.identity: (await _reply(outcome, context), None)}

    async def _run(self, id: str, message: CallMessage, context: Context) -> Outcome:  # noqa: A002
        """Run a call until it ends; stop it if this is cancelled for good."""
        client, left = self._client, context.remaining()
        call = NewCall(
            id=id,
            lane=self._lane,
            message=encode(message),
            repeatable=self._repeatable,
            seconds=_DEFAULT_S if left is None else left,
        )
        cancelled = anyio.get_cancelled_exc_class()
        try:
            return await client.call(call, context.progress)
        except cancelled:
            left = context.remaining()
            if context.resumes and (left is None or left > _OVER_S):
                raise
            stopped = await self._stop(id)
            if self._repeatable or (isinstance(stopped, Stopped) and not stopped.begun):
                raise
            return stopped
        finally:
            client.forget(id)

    async def _stop(self, id: str) -> Outcome:  # noqa: A002 - it is one
        """Stop a call, and return its outcome as far as it is known in time."""
        with anyio.move_on_after(self._entry.stop_s, shield=True):
            try:
                return await self._client.stop(id)
            except SkillUnavailable:
                pass
        return Stopped(begun=True)

    def _result(self, outcome: Result | Failure | Declined | Stopped) -> SkillResult:
        """Return the result of a call. Raises what its skill raised, or why it was not run."""
        match outcome:
            case Result():
                made = outcome.result()
                return made if self._entry.taint is None else replace(made, taints=None)
            case Declined(reason=reason):
                raise SkillFailed(self._skill) from Denied(reason)
            case Stopped():
                raise self._stopped(outcome)
            case Failure(kind="parameter", text=reason, name=name, path=path):
                raise InvalidParam(name, reason, path)
            case Failure(kind="capability", name=str() as capability):
                raise CapabilityMissing(self._skill, capability)
            case Failure(kind="timeout"):
                raise SkillTimeout(self._skill, self._timeout_s)
            case Failure(kind="load" | "memory", text=reason):
                raise SkillFailed(self._skill, reason)
        raise SkillFailed(self._skill) from WorkerFailure(outcome.trace or outcome.text)

    def _stopped(self, outcome: Stopped) -> SkillUnavailable:
        name = self._skill
        if not outcome.begun:
            why = f"No worker began {name} in time."
            if outcome.lost:
                why = f"No worker that has the skill {name} is running now."
            return SkillUnavailable(why, begun=False)
        which = f"The worker {outcome.worker}" if outcome.worker else "The worker"
        why = f"{which} that ran {name} was lost."
        if not outcome.lost:
            why = f"The call of {name} was stopped while a worker ran it."
        if self._repeatable:
            return SkillUnavailable(why)
        return SkillInterrupted(f"{why} Whether it had its effect is not known.")


async def _id_of(key: str) -> str:
    return key


async def _reply(asked: Asked, context: Context) -> str:
    """Ask a person or a model for a worker's skill; return the record of the answer."""
    schema = msgspec.json.decode(asked.schema, type=dict[str, Any])
    if asked.max_tokens is not None:
        try:
            made = await context.llm(
                asked.question, schema, max_tokens=asked.max_tokens, key=asked.identity
            )
            outcome = ModelOutcome(msgspec.json.encode(made).decode())
        except ModelFailed as error:
            outcome = ModelOutcome(str(error), error.problem)
        return msgspec.json.encode({"value": outcome}).decode()
    try:
        answer = await context.ask(
            asked.question, schema, expires_s=asked.expires_s, key=asked.identity
        )
    except Denied as denied:
        return msgspec.json.encode({"declined": denied.reason}).decode()
    return msgspec.json.encode({"value": answer}).decode()
