"""A client that sends files, and the server from which they are fetched."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from component.models.messages import ImagePart
from component.models.protocol import ModelRequest
from tests.component.web_server import Request, Response, Server, serving
from tests.kit import AGENT, Kit, Peer, Script, service
from tests.waiting import eventually

JULIET = "juliet@capulet.example/balcony"
PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 40


class Uploads:
    """An upload service.

    Attributes:
        files: what it answers for each path below `/up/`.
        asked: is set by the first request.
    """

    def __init__(self, files: dict[str, bytes | Response]) -> None:
        self.server = Server()
        self.files = files
        self.asked = anyio.Event()

    def answer(self, request: Request) -> Response:
        """Answer a request."""
        self.asked.set()
        found = self.files.get(request.path.removeprefix("/up/"), Response(status=404))
        return found if isinstance(found, Response) else Response(found)

    def url(self, name: str) -> str:
        return f"{self.server.url}/up/{name}"


@asynccontextmanager
async def uploading(
    directory: Path,
    files: Mapping[str, bytes | Response],
    model: Script,
    *,
    sections: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Kit, Uploads]]:
    """Run a service that takes files of an upload service; `settings` are those of `[files]`."""
    uploads = Uploads(dict(files))
    async with serving(uploads.answer) as uploads.server:
        given: dict[str, Any] = {
            "agent": {"notice": ""},
            "files": {"upload_urls": [uploads.url("")]} | settings,
            **(sections or {}),
        }
        async with service(directory, given, model=model) as kit:
            yield kit, uploads
            await eventually(lambda: _is_all_answered(kit))  # a stop would wait for that


async def _is_all_answered(kit: Kit) -> bool:
    left = await kit.kernel.storage.read(
        lambda database: database.execute("SELECT count(*) FROM turns").fetchone()
    )
    return left == (0,)


async def send(peer: Peer, urls: Sequence[str], text: str = "", *, id_: str = "") -> None:
    """Send files as many clients do: the body is the URL, or the text."""
    links = "".join(f"<x xmlns='jabber:x:oob'><url>{url}</url></x>" for url in urls)
    body = text or urls[0]
    extra = f" id='{id_}'" if id_ else ""
    await peer.send(
        f"<message to='{AGENT}' type='chat'{extra}><body>{body}</body>{links}</message>"
    )


def shared(url: str, name: str, *, size: int | None = None, digest: str = "") -> str:
    """Return a message of XEP-0447."""
    stated = "" if size is None else f"<size>{size}</size>"
    stated += f"<hash xmlns='urn:xmpp:hashes:2' algo='sha-256'>{digest}</hash>" if digest else ""
    return (
        f"<message to='{AGENT}' type='chat'><body>Read it.</body>"
        "<file-sharing xmlns='urn:xmpp:sfs:0'><file xmlns='urn:xmpp:file:metadata:0'>"
        f"<name>{name}</name>{stated}</file><sources><url-data"
        f" xmlns='http://jabber.org/protocol/url-data' target='{url}'/></sources></file-sharing>"
        "</message>"
    )


def images(request: ModelRequest) -> list[bytes]:
    """Return the images that a model was shown."""
    return [
        part.data
        for message in request.messages
        for part in message.parts
        if isinstance(part, ImagePart)
    ]
