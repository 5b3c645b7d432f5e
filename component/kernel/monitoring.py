"""The audit log, the counters and the traces of a service.

Other subsystems get the parts that they report to, and do not know the rest.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import structlog
from anyio.abc import TaskStatus

from component import VERSION
from component.audit.protocol import NoRecord, Recorder
from component.audit.quota import Refusals
from component.audit.record import Audit
from component.config import Settings
from component.kernel.options import all_models
from component.metrics.counters import Counters
from component.metrics.traces import Tracer, make_tracer
from component.models.observer import Observer
from component.store import Storage
from component.tasks.events import TaskRecords

_log = structlog.get_logger("component.policy")

_NOT_ADMITTED = "not admitted"
_HOW_TO_ADMIT = (
    "they are not admitted; to admit them, add their address to [agent] allowed_jids, or their"
    " domain to [agent] allowed_domains"
)
_MOST_LOGGED = 1_000
"""Maximum number of senders whose refusal is logged."""


class Monitoring(Observer):
    """Everything that a service reports to. It is the observer of the agents' loop, too.

    Args:
        providers: the provider of each model, as the tracer knows them.

    Attributes:
        recorder: the audit log; without one it drops everything.
        refusals: records refusals, many of one kind as one.
        counters: counts and durations, for metrics.
        full: returns why new work could not be recorded, and must not be accepted; None if it can.
        tasks: records the outcomes of requests to execute a skill, and of tasks.
    """

    def __init__(
        self,
        audit: Audit | None = None,
        tracer: Tracer | None = None,
        providers: dict[str, str] | None = None,
    ) -> None:
        self.audit = audit
        self._providers = {} if providers is None else providers
        self.recorder: Recorder = NoRecord() if audit is None else audit
        self.refusals = Refusals(self.recorder)
        self.counters = Counters()
        self.tasks = TaskRecords(self.recorder, self.refusals, self.counters)
        self._tracer = tracer or Tracer()
        self._logged: set[str] = set()
        self.full: Callable[[], str | None] = _never_full if audit is None else audit.full
        super().__init__(self.counters, self._tracer)

    def replace(self, settings: Settings) -> None:
        """Name the models of these settings in traces from now on."""
        self._providers.clear()
        self._providers.update(_providers(settings))

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Write the audit log until cancelled."""
        async with anyio.create_task_group() as group:
            if self.audit is not None:
                await group.start(self.audit.run)
            group.start_soon(self.refusals.run)
            task_status.started()

    def not_admitted(self, principal: str, *, can_be_admitted: bool = True) -> None:
        """Note that the policy refused a sender. The first time it is logged, with how to admit
        them, unless nobody can be admitted with this address.
        """
        if can_be_admitted and principal not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(principal)
            _log.info("refused a sender", sender=principal, hint=_HOW_TO_ADMIT)
        self.refused(principal, _NOT_ADMITTED)

    def refused(self, principal: str, why: str) -> None:
        """Note that a principal was refused. `why` is one of few constants: it is a label of a
        metric.
        """
        self.counters.refusals.add(why)
        self.refusals.refused(principal, why)

    async def close(self) -> None:
        """Send the traces that are not sent yet."""
        with anyio.CancelScope(shield=True):
            await self._tracer.close()


def _never_full() -> None:
    """Return None: nothing is recorded, so nothing can be full."""


def _providers(settings: Settings) -> Mapping[str, str]:
    """Return the provider of each model by its name, and under "" that of all others."""
    models = all_models(settings)
    main = models.get("llm")
    named = {one.model: one.provider for one in reversed([*models.values()]) if one.model}
    return named if main is None else {"": main.provider} | named


@asynccontextmanager
async def open_monitoring(settings: Settings, storage: Storage) -> AsyncIterator[Monitoring]:
    """Yield the monitoring of a service; `Monitoring.run` has to run within the context.

    Raises StorageError: the audit log cannot be read or written; TracesError: the extra for traces
    is missing.
    """
    providers = dict(_providers(settings))
    tracer = make_tracer(settings.traces, VERSION, providers)
    async with AsyncExitStack() as stack:
        audit = None
        if settings.audit.enabled:
            audit = await stack.enter_async_context(Audit.open(storage, settings.audit, VERSION))
        monitoring = Monitoring(audit, tracer, providers)
        stack.push_async_callback(monitoring.close)
        yield monitoring
