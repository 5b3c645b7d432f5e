"""The checks of `xmpp-agent doctor` about workers: whether their queues can be used, and whether
there are workers.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from anyio import to_thread

from component.kernel.check import Check
from component.settings import Settings
from component.skills.errors import SkillLoadError

if TYPE_CHECKING:
    from component.sources.workers.messages import Offered

_INSTALL = "needs the workers extra: pip install 'xmpp-agent-component[workers]'"


async def check_workers(settings: Settings) -> AsyncIterator[Check]:
    """Connect to each queue, and look for workers."""
    queues = [(f"workers {one.queue}", one.database, one.queue) for one in settings.workers]
    if settings.worker is not None:
        queues.append(("worker", settings.worker.database, settings.worker.queue))
    for name, database, queue in queues:
        try:
            found = await to_thread.run_sync(_offered, database.get_secret_value(), queue)
        except ImportError:
            yield Check(name, "failed", _INSTALL)
        except SkillLoadError as error:
            yield Check(name, "failed", str(error))
        else:
            yield _verdict(name, found, is_worker=name == "worker")


def _offered(database: str, queue: str) -> "list[Offered]":
    from component.sources.workers.statements import Statements  # noqa: PLC0415

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
