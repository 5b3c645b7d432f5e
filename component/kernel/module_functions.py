"""Gives the skills of `[skills] modules` the functions of the service that they declare."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from component.config import Settings
from component.skills import Context, Skill
from component.store.storage import Storage

if TYPE_CHECKING:
    from component.skill_directories.host_functions import Functions, SendMessageOf, Services

_BUILT_IN = "component."


class ModuleFunctions:
    """Makes the functions for the calls of skills that are trusted.

    Args:
        storage: keeps what skills remember; None on a worker, which keeps nothing.
        messages: returns what sends the messages of skills; None on a worker.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage | None,
        messages: Callable[[], "SendMessageOf | None"],
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._messages = messages
        self._made: dict[tuple[str, tuple[str, ...]], Functions] = {}

    def replace(self, settings: Settings) -> None:
        """Give calls what these settings say from now on."""
        self._settings = settings
        self._made.clear()

    def provide(self, skill: Skill, context: Context) -> None:
        """Give the context of a call what its skill declares. Never waits."""
        if not skill.capabilities or skill.granted is not None:
            return  # it declares nothing, or whatever runs it provides what is approved
        if not skill.wants_context or skill.source.startswith(_BUILT_IN):
            return
        key = (skill.name, skill.capabilities)
        make = self._made.get(key)
        if make is None:
            # Imported only where a skill uses the functions.
            from component.skill_directories.host_functions import functions_for  # noqa: PLC0415
            from component.skills.capabilities import capabilities_of  # noqa: PLC0415

            services = skill_services(self._settings, self._storage, self._messages)
            make = functions_for(skill.name, capabilities_of(skill.capabilities), services)
            self._made[key] = make
        context.provide(make(context))


def skill_services(
    settings: Settings,
    storage: Storage | None,
    messages: Callable[[], "SendMessageOf | None"],
) -> "Services":
    """Return what the service has for skills."""
    from component.skill_directories.host_functions import Credential, Services  # noqa: PLC0415

    credentials = {
        name: Credential(
            value=one.value.get_secret_value(),
            hosts=one.hosts,
            header=one.header,
            prefix=one.prefix,
        )
        for name, one in settings.skills.credentials.items()
    }
    return Services(
        credentials=credentials,
        storage=storage,
        messages=messages,
        compiled=settings.storage.path / "compiled-skills",
    )
