"""A model behind any endpoint that speaks OpenAI's chat completions, through the openai SDK.

The SDK makes the connection and the request; the stream is read here, because the objects that it
makes of every chunk took twice the time of all the rest. It is imported by the first call: that
takes longer than starting the service.
"""

import contextlib
import importlib.util
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import anyio
import structlog

from component.models import call_ids, chat_wire
from component.models.answer_limits import WHOLE_BYTES, TooMuchError
from component.models.catalog import Target
from component.models.dialect import Dialect
from component.models.faults import Fault, read_fault
from component.models.gathering import Gathering
from component.models.protocol import (
    Completion,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    OnText,
    ToolCall,
    UnusableAnswerError,
    Usage,
)
from component.models.retry_after import retry_after_s
from component.models.sse import Events
from component.models.token_estimate import PER_MESSAGE, estimate
from component.models.tolerant_json import BadJSONError
from component.models.tool_names import ToolNames
from component.models.usage import Figures

if TYPE_CHECKING:
    import httpx2
    import openai

_log = structlog.get_logger("component.models")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0
_CONNECT_S = 10.0
_LAST_BYTES_S = 1.0
_LOOPBACK = ("localhost", "127.", "::1")
_INSTALL = "pip install 'xmpp-agent-component[llm]'"


def require_sdk(provider: str) -> None:
    """Look whether the SDK is there, without loading it. Raises ModelRefusedError."""
    try:
        found = importlib.util.find_spec("openai") is not None
    except ValueError:
        found = False
    if not found:
        raise ModelRefusedError(f"models of the provider {provider} need the extra llm: {_INSTALL}")


def connect(target: Target) -> "openai.AsyncOpenAI":
    """Load the SDK, for half a second and more, and make a client for a model.

    Raises ModelRefusedError: the SDK is not installed.
    """
    require_sdk(target.choice.provider)
    import httpx2  # noqa: PLC0415 - see above
    import openai  # noqa: PLC0415

    from component.models.http_client import Client  # noqa: PLC0415

    url = urlsplit(target.base_url)
    silent_s = target.choice.timeout_s / 2
    return openai.AsyncOpenAI(
        base_url=target.base_url,
        # One it has to have, or it takes that of OpenAI out of the environment.
        api_key=target.where.key or "none",
        max_retries=0,
        timeout=httpx2.Timeout(silent_s, connect=min(_CONNECT_S, silent_s)),
        default_headers={"Accept-Encoding": "identity"},
        http_client=Client(
            # A proxy of the environment knows nothing of this machine.
            trust_env=not (url.hostname or "").startswith(_LOOPBACK),
            # The key goes where the settings say and nowhere else.
            follow_redirects=False,
            # Reading all certificates takes long, and without TLS there are none to check.
            verify=url.scheme == "https",
        ),
    )


class OpenAICompatible:
    """One model of one provider. Attributes and methods are those of Model, and `aclose`.

    A call that fails for a passing reason is made again, `retries` times, with pauses that grow
    and vary, or as long as the provider says; a pause longer than half of `timeout_s` is left to
    the caller (`retry_after_s`). A text of which a piece was passed on to `on_text` cannot be taken
    back: a call that fails after that is not made again, so no listener ever hears two beginnings.

    Args:
        target: the model, and how it is reached.
        sleep, draw, now: how to pause, a number in [0, 1), and the time; tests bring their own.
    """

    def __init__(
        self,
        target: Target,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        draw: Callable[[], float] = random.random,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = target.choice.model
        self.context_tokens = target.context_tokens
        self.usd_per_token_in = target.usd_in
        self.usd_per_token_out = target.usd_out
        self._target = target
        self._url = f"{target.base_url.rstrip('/')}/chat/completions"
        self._where = target.where
        self._sleep, self._draw, self._now = sleep, draw, now
        self._timeout_s = target.choice.timeout_s
        self._client: openai.AsyncOpenAI | None = None
        self._connecting = anyio.Lock()
        self._dialect = Dialect(target)

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model; see Model.complete."""
        client = self._client or await self._connected()
        names = ToolNames(tool.name for tool in request.tools)
        content = self._dialect.body(request, names)
        tried = 0
        while True:
            gathering = Gathering(on_text)
            try:
                await self._attempt(client, content, gathering)
                return self._completion(request, gathering, names)
            except _NotTakenError as error:
                if not self._dialect.leave_out(error.fault):
                    raise self._refusal(error.fault, request) from None
                content = self._dialect.body(request, names)
            except UnusableAnswerError:
                raise
            except ModelUnavailableError as error:
                pause = error.retry_after_s
                if pause is None:
                    pause = self._pause(tried)
                if (
                    gathering.told
                    or tried == self._target.choice.retries
                    or pause > self._timeout_s / 2
                ):
                    raise
                tried += 1
                _log.info("asking the model again", reason=str(error), in_s=round(pause, 1))
                await self._sleep(pause)

    def tokens(self, text: str) -> int:
        """See Model.tokens; estimated."""
        return estimate(text)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # -- the connection --------------------------------------------------------------------------

    async def _connected(self) -> "openai.AsyncOpenAI":
        async with self._connecting:
            if self._client is None:
                # In a thread: the import would hold up everybody for more than half a second.
                self._client = await anyio.to_thread.run_sync(connect, self._target)
            return self._client

    # -- the answer ------------------------------------------------------------------------------

    def _refusal(self, fault: Fault, request: ModelRequest) -> ModelError:
        if request.tools and fault.blames("tool"):
            return ModelRefusedError(
                f"{self.name} takes no tools: set {self._where.section}.native_tools = false"
            )
        return self._where.error(fault)

    async def _attempt(
        self, client: "openai.AsyncOpenAI", content: bytes, gathering: Gathering
    ) -> None:
        """Ask once. Raises ModelError, and _NotTakenError for a request that was not taken."""
        import httpx2  # noqa: PLC0415 - loaded by now
        import openai  # noqa: PLC0415

        where = self._where
        try:
            with anyio.fail_after(self._timeout_s):
                # With this cast_to the SDK gives the response itself, not a stream of its own.
                response: httpx2.Response = await client.post(  # type: ignore[assignment]
                    self._url,
                    content=content,
                    cast_to=httpx2.Response,
                    options={"headers": {"Content-Type": "application/json"}},
                    stream=True,
                    stream_cls=openai.AsyncStream[Any],
                )
                try:
                    await self._read(response, gathering)
                finally:
                    with anyio.CancelScope(shield=True):
                        await response.aclose()
        except openai.APIStatusError as error:
            fault = read_fault(error.status_code, error.response.content)
            if fault.status in (400, 422) and not fault.overflow and not fault.unpaid:
                raise _NotTakenError(fault) from None
            after = retry_after_s(error.response.headers, self._now())
            raise where.error(fault, after) from None
        except (openai.APITimeoutError, httpx2.TimeoutException, TimeoutError):
            if gathering.complete:
                return
            raise ModelUnavailableError(
                f"{where.url} was silent for {self._timeout_s / 2:g} s, or took more than"
                f" {self._timeout_s:g} s for one answer of {self.name}: see"
                f" {where.section}.timeout_s"
            ) from None
        except openai.APIConnectionError as error:
            raise ModelUnavailableError(
                f"{where.url} cannot be reached ({type(error.__cause__).__name__}): does it run,"
                f" and is {where.section}.base_url right"
            ) from None
        except TooMuchError as error:
            raise where.unusable(str(error)) from None
        except (httpx2.HTTPError, httpx2.StreamError, BadJSONError) as error:
            if gathering.complete:
                return  # all was said, but for what it took
            raise ModelUnavailableError(
                f"{where.url} broke off in the middle of an answer ({type(error).__name__})"
            ) from None
        except (ModelError, _NotTakenError):
            raise
        except Exception as error:  # noqa: BLE001 - the SDK and its HTTP met something unforeseen
            _log.warning("an answer cannot be read", model=self.name, exc_info=True)
            raise where.unusable(
                f"an answer that cannot be read ({type(error).__name__})"
            ) from None

    async def _read(self, response: "httpx2.Response", gathering: Gathering) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in ("text/html", "application/xhtml+xml"):
            raise ModelRefusedError(
                f"{self._where.url} answers with a web page: mend {self._where.section}.base_url"
            )
        # What came over an asynchronous client has an asynchronous stream.
        pieces = aiter(cast("httpx2.AsyncByteStream", response.stream))
        if kind == "application/json":  # it does not stream
            self._take(await _all_of(pieces), gathering)
            over = gathering.anything
        else:
            over = await self._stream(pieces, gathering)
        with anyio.move_on_after(_LAST_BYTES_S), contextlib.suppress(TooMuchError):
            # Read to its end, the connection serves for the next call.
            async for _ in pieces:
                pass
        if gathering.failed or not (gathering.complete or (over and gathering.anything)):
            raise ModelUnavailableError(f"{self._where.url} broke off in the middle of an answer")

    async def _stream(self, pieces: AsyncIterator[bytes], gathering: Gathering) -> bool:
        """Take a stream; True if it said itself that it is over. Raises TooMuchError."""
        events = Events()
        async for piece in pieces:
            for data in events.feed(piece):
                if data == b"[DONE]":
                    return True
                self._take(data, gathering)
        for data in events.end():
            if data == b"[DONE]":
                return True
            self._take(data, gathering)
        return False

    def _take(self, data: bytes, gathering: Gathering) -> None:
        if not data.startswith(b"{"):
            raise BadJSONError("it is no object")
        chunk = chat_wire.decode(data)
        if chunk.error or chunk.object == "error":
            raise self._where.error(read_fault(0, data))
        gathering.take(chunk)

    def _completion(
        self, request: ModelRequest, gathering: Gathering, names: ToolNames
    ) -> Completion:
        text = gathering.text
        calls = tuple(
            ToolCall(call.id, names.ours(call.name), call.arguments)
            for call in gathering.calls(call_ids.taken(request))
        )
        return Completion(
            text=text,
            tool_calls=calls,
            finish=gathering.finish,
            usage=self._usage(request, gathering, text, calls),
            model=self.name,
        )

    def _usage(
        self,
        request: ModelRequest,
        gathering: Gathering,
        text: str,
        calls: tuple[ToolCall, ...],
    ) -> Usage:
        said = Figures(self.name, gathering.used)
        tokens_in, tokens_out = said.tokens("prompt_tokens"), said.tokens("completion_tokens")
        estimated = tokens_in is None or tokens_out is None
        if tokens_in is None:
            tokens_in = _tokens_of(request)
        if tokens_out is None:
            tokens_out = estimate(text) + sum(
                estimate(call.name) + estimate(call.arguments) for call in calls
            )
        cost = said.usd("cost") if self._target.preset.tells_cost else None
        if cost is None:
            cost = tokens_in * self.usd_per_token_in + tokens_out * self.usd_per_token_out
        return Usage(tokens_in, tokens_out, cost, estimated)

    def _pause(self, tried: int) -> float:
        longest = min(_FIRST_PAUSE_S * 2.0 ** (tried + 1), _LONGEST_PAUSE_S)
        # A part of it is always waited, so that nobody hammers; the rest keeps many apart.
        return longest / 4 + self._draw() * longest * 3 / 4


class _NotTakenError(Exception):
    """The provider does not take the request as it is."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


async def _all_of(pieces: AsyncIterator[bytes]) -> bytes:
    """Read a body that is one document. Raises TooMuchError."""
    data = bytearray()
    async for piece in pieces:
        data += piece
        if len(data) > WHOLE_BYTES:
            raise TooMuchError(f"an answer of more than {WHOLE_BYTES:,} bytes in one piece")
    return bytes(data)


def _tokens_of(request: ModelRequest) -> int:
    tokens = 0
    for message in request.messages:
        tokens += PER_MESSAGE + estimate(message.content)
        tokens += sum(estimate(call.name) + estimate(call.arguments) for call in message.tool_calls)
    for tool in request.tools:
        tokens += PER_MESSAGE + estimate(tool.name + tool.description)
        tokens += estimate(bytes(tool.parameters).decode())
    return tokens
