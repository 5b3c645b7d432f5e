"""The answers of the scripted endpoint, one class for each kind of answer and failure, in the
dialect in which it is asked.

An answer plays itself on an `Exchange`, which is one HTTP request and the way back.
"""

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import anyio

from tests.component.models import wire
from tests.component.models.wire import Spoken, spread

Json = dict[str, Any]
_COUNTER = itertools.count(1)
_STOPPED = {"length": "max_tokens", "content_filter": "refusal"}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Exchange(Protocol):
    """One request, and the methods to answer it."""

    body: Json
    path: str

    async def head(
        self, status: int = 200, content_type: str = ..., headers: Mapping[str, str] = ...
    ) -> None:
        """Send the head of the response."""

    async def data(self, data: bytes) -> None:
        """Send a part of the body."""

    async def end(self) -> None:
        """End the body."""

    async def gone(self) -> None:
        """Wait until the client has disconnected."""

    def cut(self) -> None:
        """Close the connection when the answer returns, at any point of the body."""


class Answer(Protocol):
    """An action of the endpoint."""

    async def play(self, exchange: Exchange) -> None:
        """Do it."""


def sse(value: Any) -> bytes:
    """One event of a stream."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"data: {text}\n\n".encode()


@dataclass
class _Said:
    """The base class of answers of a model.

    finish: the finish_reason, if not the natural one.
    usage: tokens (in, out), told at the end when asked for; None: it never tells.
    pause_s: how long it waits before each piece.
    """

    finish: str | None = field(default=None, kw_only=True)
    usage: tuple[int, int] | None = field(default=(11, 7), kw_only=True)
    pause_s: float = field(default=0, kw_only=True)

    def deltas(self) -> Iterator[Json]:
        raise NotImplementedError

    def message(self) -> Json:
        raise NotImplementedError

    def parts(self) -> list[Any]:
        raise NotImplementedError

    def spoken(self, finishes: Mapping[str, str]) -> Spoken:
        tokens_in, tokens_out = self.usage or (0, 0)
        return Spoken(
            self.parts(),
            pieces=getattr(self, "pieces", 3),
            finish=finishes.get(self.finish or ""),
            usage={"input_tokens": tokens_in, "output_tokens": tokens_out} if self.usage else None,
        )

    def frames(self, exchange: Exchange) -> list[bytes]:
        """All events of the stream, in the dialect of the request."""
        model = exchange.body.get("model", "")
        if exchange.path.endswith("/messages"):
            spoken = self.spoken(_STOPPED)
            return [wire.event(one) for one in wire.message_events(spoken, model)]
        if exchange.path.endswith("/responses"):
            spoken = self.spoken(_INCOMPLETE)
            return [wire.event(one) for one in wire.response_events(spoken, model)]
        return [*self.events(exchange.body), sse("[DONE]")]

    def document(self, exchange: Exchange) -> Json:
        """The answer as one document, in the dialect of the request."""
        model = exchange.body.get("model", "")
        if exchange.path.endswith("/messages"):
            return wire.message(self.spoken(_STOPPED), model)
        if exchange.path.endswith("/responses"):
            return wire.response(self.spoken(_INCOMPLETE), model)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": None} | self.message(),
            "finish_reason": self.finish or self.natural,
        }
        whole = self._frame(exchange.body, "chat.completion") | {"choices": [choice]}
        return whole | {"usage": self._used()}

    @property
    def natural(self) -> str:
        return "stop"

    def _frame(self, body: Json, kind: str) -> Json:
        return {
            "id": f"chatcmpl-{next(_COUNTER)}",
            "object": kind,
            "created": int(time.time()),
            "model": body.get("model", ""),
        }

    def _used(self) -> Json:
        tokens_in, tokens_out = self.usage or (0, 0)
        return {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }

    def events(self, body: Json) -> Iterator[bytes]:
        """The events of the stream, without the last one."""
        frame = self._frame(body, "chat.completion.chunk")

        def chunk(delta: Json, finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return sse(frame | {"choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        for delta in self.deltas():
            yield chunk(delta)
        yield chunk({}, self.finish or self.natural)
        if self.usage and (body.get("stream_options") or {}).get("include_usage"):
            yield sse(frame | {"choices": [], "usage": self._used()})

    async def play(self, exchange: Exchange) -> None:
        if not exchange.body.get("stream"):
            await exchange.head(content_type="application/json")
            await exchange.data(json.dumps(self.document(exchange)).encode())
            return await exchange.end()
        await exchange.head()
        for event in self.frames(exchange):
            if self.pause_s:
                await anyio.sleep(self.pause_s)
            await exchange.data(event)
        return await exchange.end()


@dataclass
class Text(_Said):
    """A text in approximately so many pieces."""

    text: str
    pieces: int = 3

    def deltas(self) -> Iterator[Json]:
        for piece in spread(self.text, self.pieces):
            yield {"content": piece}

    def message(self) -> Json:
        return {"content": self.text}

    def parts(self) -> list[Any]:
        return [self.text]


class Calls(_Said):
    """Calls of tools, each (name, arguments) or (name, arguments, id); arguments may be any text.

    text: what is said before them.
    pieces: about how many pieces the arguments of each come in.
    ids: False: the server gives none.
    repeat_name: every piece has name and id, as some servers do it.
    indexed: False: no index, as some servers do it; then each call must be one piece.
    """

    def __init__(
        self,
        *calls: tuple[str, Any] | tuple[str, Any, str],
        text: str = "",
        pieces: int = 2,
        ids: bool = True,
        repeat_name: bool = False,
        indexed: bool = True,
        **said: Any,
    ) -> None:
        super().__init__(**said)
        self.calls = calls
        self.text = text
        self.pieces = pieces
        self.ids = ids
        self.repeat_name = repeat_name
        self.indexed = indexed

    @property
    def natural(self) -> str:
        return "tool_calls"

    def _each(self) -> Iterator[tuple[str, str, str]]:
        for call in self.calls:
            id_ = call[2] if len(call) == 3 else f"call_{next(_COUNTER)}"
            arguments = call[1] if isinstance(call[1], str) else json.dumps(call[1])
            yield id_ if self.ids else "", call[0], arguments

    def deltas(self) -> Iterator[Json]:
        if self.text:
            yield {"content": self.text}
        for index, (id_, name, arguments) in enumerate(self._each()):
            head: Json = {"type": "function", "function": {"name": name}}
            if self.ids:
                head["id"] = id_
            place = {"index": index} if self.indexed else {}
            for i, piece in enumerate(spread(arguments, self.pieces) or [""]):
                this = head if i == 0 or self.repeat_name else {"function": {}}
                function = this["function"] | {"arguments": piece}
                yield {"tool_calls": [place | this | {"function": function}]}

    def message(self) -> Json:
        calls = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id_, name, arguments in self._each()
        ]
        return {"content": self.text or None, "tool_calls": calls}

    def parts(self) -> list[Any]:
        calls = [("call", id_, name, arguments) for id_, name, arguments in self._each()]
        return [*([self.text] if self.text else []), *calls]


@dataclass
class Chunks:
    """A stream of exactly these chunks, for peculiarities of some servers."""

    chunks: Sequence[Any]
    done: bool = True

    async def play(self, exchange: Exchange) -> None:
        await exchange.head()
        for chunk in self.chunks:
            await exchange.data(sse(chunk))
        if self.done:
            await exchange.data(sse("[DONE]"))
        await exchange.end()


@dataclass
class Events:
    """A stream of these events of Messages or Responses."""

    events: Sequence[Json]

    async def play(self, exchange: Exchange) -> None:
        await exchange.head()
        for one in self.events:
            await exchange.data(wire.event(one))
        await exchange.end()


@dataclass
class Refuse:
    """An error.

    retry_after: the header, in seconds or as it stands.
    body: instead of the usual error object; a text is sent as text/html.
    """

    status: int
    message: str = "It was refused."
    code: str | None = None
    type: str | None = None
    retry_after: float | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    async def play(self, exchange: Exchange) -> None:
        headers = dict(self.headers)
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        said = {"message": self.message, "type": self.type, "param": None, "code": self.code}
        body = {"error": said} if self.body is None else self.body
        html = isinstance(body, str)
        await exchange.head(self.status, "text/html" if html else "application/json", headers)
        await exchange.data((body if isinstance(body, str) else json.dumps(body)).encode())
        await exchange.end()


Dialect = Literal[
    "openai", "vllm", "vllm-old", "llamacpp", "ollama", "anthropic", "openrouter", "openrouter-raw"
]
_OVERFLOWS: Mapping[Dialect, tuple[int, Json]] = {
    "openai": (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, your"
                " messages resulted in 9001 tokens. Please reduce the length of the messages.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
    ),
    "vllm": (
        400,
        {
            "error": {
                "message": "'max_tokens' or 'max_completion_tokens' is too large: 1024. This"
                " model's maximum context length is 8192 tokens and your request has 8000 input"
                " tokens (1024 > 8192 - 8000).",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        },
    ),
    "vllm-old": (
        400,
        {
            "object": "error",
            "message": "The decoder prompt (length 9001) is longer than the maximum model length of"
            " 8192.",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    "llamacpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9001,
                "n_ctx": 8192,
            }
        },
    ),
    "ollama": (
        400,
        {
            "error": {
                "message": "input length exceeds the context length",
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        },
    ),
    "anthropic": (
        400,
        {
            "error": {
                "code": "invalid_request_error",
                "message": "prompt is too long: 208310 tokens > 200000 maximum",
                "type": "invalid_request_error",
                "param": None,
            }
        },
    ),
    "openrouter": (
        400,
        {
            "error": {
                "message": "This endpoint's maximum context length is 8192 tokens. However, you"
                " requested about 9001 tokens. Please reduce the length of either one.",
                "code": 400,
            }
        },
    ),
    "openrouter-raw": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": '{"error":{"code":"context_length_exceeded"}}'},
            }
        },
    ),
}
DIALECTS = tuple(_OVERFLOWS)


@dataclass
class Overflow:
    """The error of this server for too many tokens."""

    dialect: Dialect = "openai"

    async def play(self, exchange: Exchange) -> None:
        status, body = _OVERFLOWS[self.dialect]
        await Refuse(status, body=body).play(exchange)


class _PartOf:
    """So many events of an answer; None: not even the head of the response."""

    def __init__(self, after: int | None = None, of: _Said | None = None) -> None:
        self.after = after
        self.of = of or Text("This is said before something happens.", pieces=6)

    async def begin(self, exchange: Exchange) -> None:
        if self.after is not None:
            await exchange.head()
            for event in self.of.frames(exchange)[:-1][: self.after]:
                await exchange.data(event)


class Stall(_PartOf):
    """Silence after so many events of an answer, until the client disconnects."""

    async def play(self, exchange: Exchange) -> None:
        await self.begin(exchange)
        await exchange.gone()


class Break(_PartOf):
    """The connection closes after so many events of an answer."""

    async def play(self, exchange: Exchange) -> None:
        await self.begin(exchange)
        exchange.cut()


class End(_PartOf):
    """The response ends properly after so many events, but the answer does not."""

    async def play(self, exchange: Exchange) -> None:
        await self.begin(exchange)
        await exchange.end()


class Hold(_PartOf):
    """An answer that pauses after so many events until `release` is set, or the client is gone.

    `held` is set when it pauses.
    """

    def __init__(self, of: _Said, release: anyio.Event, after: int | None = None) -> None:
        super().__init__(after, of)
        self.release = release
        self.held = anyio.Event()

    async def play(self, exchange: Exchange) -> None:
        await self.begin(exchange)
        self.held.set()
        async with anyio.create_task_group() as group:

            async def hung_up() -> None:
                await exchange.gone()
                group.cancel_scope.cancel()

            group.start_soon(hung_up)
            await self.release.wait()
            group.cancel_scope.cancel()
        if not self.release.is_set():
            return
        if self.after is None:
            await exchange.head()
        for event in self.of.frames(exchange)[self.after or 0 :]:
            await exchange.data(event)
        await exchange.end()


@dataclass
class Garbage:
    """These bytes, with that type."""

    data: bytes
    content_type: str = "text/event-stream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    async def play(self, exchange: Exchange) -> None:
        await exchange.head(self.status, self.content_type, self.headers)
        await exchange.data(self.data)
        await exchange.end()
