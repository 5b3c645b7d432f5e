"""A model behind an HTTP API: connection, retries and errors, whatever the dialect."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

import anyio
import msgspec
import structlog

from component import system
from component.config.llm import Dialect
from component.models.adapter import Adapter, AnswerReader, ProviderFaultError
from component.models.answer_draft import AnswerDraft
from component.models.answer_limits import BadJSONError, TooMuchError
from component.models.catalog import ModelFacts, ModelTarget, facts_of
from component.models.chat import ChatCompletions
from component.models.connection import (
    ModelConnection,
    StatusError,
    Timeouts,
    UnreachableError,
    connect_model,
)
from component.models.contents import refused_kind, refused_parts, without_refused
from component.models.faults import Fault, read_fault, retry_after_s
from component.models.messages import ModelMessage, call_ids_of, map_parts, storable_part
from component.models.messages_dialect import Messages
from component.models.offered_tools import OfferedTools, RefusedTool, refuses_all
from component.models.protocol import (
    Completion,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    OnText,
    UnusableAnswerError,
    Void,
)
from component.models.responses import Responses
from component.models.usage import UsageFigures, estimate, usage_of

_log = structlog.get_logger("component.models")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0
_LONGEST_WAIT_S = 60.0
_CONTINUATIONS = 10
_VLLM_OPTION = "--enable-auto-tool-choice"
"""vLLM names it in its refusal of tools."""
_ADAPTERS: Mapping[Dialect, Callable[[ModelTarget], Adapter]] = {
    "chat": ChatCompletions,
    "responses": Responses,
    "messages": Messages,
}


class HostedModel:
    """One model of one provider. Attributes and methods are those of Model, and `aclose`.

    A call that fails for a temporary reason is repeated `retries` times, with pauses that grow and
    vary, or as long as the provider says; a pause longer than a minute is left to the caller
    (`retry_after_s`). Once a person has seen a piece of an answer, the call is not repeated.

    Args:
        refused: called with each tool that the model is not offered any more.
        sleep, draw, now: how to pause, a number in [0, 1), and the time; tests bring their own.
    """

    def __init__(
        self,
        target: ModelTarget,
        *,
        refused: Callable[[RefusedTool], None] = lambda _refused: None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        draw: Callable[[], float] = system.random,
        now: Callable[[], datetime] = system.now,
    ) -> None:
        self.name = target.choice.model
        self._adapter = _ADAPTERS[target.dialect](target)
        self._target = target
        self._tools = OfferedTools(target, refused)
        self._where = target.where
        self._sleep, self._draw, self._now = sleep, draw, now
        self._facts: ModelFacts | None = None
        self._connection: ModelConnection | None = None
        self._connecting = anyio.Lock()

    @property
    def facts(self) -> ModelFacts:
        """What is known of the model. Blocks for a second if that was not looked up before."""
        if self._facts is None:
            self._facts = facts_of(self._target)
        return self._facts

    @property
    def context_tokens(self) -> int:
        """See Model.context_tokens."""
        return self.facts.context_tokens

    @property
    def usd_per_token_in(self) -> float:
        """See Model.usd_per_token_in: the highest price that a token can have."""
        prices = self.facts.prices
        return max(prices.usd_in, prices.usd_cache_write)

    @property
    def usd_per_token_out(self) -> float:
        """See Model.usd_per_token_out."""
        return self.facts.prices.usd_out

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model; see Model.complete. A turn that the provider pauses is continued."""
        completion, paused = await self._complete(request, on_text)
        for _ in range(_CONTINUATIONS):
            if not paused:
                break
            messages = (*request.messages, ModelMessage("assistant", completion.parts))
            going_on = msgspec.structs.replace(request, messages=messages)
            after, paused = await self._complete(going_on, on_text)
            completion = msgspec.structs.replace(
                after,
                parts=(*completion.parts, *after.parts),
                usage=completion.usage + after.usage,
                refused=completion.refused | after.refused,
            )
        return completion

    async def _complete(
        self, request: ModelRequest, on_text: OnText | None
    ) -> tuple[Completion, bool]:
        """Ask the model, with retries. True if the provider has paused the turn."""
        connection = self._connection or await self._connected()
        refused: frozenset[str] = frozenset()
        offered, names = self._tools.offer(request)
        try:
            content = self._adapter.body(offered, names)
        except UnicodeEncodeError:
            messages = map_parts(request.messages, storable_part)
            request = msgspec.structs.replace(request, messages=messages)
            offered, names = self._tools.offer(request)
            content = self._adapter.body(offered, names)
        tried = 0
        while True:
            reader = self._adapter.reader(offered, names, on_text)
            try:
                await self._attempt(connection, content, reader)
                draft = reader.draft
                parts = draft.parts(names, self._adapter.origin, call_ids_of(request.messages))
                reported = reader.reported(UsageFigures(self.name, draft.used))
                usage = usage_of(request, parts, reported, lambda: self.facts.prices)
                finish = draft.finish_reason
                return Completion(
                    parts=parts, finish=finish, usage=usage, model=self.name, refused=refused
                ), draft.paused
            except _RejectedError as error:
                more = self._learn(error.fault, content, offered, request, again=bool(refused))
                if more:
                    refused |= more
                    messages = without_refused(request.messages, more)
                    request = msgspec.structs.replace(request, messages=messages)
                offered, names = self._tools.offer(request)
                content = self._adapter.body(offered, names)
            except UnusableAnswerError:
                raise
            except ModelUnavailableError as error:
                pause = error.retry_after_s
                if pause is None:
                    pause = self._pause(tried)
                if (
                    reader.draft.shown
                    or tried == self._target.choice.retries
                    or pause > _LONGEST_WAIT_S
                ):
                    raise
                tried += 1
                _log.info("asking the model again", reason=str(error), in_s=round(pause, 1))
                if reader.draft.told and on_text is not None:
                    on_text(Void.BROKEN_OFF)
                await self._sleep(pause)

    def tokens(self, text: str) -> int:
        """See Model.tokens; estimated."""
        return estimate(text)

    async def aclose(self) -> None:
        """Close the connections."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.client.aclose()

    # -- the connection --------------------------------------------------------------------------

    async def _connected(self) -> ModelConnection:
        async with self._connecting:
            if self._connection is None:
                # In a thread: the import would hold up everybody for a tenth of a second.
                self._connection = await system.in_thread(
                    connect_model, self._target, self._adapter.path
                )
            return self._connection

    # -- the answer ------------------------------------------------------------------------------

    def _learn(
        self,
        fault: Fault,
        content: bytes,
        offered: ModelRequest,
        request: ModelRequest,
        *,
        again: bool,
    ) -> frozenset[str]:
        """Learn from a refusal in which form the request may be accepted; returns the parts that it
        should not have. Raises ModelError if the refusal does not call for sending it again.

        `again` says that parts were left out before; then all of that kind are.
        """
        if self._tools.learn(fault, offered, request):
            return frozenset()
        named = (fault, content, offered.messages, self._adapter.origin)
        is_known = refused_kind(fault) is not None
        parts = refused_parts(*named, every=again) if is_known else frozenset()
        if not parts and self._adapter.leave_out(fault):
            return frozenset()
        if not is_known:
            parts = refused_parts(*named)
        if not parts:
            raise self._refusal(fault, offered)
        _log.warning(
            "a provider refuses a part of a conversation, which is left out of it",
            model=self.name,
            parts=len(parts),
            reason=str(self._where.error(fault)),
        )
        return parts

    def _refusal(self, fault: Fault, request: ModelRequest) -> ModelError:
        section = self._where.section
        if request.tools and _VLLM_OPTION in fault.message:
            return ModelRefusedError(
                f"{self.name} takes no tools: start vLLM with {_VLLM_OPTION} and"
                f" --tool-call-parser, or set {section}.native_tools = false"
            )
        if request.tools and refuses_all(fault):
            return ModelRefusedError(
                f"{self.name} takes no tools: set {section}.native_tools = false"
            )
        return self._where.error(fault)

    async def _attempt(
        self, connection: ModelConnection, content: bytes, reader: AnswerReader
    ) -> None:
        """Ask once. Raises ModelError, and _RejectedError for a request that was rejected."""
        import httpx2  # noqa: PLC0415 - loaded by now

        where, choice, draft = self._where, self._target.choice, reader.draft
        timeouts = Timeouts(
            self._target.first_token_timeout_s, choice.token_timeout_s, choice.timeout_s
        )
        try:
            over = await connection.ask(content, reader, timeouts)
        except StatusError as error:
            fault = read_fault(error.status, error.body)
            if fault.rejected:
                raise _RejectedError(fault) from None
            after = retry_after_s(error.headers, self._now())
            raise where.error(fault, after) from None
        except ProviderFaultError as error:
            if error.fault.rejected and not draft.told:
                raise _RejectedError(error.fault) from None
            raise where.error(error.fault) from None
        except UnreachableError as error:
            raise ModelUnavailableError(
                f"{where.url} cannot be reached ({type(error.__cause__).__name__}): does it run,"
                f" and is {where.section}.base_url right"
            ) from None
        except TooMuchError as error:
            raise where.unusable(str(error)) from None
        except (httpx2.HTTPError, httpx2.StreamError, BadJSONError) as error:
            if draft.complete:
                return  # only the report of tokens is missing
            raise ModelUnavailableError(
                f"{where.url} broke off in the middle of an answer ({type(error).__name__})"
            ) from None
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - HTTP met something unforeseen
            _log.warning("an answer cannot be read", model=self.name, exc_info=True)
            raise where.unusable(
                f"an answer that cannot be read ({type(error).__name__})"
            ) from None
        if not timeouts.scope.cancelled_caught:
            self._check(draft, over=over)
        elif not draft.complete:
            self._give_up(reader, timeouts)

    def _check(self, draft: AnswerDraft, *, over: bool) -> None:
        if draft.failed or not (draft.complete or (over and draft.anything)):
            raise ModelUnavailableError(f"{self._where.url} broke off in the middle of an answer")
        if draft.incoherent:
            raise ModelUnavailableError(
                f"{self._where.url} sent a part of a tool call that belongs to no call"
            )

    def _give_up(self, reader: AnswerReader, timeouts: Timeouts) -> None:
        """An answer takes too long: keep a text that is still being written, or raise."""
        setting = timeouts.exceeded
        if setting == "timeout_s":
            reader.end()
            reader.draft.cut()
            if reader.draft.anything:
                return
        seconds = {
            "first_token_timeout_s": self._target.first_token_timeout_s,
            "token_timeout_s": self._target.choice.token_timeout_s,
            "timeout_s": self._target.choice.timeout_s,
        }[setting]
        raise ModelUnavailableError(
            f"{self._where.url} did not answer for {self.name} within {seconds:g} s: see"
            f" {self._where.section}.{setting}"
        )

    def _pause(self, tried: int) -> float:
        longest = min(_FIRST_PAUSE_S * 2.0 ** (tried + 1), _LONGEST_PAUSE_S)
        # A part of it is always waited, so that nobody hammers; the rest keeps many apart.
        return longest / 4 + self._draw() * longest * 3 / 4


class _RejectedError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault
