"""Skills of other machines: workers that take their calls from a queue."""

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from component import system
from component.features.feature import Feature, Opened
from component.features.workers.settings import QUEUES, WORKER, WorkersEntry
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.skills.errors import SkillLoadError
from component.skills.sources import ExtraSource, SkillSource

if TYPE_CHECKING:
    from component.features.workers.messages import Offered

_INSTALL: Final = "needs the workers extra: pip install 'xmpp-agent-component[workers]'"


def workers_source(entry: WorkersEntry) -> ExtraSource:
    """Return the source of the skills of the workers of a queue."""
    module = "component.features.workers.serving"
    return ExtraSource(f"workers.{entry.queue}", module, f"[[workers]] {_INSTALL}.", entry)


class WorkersFeature(Feature):
    """The queues of workers."""

    reloads: ClassVar = ("workers",)

    def remote_sources(self) -> Iterable[SkillSource]:
        """Return a source of skills for each queue."""
        return [workers_source(entry) for entry in self.settings[QUEUES]]

    def open(self, kernel: Kernel) -> Opened:
        """Contribute nothing else."""
        return Opened()

    async def availability(self) -> AsyncIterator[Check]:
        """Check whether each queue can be used, and whether it has workers."""
        entries, worker = self.settings[QUEUES], self.settings[WORKER]
        queues = [(f"workers {one.queue}", one.database, one.queue) for one in entries]
        if worker is not None:
            queues.append(("worker", worker.database, worker.queue))
        for name, database, queue in queues:
            try:
                found = await system.in_thread(_offered, database.get_secret_value(), queue)
            except ImportError:
                yield Check(name, "failed", _INSTALL)
            except SkillLoadError as error:
                yield Check(name, "failed", str(error))
            else:
                yield _verdict(name, found, is_worker=name == "worker")


def _offered(database: str, queue: str) -> "list[Offered]":
    from component.features.workers.statements import Statements  # noqa: PLC0415

    statements = Statements.open(database, queue, 0, "")
    try:
        return statements.offered({})
    finally:
        statements.close()


def _verdict(name: str, found: "list[Offered]", *, is_worker: bool) -> Check:
    workers = {worker for one in found for worker in one.workers}
    if workers:
        skills = len({one.name for one in found if one.workers})
        return Check(name, "ok", f"{', '.join(sorted(workers))}: {skills} skills")
    text = "the queue can be used, and no worker is running"
    return Check(name, "ok" if is_worker else "warning", text)


FEATURE = WorkersFeature
