"""Judges the requests to webhooks and answers them, as an ASGI application.

A delivery is answered with 202 when its task is on disk; the work itself comes later. Whatever a
sender does, a request takes bounded memory and time: its size is checked before and while it is
received, it has to be complete in some seconds, and only so many are received at the same time.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import msgspec
import structlog

from component import system
from component.features.webhooks.delivery import Signed, WebhookError, is_readable, read_json
from component.features.webhooks.rows import DeliveryStore, Reply, add_reply
from component.features.webhooks.settings import WebhookLimits
from component.features.webhooks.webhook import Webhook
from component.kernel.http_routes import Receive, Send
from component.kernel.task_starter import TaskStarter
from component.kernel.triggers import Trigger, Work
from component.link.router.rare_log import RareLog
from component.store import StorageError
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.webhooks")

T = TypeVar("T")

ANSWER_S: Final = 10.0
"""Seconds for recording a task, after which the sender is asked to try again."""
_DRAIN_S: Final = 2.0
_DRAINED_BODIES: Final = 4
"""So much more than the largest body is received after a refusal, so that the sender reads the
answer: a connection that is closed while it sends loses it."""
_RETRY_S: Final = 30.0
_HELD_S: Final = 1.0
"""Seconds after which a request loses its place to another one, if all are taken. A signature is
checked when the body is complete, so anybody could hold all places with slow bodies."""
_SIGNED: Final = ("webhook-", "x-hub-", "x-github-", "x-slack-", "x-signature-", "content-")
"""The beginnings of the names of headers that are looked at."""
_LONGEST_SHOWN: Final = 100
_MOST_DIGITS: Final = 20


class _Answer(msgspec.Struct, omit_defaults=True):
    """The body of an answer, as JSON.

    `status` is accepted, duplicate, ignored or refused; `id` is the sender's id of the delivery.
    """

    status: str
    id: str | None = None
    task: str | None = None
    reason: str | None = None


def _encoded(answer: _Answer) -> bytes:
    return msgspec.json.encode(answer) + b"\n"


class _GoneError(Exception):
    """The sender has closed the connection."""


class WebhookApp:
    """The ASGI application. Webhooks at one path have the same kind and secret. If more than
    `requests_total` requests are received at the same time, the one that has been received for the
    longest time is refused, if it has had a second. `replies_due` is called when work was recorded.
    """

    def __init__(
        self,
        webhooks: Iterable[Webhook],
        starter: TaskStarter,
        deliveries: DeliveryStore,
        limits: WebhookLimits,
        replies_due: Callable[[], None] = lambda: None,
    ) -> None:
        self._by_path: dict[str, list[Webhook]] = {}
        for webhook in webhooks:
            self._by_path.setdefault(webhook.entry.url_path, []).append(webhook)
        self._starter = starter
        self._deliveries = deliveries
        self._limits = limits
        self._replies_due = replies_due
        self._receiving: dict[anyio.CancelScope, float] = {}
        """The bodies that are being received, and since when; the oldest first."""
        self._rare = RareLog(_log)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; see `HttpApp`."""
        with contextlib.suppress(_GoneError):
            await self._http(scope, receive, send)

    async def _http(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        body = _Body(receive, self._limits)
        headers: tuple[tuple[bytes, bytes], ...] = ()
        try:
            status, content = await self._answer_to(scope, body)
        except WebhookError as fault:
            self._refused(scope, fault)
            status, headers = fault.status, fault.headers
            if fault.retry_after_s is not None:
                headers = (*headers, (b"retry-after", b"%d" % max(1, round(fault.retry_after_s))))
            content = _encoded(_Answer("refused", reason=fault.reason))
        rest = () if body.complete else ((b"connection", b"close"),)
        if scope["http_version"] not in ("1.0", "1.1"):
            rest = ()  # HTTP/2 has no such header (RFC 9113 §8.2.2)
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", b"%d" % len(content)),
                    (b"cache-control", b"no-store"),
                    *headers,
                    *rest,
                ],
            }
        )
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await body.drain()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _refused(self, scope: Mapping[str, Any], fault: WebhookError) -> None:
        client = scope.get("client")
        self._rare.warning(
            f"a webhook request was refused with {fault.status}",
            path=str(scope["path"])[:_LONGEST_SHOWN],
            sender=client[0] if client else "",
            reason=fault.reason,
            hint=fault.hint,
        )

    async def _answer_to(self, scope: Mapping[str, Any], body: "_Body") -> tuple[int, bytes]:
        """Return the status and the body of the answer. Raises WebhookError."""
        webhooks = self._by_path.get(scope["path"])
        if webhooks is None:
            raise WebhookError(
                404, "There is no webhook here.", "compare the URL at the sender with [[webhook]]"
            )
        if scope["method"] != "POST":
            raise WebhookError(
                405,
                "Deliveries are sent with POST.",
                "set the method at the sender to POST",
                headers=((b"allow", b"POST"),),
            )
        headers = _single_headers(scope["headers"])
        _check_type(webhooks[0], headers)
        body.check_length(headers.get("content-length"))
        verifier = webhooks[0].verifier
        verifier.check(headers)
        content = await self._received(body)
        signed = verifier.verify(headers, content, system.time())
        value = read_json(headers.get("content-type", ""), content, self._limits.max_depth)
        answer = await self._answer_of(webhooks, signed, value)
        ignored = answer.status == "ignored"
        expected = signed.when_ignored if ignored else signed.when_accepted
        if expected is not None:
            return 200, expected
        return 200 if ignored else 202, _encoded(answer)

    async def _answer_of(self, webhooks: Sequence[Webhook], signed: Signed, value: Any) -> _Answer:
        """Let the first webhook that does not ignore a delivery start its work. Raises
        WebhookError.
        """
        if signed.no_work:
            return _Answer("ignored", signed.id or None, reason=signed.no_work)
        reasons: list[str] = []
        for webhook in webhooks:
            reason = webhook.reason_to_ignore(signed, value)
            if reason is None:
                return await self._accepted(webhook, signed, value)
            reasons.append(reason)
        path = webhooks[0].entry.url_path
        _log.info("a delivery was ignored", path=path, id=signed.id, reason=reasons[0])
        # Sent again after other settings, it must not start work.
        await self._within_time(self._deliveries.remember(path, signed.key, ""))
        return _Answer("ignored", signed.id, reason=reasons[0])

    async def _received(self, body: "_Body") -> bytes:
        """All of the body. Raises WebhookError: others need the place, or it is out of bounds."""
        if len(self._receiving) >= self._limits.requests_total:
            oldest, since = next(iter(self._receiving.items()))
            if anyio.current_time() - since < _HELD_S:
                raise _too_many_requests()
            del self._receiving[oldest]
            oldest.cancel()
        with anyio.CancelScope() as place:
            self._receiving[place] = anyio.current_time()
            try:
                return await body.read()
            finally:
                self._receiving.pop(place, None)
        raise _too_many_requests()

    async def _accepted(self, webhook: Webhook, signed: Signed, value: Any) -> _Answer:
        """Record the work of a delivery, unless that was done before. Raises WebhookError."""
        trigger, work = webhook.work_for(signed, value)
        reply = webhook.reply_to(signed, value)
        path = webhook.entry.url_path

        async def start() -> _Answer:
            known = await self._deliveries.find(path, signed.key)
            if known is not None:
                return _Answer("duplicate", signed.id, known or None)
            task = await self._start(webhook, trigger, work, reply)
            await self._deliveries.remember(path, signed.key, task or "")
            return _Answer("duplicate" if task is None else "accepted", signed.id, task)

        answer = await self._within_time(start())
        if answer.status == "accepted":
            _log.info(
                "a delivery has started work", webhook=webhook.name, id=signed.id, task=answer.task
            )
        return answer

    @staticmethod
    async def _within_time(work: Awaitable[T]) -> T:
        """Wait for the database. Raises WebhookError: it takes too long, or refuses."""
        try:
            with anyio.fail_after(ANSWER_S):
                return await work
        except TimeoutError:
            raise _unavailable("the database takes long to answer") from None
        except StorageError as error:
            raise _unavailable(f"the database refuses: {error}") from None

    async def _start(
        self, webhook: Webhook, trigger: Trigger, work: Work, reply: Reply | None
    ) -> str | None:
        wait_s = webhook.rate.take(anyio.current_time())
        if wait_s:
            raise WebhookError(
                429,
                "There are too many deliveries.",
                f"increase per_minute of the webhook {webhook.name}, or filter at the sender",
                retry_after_s=wait_s,
            )
        also = None if reply is None else partial(add_reply, reply)
        try:
            task = await self._starter.start(trigger, work, also)
        except StanzaError as error:
            webhook.rate.give_back()
            raise WebhookError(
                503,
                "The work cannot be started at the moment.",
                f"{error.text or error.condition}: see principal, skill and budget_usd of the"
                f" webhook {webhook.name}",
                retry_after_s=_RETRY_S if error.type == "wait" else None,
            ) from None
        except BaseException:
            webhook.rate.give_back()
            raise
        self._replies_due()  # the work may have ended before it was recorded
        return task


class _Body:
    """The body of one request, received within bounds. `complete` says whether all of it was."""

    def __init__(self, receive: Receive, limits: WebhookLimits) -> None:
        self._receive = receive
        self._limits = limits
        self.complete = False

    def check_length(self, content_length: str | None) -> None:
        """Check the size that the sender announces. Raises WebhookError (400, 413)."""
        if content_length is None:
            return
        if not (content_length.isascii() and content_length.isdecimal()):
            raise WebhookError(400, "The Content-Length is no number.", "correct the sender")
        if len(content_length) > _MOST_DIGITS or int(content_length) > self._limits.max_body_bytes:
            raise self._too_large()

    async def read(self) -> bytes:
        """Return all of it. Raises WebhookError (408, 413), _GoneError."""
        most = self._limits.max_body_bytes
        content = bytearray()
        try:
            with anyio.fail_after(self._limits.body_timeout_s):
                while not self.complete:
                    content += await self._part()
                    if len(content) > most:
                        raise self._too_large()
        except TimeoutError:
            raise WebhookError(
                408,
                f"The request was not complete after {self._limits.body_timeout_s:g} s.",
                "increase webhooks.body_timeout_s if the network to the sender is slow",
            ) from None
        return bytes(content)

    async def drain(self) -> None:
        """Receive some of what is still being sent, and forget it."""
        left = _DRAINED_BODIES * self._limits.max_body_bytes
        with anyio.move_on_after(_DRAIN_S):
            try:
                while left > 0 and not self.complete:
                    left -= len(await self._part())
            except _GoneError:
                pass

    async def _part(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            raise _GoneError
        self.complete = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    def _too_large(self) -> WebhookError:
        return WebhookError(
            413,
            f"The body has more than {self._limits.max_body_bytes} bytes.",
            "increase webhooks.max_body_bytes, or send less",
        )


def _single_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers by their names in lower case. Raises WebhookError (400) if one of those that
    are looked at comes twice: the sender and a proxy could read different ones.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.decode("latin-1").lower()
        if key in found and key.startswith(_SIGNED):
            raise WebhookError(
                400, f"The header {key[:40]} comes twice.", "have the sender send it once"
            )
        found[key] = value.decode("latin-1").strip()
    return found


def _check_type(webhook: Webhook, headers: Mapping[str, str]) -> None:
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise WebhookError(
            415,
            "The body must not be compressed.",
            "turn compression off at the sender",
            headers=((b"accept-encoding", b"identity"),),
        )
    if not is_readable(headers.get("content-type", ""), forms=webhook.entry.kind == "github"):
        raise WebhookError(
            415,
            "The Content-Type must be application/json.",
            "set the content type at the sender to application/json",
            headers=((b"accept", b"application/json"),),
        )


def _too_many_requests() -> WebhookError:
    return WebhookError(
        503,
        "Too many requests are being received.",
        "increase webhooks.requests_total if this happens often",
        retry_after_s=1,
    )


def _unavailable(hint: str) -> WebhookError:
    return WebhookError(
        503, "The delivery cannot be recorded at the moment.", hint, retry_after_s=_RETRY_S
    )
