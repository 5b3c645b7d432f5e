"""The base of all subsystems: the catalog, and the open files and databases."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from component import system
from component.config import Settings
from component.kernel.catalog import Catalog
from component.kernel.memory import Memories, open_memories
from component.kernel.monitoring import Monitoring, open_monitoring
from component.kernel.options import agent_at
from component.models.protocol import MakeModel
from component.store import Storage
from component.store.contacts import StoppedContacts
from component.store.directory import home_of
from component.store.schema import Schema


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that are created before the first subsystem, and closed after the last one.

    Attributes:
        home: names this data directory among those that share a database.
        stopped: the contacts who want no unrequested messages.
        make_model: makes a model from its settings; None for the clients of their providers.
    """

    catalog: Catalog
    storage: Storage
    home: str
    stopped: StoppedContacts
    monitoring: Monitoring
    memories: Memories
    make_model: MakeModel | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the service."""
        return self.catalog.settings


@asynccontextmanager
async def open_environment(
    catalog: Catalog, schema: Schema, make_model: MakeModel | None = None
) -> AsyncIterator[Environment]:
    """Open the database, the audit log and the memory, and close them in reverse order.

    Raises StorageError: the data directory, or that of the memory, cannot be used; TracesError:
    the extra for traces is missing.
    """
    settings = catalog.settings
    where = settings.storage
    async with Storage.open(
        schema, where.path, postgres=where.postgres.get_secret_value()
    ) as storage:
        stopped = StoppedContacts(storage, agent_at(settings))
        await stopped.load()
        async with (
            open_monitoring(settings, storage) as monitoring,
            open_memories(settings, monitoring.recorder) as memories,
        ):
            yield Environment(
                catalog=catalog,
                storage=storage,
                home=await system.in_thread(home_of, storage.directory),
                stopped=stopped,
                monitoring=monitoring,
                memories=memories,
                make_model=make_model,
            )
