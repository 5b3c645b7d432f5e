"""Serves files over HTTP, as an ASGI application.

A file is at an address that nobody can guess. What a browser could run is only downloaded: only
types of a short list are named, and a page may load and run nothing.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import anyio
import structlog

from component.features.shared_files import rows
from component.features.shared_files.place import Place
from component.features.shared_files.rows import SharedFile
from component.features.shared_files.settings import SharedFiles
from component.kernel.http_routes import Receive, Send, respond
from component.kernel.rate import Rate
from component.skills.outputs import File
from component.store import Storage, StorageError
from component.uploads import file_name

_log = structlog.get_logger("component.files")

PREFIX: Final = "/files/"
_PATH: Final = re.compile(r"/files/([A-Za-z0-9_-]{32})/[^/]{1,300}")
_SHOWN: Final = frozenset(
    {
        *("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"),
        *("audio/mpeg", "audio/ogg", "audio/mp4", "video/mp4", "video/webm", "text/plain"),
    }
)
"""Types that browsers show themselves, and that contain nothing to run."""
_RANGE: Final = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")
_CHUNK_BYTES: Final = 65_536
_DOWNLOAD_S: Final = 900.0
"""Seconds in which a file has to be fetched, so that slow clients do not hold all places."""
_CACHED_S: Final = 3600
_RETRY: Final = (b"retry-after", b"5")


class FilesApp:
    """The ASGI application: GET and HEAD of files, also of a range."""

    def __init__(self, storage: Storage, place: Place, settings: SharedFiles) -> None:
        self._storage = storage
        self._place = place
        self._rate = Rate(settings.requests_per_minute)
        self._downloads = anyio.CapacityLimiter(settings.downloads_total)

    async def __call__(self, scope: Mapping[str, Any], _receive: Receive, send: Send) -> None:
        """Answer one request; see `HttpApp`."""
        head = scope["method"] == "HEAD"
        answer = partial(respond, send, head=head)
        if scope["method"] not in ("GET", "HEAD"):
            await answer(405, "Files are fetched with GET.\n", (b"allow", b"GET, HEAD"))
            return
        found = None
        if (path := _PATH.fullmatch(scope["path"])) is not None:
            try:
                found = await self._storage.read(partial(rows.find, id_=path[1]))
            except StorageError as error:
                _log.warning("a file cannot be looked up", reason=str(error))
                await answer(503, "Try again later.\n", _RETRY)
                return
        if found is None:
            await answer(404, "There is no such file, or it has expired.\n")
            return
        # Only addresses of files count, so that nobody who guesses addresses keeps others out.
        wait_s = self._rate.take(anyio.current_time())
        if wait_s:
            retry = (b"retry-after", b"%d" % max(1, round(wait_s)))
            await answer(429, "There are too many requests.\n", retry)
            return
        file, left_s = found
        try:
            self._downloads.acquire_on_behalf_of_nowait(scope_key := object())
        except anyio.WouldBlock:
            await answer(503, "Too many files are being fetched.\n", _RETRY)
            return
        try:
            with anyio.move_on_after(_DOWNLOAD_S):
                await self._serve(file, left_s, scope, send)
        finally:
            self._downloads.release_on_behalf_of(scope_key)

    async def _serve(
        self, file: SharedFile, left_s: int, scope: Mapping[str, Any], send: Send
    ) -> None:
        head = scope["method"] == "HEAD"
        path = self._place.path(file.id)
        try:
            opened = await anyio.open_file(path, "rb")
        except OSError as error:
            _log.error(
                "the content of a file is missing: instances that share a database need one"
                " shared_files.directory",
                file=str(path),
                reason=error.strerror,
            )
            await respond(send, 404, "The file is missing.\n", head=head)
            return
        async with opened:
            given = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
            wanted = _range_of(file, given)
            if wanted is None:
                total = (b"content-range", b"bytes */%d" % file.size)
                await respond(send, 416, "There is no such range.\n", total, head=head)
                return
            first, last = wanted
            length = last - first + 1
            headers = [*headers_of(file, left_s), (b"content-length", b"%d" % length)]
            is_part = length != file.size
            if is_part:
                headers.append((b"content-range", b"bytes %d-%d/%d" % (first, last, file.size)))
            status = 206 if is_part else 200
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await opened.seek(first)
            while length > 0 and not head:
                chunk = await opened.read(min(length, _CHUNK_BYTES))
                if not chunk:
                    break
                length -= len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def headers_of(file: SharedFile, left_s: int) -> list[tuple[bytes, bytes]]:
    """Return the headers that every answer with a file has."""
    kind = file.media_type.partition(";")[0].strip().lower()
    is_shown = kind in _SHOWN
    shown = kind if is_shown else "application/octet-stream"
    if shown == "text/plain":
        shown += "; charset=utf-8"
    plain = file_name(File(b"", kind, file.name)).replace('"', "_").replace("\\", "_")
    how = "inline" if is_shown else "attachment"
    named = f"{how}; filename=\"{plain}\"; filename*=UTF-8''{quote(file.name, safe='')}"
    # The viewer of PDF files in browsers does not run in a sandboxed page.
    sandbox = "" if kind == "application/pdf" else "; sandbox"
    texts = {
        "content-type": shown,
        "content-disposition": named,
        "x-content-type-options": "nosniff",
        "content-security-policy": f"default-src 'none'{sandbox}",
        "referrer-policy": "no-referrer",
        "cache-control": f"private, max-age={max(0, min(left_s, _CACHED_S))}",
        "etag": f'"{file.sha256}"',
        "accept-ranges": "bytes",
        # Web clients fetch files themselves; the address is the permission.
        "access-control-allow-origin": "*",
    }
    return [(name.encode(), value.encode("latin-1")) for name, value in texts.items()]


def _range_of(file: SharedFile, headers: Mapping[bytes, str]) -> tuple[int, int] | None:
    """Return the first and the last byte that are asked for (RFC 9110 §14); None if there are none.
    Several ranges, and such of another unit, are answered with the whole file.
    """
    whole = (0, file.size - 1)
    found = _RANGE.fullmatch(headers.get(b"range", "").replace(" ", ""))
    if found is None or headers.get(b"if-range", f'"{file.sha256}"') != f'"{file.sha256}"':
        return whole
    first, last = found.groups()
    if not first:
        if not last:
            return whole
        return (max(0, file.size - int(last)), file.size - 1) if int(last) else None
    if int(first) >= file.size or (last and int(last) < int(first)):
        return None
    return int(first), min(int(last), file.size - 1) if last else file.size - 1
