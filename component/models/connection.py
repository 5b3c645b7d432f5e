"""A request to a hosted model: timeouts, and the answer's stream.

The client takes a tenth of a second to import, so it is imported in a worker thread before the
first request, never when the service starts.
"""

import contextlib
from base64 import b64encode
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

import anyio
import msgspec

from component.models.adapter import AnswerReader
from component.models.answer_limits import EVENT_BYTES, LINES, WHOLE_BYTES, TooMuchError
from component.models.catalog import ModelTarget
from component.models.faults import Where
from component.models.protocol import ModelRefusedError

if TYPE_CHECKING:
    import httpx2

    from component.models.http_client import ModelClient

_EVENT = (b"data:", b"event:", b":")
_CONNECT_S = 10.0
_LAST_BYTES_S = 1.0
_ANTHROPIC_VERSION = "2026-10-21"


class StatusError(Exception):
    """The provider answers with a status that is not 2xx."""

    def __init__(self, response: "httpx2.Response") -> None:
        super().__init__(response.status_code)
        self.status = response.status_code
        self.headers = response.headers
        self.body = response.content


class UnreachableError(Exception):
    """There was no answer. The cause is the error of the client."""


class ModelConnection(msgspec.Struct, frozen=True):
    """A client for requests to one URL, with their header fields."""

    client: "ModelClient"
    where: Where
    url: "httpx2.URL"
    headers: Mapping[str, str]

    async def send(
        self, method: str, url: "httpx2.URL", content: bytes | None = None, *, stream: bool = False
    ) -> "httpx2.Response":
        """Send a request. Raises UnreachableError, StatusError, TooMuchError, and errors of httpx2
        while the body is read.
        """
        import httpx2  # noqa: PLC0415 - loaded by now

        extensions = {"timeout": {"connect": self.client.timeout.connect}}
        request = httpx2.Request(
            method, url, headers=self.headers, content=content, extensions=extensions
        )
        try:
            response = await self.client.send(request, stream=stream)
        except httpx2.HTTPError as error:
            raise UnreachableError from error
        if not response.is_success:
            try:
                await response.aread()
            finally:
                with anyio.CancelScope(shield=True):
                    await response.aclose()
            raise StatusError(response)
        return response

    async def ask(self, content: bytes, reader: AnswerReader, timeouts: "Timeouts") -> bool:
        """Send a request and read its answer; False if the answer is not known to be over.

        Raises what `send` and the reader raise, and ModelRefusedError.
        """
        with timeouts.scope:
            response = await self.send("POST", self.url, content, stream=True)
            try:
                return await self._read(response, reader, timeouts)
            finally:
                with anyio.CancelScope(shield=True):
                    await response.aclose()
        return False

    async def _read(
        self, response: "httpx2.Response", reader: AnswerReader, timeouts: "Timeouts"
    ) -> bool:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in ("text/html", "application/xhtml+xml"):
            raise ModelRefusedError(
                f"{self.where.url} answers with a web page: correct {self.where.section}.base_url"
            )
        # What came over an asynchronous client has an asynchronous stream.
        pieces = aiter(cast("httpx2.AsyncByteStream", response.stream))
        # Gateways send documents as streams, and streams as documents: the first byte decides.
        first = await _first_of(pieces)
        if first[:1] in b"{[" or (
            kind == "application/json" and not first.lstrip().startswith(_EVENT)
        ):
            reader.document(await _all_of(first, pieces))
            over = reader.draft.anything
        else:
            over = await _stream(first, pieces, reader, timeouts)
        with anyio.move_on_after(_LAST_BYTES_S), contextlib.suppress(TooMuchError):
            # Read to its end, the connection serves for the next call.
            async for _ in pieces:
                pass
        return over


def connect_model(target: ModelTarget, path: str = "") -> ModelConnection:
    """Make a client for requests to a path. Blocks for a tenth of a second."""
    import httpx2  # noqa: PLC0415 - see above

    from component.models.http_client import ModelClient  # noqa: PLC0415

    client = ModelClient(
        # A proxy of the environment knows nothing of this machine.
        trust_env=not target.is_loopback,
        # How long an answer may take is for `Timeouts` to decide.
        timeout=httpx2.Timeout(None, connect=min(_CONNECT_S, target.choice.timeout_s)),
        # Reading all certificates takes long, and without TLS there are none to check.
        verify=target.base_url.startswith("https:"),
        socket=target.socket,
    )
    headers = {
        "User-Agent": "xmpp-agent",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        **_authorization(target),
        **target.headers,
    }
    return ModelConnection(client, target.where, httpx2.URL(target.base_url + path), headers)


def _authorization(target: ModelTarget) -> dict[str, str]:
    """The header fields with the key. It goes where the settings say and nowhere else, since
    redirects are not followed.
    """
    key, url = target.where.key or "none", urlsplit(target.base_url)
    fields = {"Authorization": f"Bearer {key}"}
    if url.username or url.password:
        pair = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
        fields["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    if target.dialect == "messages":
        fields["Anthropic-Version"] = _ANTHROPIC_VERSION
        if not target.official:  # gateways and compatible servers know this field
            fields["X-Api-Key"] = key
    return fields


_COARSE_S = 0.05
"""Deadlines are moved when they change by at least this share of a timeout: there may be thousands
of events in a second."""


class Timeouts:
    """Cancels `scope` when an answer takes too long.

    Reasoning that keeps arriving extends the wait for the first token; silence does not.

    `first_s` are the seconds until the first token of the text or of a tool call, `between_s` those
    between two tokens, and `total_s` those for the whole answer.
    """

    def __init__(self, first_s: float, between_s: float, total_s: float) -> None:
        self.scope = anyio.CancelScope()
        self._between_s = between_s
        now = anyio.current_time()
        self._first = now + first_s
        self._last = now + total_s
        self._visible = False
        self._set(self._first)

    def heard(self, *, visible: bool) -> None:
        """Note that a token has arrived; `visible` says whether a text or a call has begun."""
        self._visible = visible
        deadline = anyio.current_time() + self._between_s
        if not visible:
            deadline = max(self._first, deadline)
        if abs(deadline - self.scope.deadline) > _COARSE_S * self._between_s:
            self._set(deadline)

    def _set(self, deadline: float) -> None:
        self.scope.deadline = min(deadline, self._last)

    @property
    def exceeded(self) -> str:
        """The setting whose timeout is the next one to pass, or has passed."""
        if self.scope.deadline >= self._last:
            return "timeout_s"
        return "token_timeout_s" if self._visible else "first_token_timeout_s"


async def _first_of(pieces: AsyncIterator[bytes]) -> bytes:
    """Read the first bytes, without a byte order mark; none if there are none."""
    first = b""
    async for piece in pieces:
        first += piece
        if not BOM_UTF8.startswith(first):
            break
    return first.removeprefix(BOM_UTF8)


async def _stream(
    first: bytes, pieces: AsyncIterator[bytes], reader: AnswerReader, timeouts: Timeouts
) -> bool:
    """Read a stream; True if it has said itself that it is over. Raises as AnswerReader does."""
    events = Events()
    piece: bytes | None = first
    while piece is not None:
        found = events.feed(piece)
        for data in found:
            if reader.event(data):
                return True
        if found and reader.draft.began:
            timeouts.heard(visible=reader.draft.anything)
        piece = await anext(pieces, None)
    return any(reader.event(data) for data in events.end())


async def _all_of(first: bytes, pieces: AsyncIterator[bytes]) -> bytes:
    data = bytearray(first)
    async for piece in pieces:
        data += piece
        if len(data) > WHOLE_BYTES:
            raise TooMuchError(f"an answer of more than {WHOLE_BYTES:,} bytes in one piece")
    return bytes(data)


class Events:
    """Parses a stream in arbitrary pieces, and returns the data of complete events.

    Lines end with LF or CRLF; comments and other fields are passed over, and so is a byte order
    mark at the beginning.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the line that has no end yet, in pieces
        self._rest_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._lines = 0
        self._begun = False  # whether the first line was read

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next piece. Raises TooMuchError beyond `EVENT_BYTES` or `LINES`."""
        found: list[bytes] = []
        if b"\n" not in piece:
            self._rest.append(piece)
            self._rest_bytes += len(piece)
            self._check()
            return found
        if self._rest:
            piece = b"".join((*self._rest, piece))
            self._rest = []
        lines = piece.split(b"\n")
        last = lines.pop()
        self._lines += len(lines)
        if self._lines > LINES:
            raise TooMuchError(f"more than {LINES:,} lines")
        self._rest_bytes = len(last)
        if last:
            self._rest.append(last)
        if lines and not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]  # noqa: PLW2901 - the line without its end
            if line.startswith(b"data:"):
                data = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(data)
                self._data_bytes += len(data) + 1
                if self._data_bytes > EVENT_BYTES:
                    self._check()
            elif not line and self._data:
                found.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
                self._data_bytes = 0
        if last:
            self._check()
        return found

    def _check(self) -> None:
        if self._rest_bytes + self._data_bytes > EVENT_BYTES:
            raise TooMuchError(f"an event of more than {EVENT_BYTES:,} bytes")

    def end(self) -> list[bytes]:
        """Return the event that the end of the stream completes: some servers leave it open."""
        return self.feed(b"\n\n")
