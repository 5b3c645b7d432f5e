"""Files that the agents give people, served by the service itself."""

from collections.abc import AsyncIterator
from typing import ClassVar

from component.features.feature import Feature, Opened
from component.features.shared_files import is_used
from component.features.shared_files.app import PREFIX, FilesApp
from component.features.shared_files.place import Place
from component.features.shared_files.settings import SHARED_FILES
from component.kernel.check import Check, check_url
from component.kernel.http_routes import HttpRoute
from component.kernel.kernel import Kernel
from component.skills.outputs import File, Link
from component.tasks.request import Request


class SharedFilesFeature(Feature):
    """Keeps files, and serves them."""

    reloads: ClassVar = ("http.port", "http.url", "shared_files")

    def open(self, kernel: Kernel) -> Opened:
        """Make the place of the files, and what serves them. If the settings do not turn it on any
        more, the files of before are only deleted when they expire.
        """
        settings = self.settings[SHARED_FILES]
        directory = settings.directory or self.settings.storage.path / "shared-files"
        place = Place(kernel.storage, directory, self.settings.http.url, settings)
        agent_at = kernel.stream.addresses.agent_at

        async def share(file: File, request: Request) -> Link:
            return await place.keep(file, agent_at(request.target), request.principal)

        if not is_used(self.settings):
            return Opened(forget=place.forget, loops=(place.run,))
        return Opened(
            http_routes=(HttpRoute(PREFIX, FilesApp(kernel.storage, place, settings)),),
            share=share,
            forget=place.forget,
            loops=(place.run,),
        )

    async def availability(self) -> AsyncIterator[Check]:
        """Yield whether the address of the files can be reached."""
        if is_used(self.settings):
            yield await check_url("shared files", self.settings.http.url)


FEATURE = SharedFilesFeature
