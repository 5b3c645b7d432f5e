"""What is recorded, counted and traced of a service; rooms are told of it one by one."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.metadata import version

import anyio
from anyio.abc import TaskStatus

from component.audit.protocol import NoRecord, Recorder
from component.audit.record import Audit, AuditOptions
from component.audit.refusals import Refusals
from component.execution.notes import RecordedNotes
from component.metrics.counters import Counters, Usage
from component.metrics.traces import NoTracer, Span, Tracer, make_tracer
from component.service.options import SOFTWARE
from component.settings import Settings
from component.storage import Storage

_NOT_ADMITTED = "not admitted"


class Watching:
    """Everything that watches. It is also the observer of the agents' loop.

    Args:
        audit: the record; None to keep none.
        tracer: makes traces.

    Attributes:
        recorder: the record, as rooms use it.
        refusals: those who are refused, of whom there may be a flood.
        counters: the figures.
        full: gives why no new work can be taken on; None if it can.
        notes: takes what became of requests to execute a skill.
    """

    def __init__(self, audit: Audit | None = None, tracer: Tracer | None = None) -> None:
        self.audit = audit
        self.recorder: Recorder = NoRecord() if audit is None else audit
        self.refusals = Refusals(self.recorder)
        self.counters = Counters()
        self.notes = RecordedNotes(self.recorder, self.refusals, self.counters)
        self._tracer = tracer or NoTracer()
        self.full: Callable[[], str | None] = _never_full if audit is None else audit.full
        self.turn = self.counters.turn
        self.tool_call = self.counters.tool_call

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Have it all on disk soon, until cancelled."""
        async with anyio.create_task_group() as group:
            if self.audit is not None:
                await group.start(self.audit.run)
            group.start_soon(self.refusals.run)
            task_status.started()

    def turned_away(self, principal: str) -> None:
        """Somebody sent something whom policy does not admit."""
        self.refused(principal, _NOT_ADMITTED)

    def refused(self, principal: str, why: str) -> None:
        """Somebody was refused for a reason, which is one of few."""
        self.counters.refusals.add(why)
        self.refusals.refused(principal, why)

    def model_call(self, model: str, outcome: str, seconds: float, usage: Usage) -> None:
        """A model was asked."""
        self.counters.model_call(model, outcome, seconds, usage)

    def span(self, name: str, **attributes: str) -> AbstractContextManager[Span]:
        """A part of a trace; see `component.metrics.traces.Tracer`."""
        return self._tracer.span(name, **attributes)

    async def close(self) -> None:
        """Send the traces that are left."""
        with anyio.CancelScope(shield=True):
            await self._tracer.close()


def _never_full() -> None:
    """Where nothing is recorded."""


def audit_options(settings: Settings) -> AuditOptions:
    """What the record is told by the settings."""
    audit = settings.audit
    return AuditOptions(
        on_failure=audit.on_failure,
        keep_days=audit.keep_days,
        max_file_bytes=audit.max_file_bytes,
        version=version(SOFTWARE),
    )


def _providers(settings: Settings) -> Mapping[str, str]:
    """Who has each model, and under "" who has those that are not named."""
    llm = settings.llm
    if llm is None:
        return {}
    choices = (*llm.fallback, *llm.tiers.values(), llm)
    return {"": llm.provider} | {
        choice.model: choice.provider for choice in choices if choice.model
    }


@asynccontextmanager
async def watching(settings: Settings, storage: Storage) -> AsyncIterator[Watching]:
    """What watches a service, for the time of the context; `Watching.run` is to run meanwhile.

    Raises StorageError: the record cannot be read or begun; TracesError: the extra is missing.
    """
    traces = settings.traces
    tracer = make_tracer(
        traces.endpoint,
        traces.authorization.get_secret_value(),
        traces.sample,
        version(SOFTWARE),
        _providers(settings),
    )
    if not settings.audit.enabled:
        watches = Watching(None, tracer)
        try:
            yield watches
        finally:
            await watches.close()
        return
    async with Audit.open(storage, audit_options(settings)) as audit:
        watches = Watching(audit, tracer)
        try:
            yield watches
        finally:
            await watches.close()
