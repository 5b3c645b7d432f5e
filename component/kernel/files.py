"""Gives files of results by reference, where the server has a place for them."""

import ssl
from typing import TYPE_CHECKING

from component.config import Settings
from component.kernel.stream import StreamSubsystem
from component.skills.outputs import File, Link
from xep.jid import JID

if TYPE_CHECKING:
    from component.uploads import Uploads


class FileSubsystem:
    """Uploads files to the server's upload service.

    Args:
        settings: name the service, or the server that is searched for one.
        stream: asks for slots.
    """

    def __init__(self, settings: Settings, stream: StreamSubsystem) -> None:
        self._settings = settings
        self._stream = stream
        self._uploads: Uploads | None = None

    async def share(self, file: File) -> Link:
        """Put a file where others can get it. Raises CannotShare."""
        if self._uploads is None:
            # Imported with the first file: the service starts faster without.
            from component.uploads import Uploads  # noqa: PLC0415

            server = self._settings.server.parent_domain
            named = self._settings.uploads.address
            self._uploads = Uploads(
                self._stream.get,
                JID.parse(server) if server else None,
                None if named is None else JID.parse(named),
                self._tls,
            )
        return await self._uploads.share(file)

    def _tls(self) -> ssl.SSLContext | None:
        ca = self._settings.server.tls_ca
        return None if ca is None else ssl.create_default_context(cafile=str(ca))
