"""Fetches the files of messages, and stores them.

A file comes from a public server by HTTPS on one of the usual ports, or from the upload service of
the agent's own server or one that an admin names. Only these may be in a private network. They are
asked only for what is below the path of their files, so that nobody reaches anything else there.
Each person has a share of the downloads at a time.
"""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

import anyio
import msgspec
import structlog

from component import system
from component.agent import sentences
from component.agent.requests import SentFile, TurnRequest
from component.conversations.stored_files import FileRefusedError, StoredFile, StoredFiles
from component.features.files import refusals
from component.features.files.places import limits_of
from component.features.files.refusals import Refusal, shown_name
from component.features.files.settings import Files
from component.http.gate import (
    Access,
    HttpFailed,
    HttpGate,
    HttpLimits,
    HttpRefused,
    HttpRequest,
    HttpResponse,
    HttpTimeout,
    HttpTooLarge,
    Resolve,
    access_to,
)
from component.http.targets import target_of
from component.link.messages.inbound import Attachment
from component.memory.document_reader import DocumentError
from component.memory_directory.layout import SessionKey
from component.skills.calling import Threads
from component.store import StorageError
from component.store.outages import log_failure

_log = structlog.get_logger("component.files")

PORTS: Final = (443, 5281, 5443, 7443)
"""Of HTTPS, and of the upload services of Prosody, ejabberd and Openfire."""
_REDIRECTS: Final = 3
_KNOWN_S: Final = 3600.0
_UNKNOWN_S: Final = 60.0

OwnUpload: TypeAlias = Callable[[], Awaitable[str | None]]
"""Returns the URL of a file at the upload service of the agent's server; None if it is unknown."""
OnStored: TypeAlias = Callable[[SessionKey, TurnRequest, StoredFile], None]


class Downloads:
    """Gets files from where they may come from.

    Args:
        own_upload: is called if a URL is not one of a public server.
        tls_ca: certificates to trust for the own service, instead of the system's.
        resolve: resolves host names; the default asks the system.
    """

    def __init__(
        self,
        settings: Files,
        own_upload: OwnUpload,
        tls_ca: Path | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._settings = settings
        self._own_upload = own_upload
        self._tls_ca = tls_ca
        self._resolve = resolve
        self._own: str | None = None
        self._until = float("-inf")
        self._limits = HttpLimits(
            settings.timeout_s, response_bytes=settings.max_file_bytes, redirects=_REDIRECTS
        )

    async def get(self, sent: Attachment) -> bytes:
        """Return the content of a file. Raises Refusal."""
        name, seconds = shown_name(sent), self._settings.timeout_s
        try:
            response = await self._send(sent.url)
        except HttpTooLarge:
            raise Refusal(refusals.too_large(sent, self._settings)) from None
        except HttpRefused:
            raise Refusal(refusals.REFUSED.format(name=name)) from None
        except HttpTimeout:
            raise Refusal(refusals.SLOW.format(name=name, seconds=seconds)) from None
        except HttpFailed as error:
            raise Refusal(refusals.FAILED.format(name=name, reason=error)) from None
        if response.status != 200:
            sentence = refusals.MISSING if response.status in (404, 410) else refusals.STATUS
            raise Refusal(sentence.format(name=name, status=response.status))
        return response.body

    async def _send(self, url: str) -> HttpResponse:
        request = HttpRequest(url)
        known = next((one for one in self._settings.upload_urls if is_below(url, one)), None)
        if known is None:
            public = HttpGate(
                [Access("*", port=port) for port in PORTS], self._limits, resolve=self._resolve
            )
            try:
                return await public.send(request)
            except HttpRefused:
                own = await self._own_path()
                if own is None or not is_below(url, own):
                    raise
                known = own
        tls = None
        if self._tls_ca is not None:
            tls = ssl.create_default_context(cafile=str(self._tls_ca))
        limits = msgspec.structs.replace(self._limits, redirects=0)
        gate = HttpGate((access_to(known),), limits, resolve=self._resolve, tls=tls)
        return await gate.send(request)

    async def _own_path(self) -> str | None:
        """Return the beginning of the URLs of the own upload service."""
        if anyio.current_time() >= self._until:
            url = await self._own_upload()
            self._own = None if url is None else beginning_of(url)
            self._until = anyio.current_time() + (_UNKNOWN_S if url is None else _KNOWN_S)
        return self._own


def beginning_of(url: str) -> str:
    """Return what the URLs of all files of an upload service begin with. In the path of one, a part
    that is unique and the name of the file come last.
    """
    parts = urlsplit(url)
    first = parts.path.split("/")[1:-2][:1]
    return parts._replace(path="/".join(["", *first, ""]), query="", fragment="").geturl()


def is_below(url: str, beginning: str) -> bool:
    """Return whether a URL is one of the same server that begins like this."""
    try:
        target, known = target_of(url), target_of(beginning)
    except ValueError:
        return False
    path, above = unquote(target.path.partition("?")[0]), unquote(known.path)
    leads_up = not {".", ".."}.isdisjoint(path.replace("\\", "/").split("/"))
    return target.origin == known.origin and path.startswith(above) and not leads_up


class Fetcher:
    """Fetches and stores the files of messages; `on_stored` is called with each of them."""

    def __init__(
        self, settings: Files, files: StoredFiles, downloads: Downloads, on_stored: OnStored
    ) -> None:
        self._settings = settings
        self._files = files
        self._downloads = downloads
        self._on_stored = on_stored
        self._shares = Threads(settings.downloads, settings.downloads_per_person)

    async def fetch(self, key: SessionKey, request: TurnRequest) -> tuple[SentFile, ...]:
        """Fetch the files of a request that were not fetched yet, and return all of them."""
        found = list(request.files)

        async def one(at: int) -> None:
            try:
                found[at] = await self._fetch(key, request, at)
            except Refusal as refused:
                name, why = shown_name(found[at].sent), str(refused)
                found[at] = msgspec.structs.replace(found[at], name=name, unread=why)

        async with anyio.create_task_group() as group:
            for at, file in enumerate(request.files):
                if not file.is_fetched:
                    group.start_soon(one, at)
        return tuple(found)

    async def _fetch(self, key: SessionKey, request: TurnRequest, at: int) -> SentFile:
        """Fetch, store and read one file of a request. Raises Refusal."""
        sent, most = request.files[at].sent, refusals.MOST_FILES
        if at >= most:
            raise Refusal(refusals.TOO_MANY.format(name=shown_name(sent), most=most))
        refusals.check_offer(sent, self._settings)
        principal = str(request.principal)
        await self._shares.acquire(principal)
        try:
            data = await self._downloads.get(sent)
            await system.in_thread(refusals.check_content, sent, data)
            by, name = str(request.principal), refusals.file_name(sent, data)
            draft = StoredFile(name=name, by=by, url=sent.url, taint="file")
            folder = self._files.layout.folder(key)
            file = await self._files.add(folder, draft, data, limits_of(self._settings))
            self._on_stored(key, request, file)
            unread = refusals.unread(file, self._settings)
            if not unread and not file.media_type.startswith("image/"):
                unread = await self._read(folder, file)
        except FileRefusedError as error:
            raise Refusal(str(error)) from None
        except StorageError as error:
            log_failure(_log, "a file cannot be stored", error)
            raise Refusal(sentences.NO_FILES) from None
        finally:
            self._shares.release(principal)
        return SentFile(
            sent=sent,
            name=file.name,
            sha256=file.sha256,
            media_type=file.media_type,
            size=file.size,
            unread=unread,
        )

    async def _read(self, folder: Path, file: StoredFile) -> str:
        """Read the text of a document; return why that is impossible, or an empty text."""
        try:
            await self._files.text(folder, file)
        except DocumentError as error:
            return refusals.UNREADABLE.format(name=file.name, reason=error)
        return ""
