"""Dispatches stanzas to their handlers and sends the replies.

`received` is called for each read of the stream and never waits: an answer that a handler returns
at once is encoded at once, a handler that suspends gets a task. So the stream is always read,
however slow a handler is.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.link.messages.outbox import Outbox
from component.link.router.calls import Calls
from component.link.router.fair_queue import FairQueue, StanzaEvent, are_small
from component.link.router.faults import PayloadError, RouterErrors
from component.link.router.rare_log import RareLog
from component.link.router.replies import Replies
from component.link.router.route_resolver import (
    RequestHead,
    ResolvedRoute,
    RouteResolver,
    Sender,
    Senders,
)
from component.link.router.table import Host, Request, Route, StanzaRoute, Table
from component.link.router.work import AdmissionGate, RunningHandlers, Shares, discard
from xep.binding import ContentError, Payload, RawXML
from xep.jid import JID
from xep.stanza import Incoming
from xep.stanza_error import StanzaError
from xep.stream import StanzaSkipped

__all__ = ["Router", "RouterOptions", "StanzaEvent"]

_log = structlog.get_logger("component.router")
_MESSAGE_TYPES = frozenset(("chat", "error", "groupchat", "headline", "normal"))
_NOBODY = "no agent has this address"

_TOO_MUCH_WAITS = "you have sent more than can be handled so quickly; wait and send it again"

_ANSWERS = frozenset(("result", "error"))
_READY = (RawXML, Payload)
"""Answers that can be sent immediately; answers that a task awaits cannot."""

_IN_ORDER_S = 0.0002
"""The time for which the stanzas of a read are handled in order of arrival, if all are small:
sorting them by principal takes time itself, and gains too little.
"""
_IN_ORDER_BYTES = 4096
"""Stanzas of this size may take longer than that."""
_SLICE = 16
_SLICE_S = 0.001
"""Number of stanzas, and seconds, of work after which the router looks at new input."""
_LEAST_S = 0.00025
"""Seconds between two times at which the answers of principals are sent while others wait."""
_LONG_S = 0.0002
"""Stanzas that take longer may have waited for a processor."""


class RouterOptions(msgspec.Struct, frozen=True):
    """Settings of a router.

    Attributes:
        shares: maximum number of running requests.
        admins: bare addresses that may use the reserved share.
        request_timeout_s: seconds after which a handler that still runs is cancelled.
        retry_after_s: seconds named in the retry hint of a temporary refusal.
        call_timeout_s: seconds to wait for the answer to an outgoing IQ.
        max_stanza_bytes: the largest stanza to send; servers close the stream on larger ones.
        tag: identifies this instance at the beginning of the ids of outgoing IQs; empty if it is
            the only one.
    """

    shares: Shares = Shares()
    admins: frozenset[str] = frozenset()
    request_timeout_s: float = 60.0
    retry_after_s: int = 5
    call_timeout_s: float = 30.0
    max_stanza_bytes: int = 262_144
    tag: str = ""


class Router:
    """Dispatches stanzas to their handlers and sends the replies.

    Every IQ get or set gets exactly one reply. Results and errors are never refused: they go to the
    call that waits for them. A principal over its share is refused at once, without effect on
    others. Principals share the time of the processor. The time for which this thread waited for a
    processor is nobody's: it would delay the principal that was being served.

    Args:
        options: the settings.
        senders: who is admitted, and the addresses of this service.
        faults: makes errors.
        routes: what is served.
        outbox: sends the replies.

    Attributes:
        options: as given.
        table: the routes.
        call: sends an IQ and returns the payload of its result; see `Calls.call`.
        call_optional: the same for a result that may have no payload.
        call_any: the same for a result that has one of several payloads.
    """

    def __init__(
        self,
        options: RouterOptions,
        senders: Senders,
        faults: RouterErrors,
        routes: Iterable[Route],
        outbox: Outbox,
    ) -> None:
        self._addresses = addresses = senders.addresses
        self._faults = faults
        self._outbox = outbox
        self._replies = Replies(outbox, str(addresses.default), options.max_stanza_bytes, faults)
        self._refused = senders.refused
        self._senders = senders
        self._admission = AdmissionGate(options.shares, options.admins)
        self.serve(routes, options)
        self._calls = Calls(
            outbox, addresses.default, options.call_timeout_s, faults.known, options.tag
        )
        self.call, self.call_optional = self._calls.call, self._calls.call_optional
        self.call_any = self._calls.call_any
        self._work = RunningHandlers(self._admission, self._replies, options.request_timeout_s)
        self._queue = FairQueue()
        self._clock = system.current().perf_counter
        self._processor_clock = system.current().thread_time
        self._unsent = False  # a principal has nothing waiting any more, and its answers are unsent
        self._sent_at = -math.inf
        self._rare_log = RareLog(_log)

    def serve(self, routes: Iterable[Route], options: RouterOptions) -> None:
        """Serve these routes from now on; of the options, shares and admins may have changed, and
        whom the policy admits. Requests in progress are not affected.
        """
        self.table = Table(routes)
        self.options = options
        self.forget_senders()
        self._admission.limit(options.shares, options.admins)

    def forget_senders(self) -> None:
        """Admit senders anew."""
        self._senders.forget()
        self._routes = RouteResolver(self._senders, self.table)

    # -- start and stop --------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the tasks of slow handlers until cancelled; requests that are cancelled are still
        answered.
        """
        await self._work.run(task_status=task_status)

    async def drain(self, timeout_s: float) -> int:
        """Accept no new requests and wait until those in progress are answered.

        Requests that still run after ``timeout_s`` seconds are cancelled, which answers them too.
        Returns the number of cancelled requests.
        """
        while self.received(()):
            pass
        return await self._work.drain(timeout_s)

    def disconnected(self, reason: str) -> None:
        """Fail the calls that were sent on the lost stream: nobody will answer them."""
        _log.debug("calls in progress fail", reason=reason)
        self._calls.connection_lost()

    # -- metrics ---------------------------------------------------------------------------------

    @property
    def answered(self) -> Mapping[str, int]:
        """IQs answered so far: `result`, and the conditions of errors."""
        return {"result": self._replies.results, **self._replies.errors}

    @property
    def under_way(self) -> int:
        """The number of requests whose handlers are suspended."""
        return self._admission.total

    @property
    def waiting(self) -> int:
        """The number of stanzas that wait for their turn."""
        return self._queue.waiting

    # -- incoming --------------------------------------------------------------------------------

    def received(self, events: Sequence[StanzaEvent]) -> int:
        """Queue the stanzas of one read of the stream, and handle a slice of those that wait.

        Stanzas of one principal keep their order. Several principals share the handling time; when
        a principal has nothing waiting any more, its answers are sent at once.

        Returns how many stanzas still wait. While there are any, call it again, with new stanzas or
        none, so that a new principal is served soon.
        """
        queue = self._queue
        if not queue.waiting:
            self._unsent = False  # the caller sends all that is left when nothing waits
        if not queue.waiting and are_small(events, _IN_ORDER_BYTES):
            clock, handle = self._clock, self._handle
            over = clock() + _IN_ORDER_S
            for number, event in enumerate(events):
                if clock() > over:
                    events = events[number:]
                    break
                handle(event)
            else:
                return 0
        for event in queue.add(events):
            self._handle_refused(event)
        if not queue.waiting:
            return 0
        clock, handle, take, charge = self._clock, self._handle, queue.take, queue.charge
        began = now = clock()
        processor_s, charged_s = self._processor_clock(), 0.0
        for _ in range(min(queue.waiting, _SLICE)):
            event = take()
            if self._unsent and not are_small((event,)):
                self._send(now)  # answers must not wait for this one, which may take long
            handle(event)
            last, now = now, clock()
            took = now - last
            if took > _LONG_S:
                # The time for which this thread waited for a processor is nobody's.
                took = max(0.0, min(took, self._processor_clock() - processor_s - charged_s))
            charged_s += took
            if charge(took):
                self._unsent = queue.waiting > 0
            if self._unsent and now > self._sent_at + _LEAST_S:
                self._send(now)
            if now > began + _SLICE_S:
                break
        return queue.waiting

    def _send(self, now: float) -> None:
        self._unsent = False
        self._sent_at = now
        self._outbox.send_now()

    def _handle_refused(self, event: StanzaEvent) -> None:
        """Handle a stanza whose principal already has the maximum waiting: refuse requests.

        Results and errors are always accepted: a caller waits for them, and handling them is quick.
        """
        if isinstance(event, StanzaSkipped):
            self._refuse_skipped(event)
            return
        stanza = event.stanza
        if stanza.kind == "iq" and stanza.type in _ANSWERS:
            self._handle(event)
            return
        if stanza.kind != "iq" and self.table.by_payload(stanza) is not None:
            self._handle(event)
            return
        sender = self._senders.of(stanza.sender or "")
        if stanza.kind == "iq" and stanza.type in ("get", "set") and stanza.id is not None:
            if sender.jid is None or not sender.admitted:
                self._handle(event)
            else:
                self._replies.error(stanza, self._constraint(stanza.sole_child, _TOO_MUCH_WAITS))
        elif sender.admitted:
            self._replies.bounce(stanza, self._constraint("", _TOO_MUCH_WAITS))

    def _handle(self, event: StanzaEvent) -> None:
        if isinstance(event, StanzaSkipped):
            self._refuse_skipped(event)
            return
        stanza = event.stanza
        kind = stanza.kind
        if kind == "iq":
            if stanza.type not in _ANSWERS:
                self._handle_request(stanza)
            elif not self._calls.answered(stanza):
                _log.debug("ignored an answer that was not requested", sender=stanza.sender)
        elif kind is not None:
            self._handle_silent(stanza)
        else:
            _log.warning("ignored an element that is not a stanza", name=stanza.name)

    def _handle_request(self, stanza: Incoming) -> None:
        route = self._routes.of(stanza)
        try:
            if not isinstance(route, ResolvedRoute) or stanza.id is None:
                if not route.sender.admitted:
                    self._refused(route.sender.principal_text)
                _refuse(stanza, route)
            if self._work.draining or self._outbox.congested or route.place_first:
                self._check_busy(stanza, route.sender)
            try:
                payload = stanza.sole_decoded(route.decode)
            except ContentError as error:
                raise PayloadError(str(error)) from error
            handler = route.handler
            answer = handler(
                Request(stanza, route.requester, route.principal, route.to, route.home, payload)
            )
        except StanzaError as error:
            self._replies.error(stanza, error)
        except PayloadError as error:
            self._replies.error(stanza, self._faults.malformed(stanza.sole_child, str(error)))
        except Exception as error:  # noqa: BLE001 - a handler's fault must still be answered
            self._replies.error(stanza, self._work.failed(stanza, error))
        else:
            if answer is None or isinstance(answer, _READY):
                self._replies.result(stanza, answer, route.reply)
            elif (busy := self._busy(stanza.sole_child, route.sender)) is None:
                self._work.start(stanza, route.sender, answer)
            else:
                discard(answer)
                self._replies.error(stanza, busy)

    def _check_busy(self, stanza: Incoming, sender: Sender) -> None:
        busy = self._busy(stanza.sole_child, sender)
        if busy is not None:
            raise busy

    def _busy(self, payload: str | None, sender: Sender) -> StanzaError | None:
        """Return why no more work of this sender is accepted now; None if it is."""
        if self._work.draining:
            text = "the service is stopping; try again later"
        elif self._outbox.refuses(sender.principal_text):
            text = "the server reads our answers too slowly; try again later"
        else:
            refusal = self._admission.refusal(sender.principal_text)
            if refusal is None:
                return None
            text = refusal
        return self._constraint(payload, text)

    def _constraint(self, payload: str | None, text: str) -> StanzaError:
        return self._faults.busy(payload, text, self.options.retry_after_s)

    def _handle_silent(self, stanza: Incoming) -> None:
        """Handle a message or a presence: a refused sender gets no reply. An admitted sender who
        used a wrong address gets an error (RFC 6121 §8.5.1).
        """
        sender = self._senders.of(stanza.sender or "")
        to, host = self._addresses.find(stanza.to, iq=False)
        type_ = stanza.type
        if stanza.kind == "message" and type_ not in _MESSAGE_TYPES:
            type_ = "normal"  # RFC 6121 §5.2.2
        by_payload = self.table.by_payload(stanza)
        if by_payload is not None and type_ in by_payload.types and _serves(by_payload, sender):
            self._handle_noted(stanza, sender, by_payload, to, host)
            return
        route = None
        if host is not None and stanza.kind is not None:
            route = self.table.stanza(host, stanza.kind, type_)
        if route is not None and route.admits is not None:
            self._handle_noted(stanza, sender, route, to, host)
            return
        if sender.jid is None or sender.principal is None or not sender.admitted:
            self._refused(sender.principal_text)
            return
        if host is None:
            self._replies.bounce(stanza, StanzaError("service-unavailable", _NOBODY))
            return
        if route is None:
            return
        busy = self._busy("", sender)
        if busy is not None:
            self._replies.bounce(stanza, busy)
            return
        request = Request(stanza, sender.jid, sender.principal, to, host, None)
        try:
            working = route.handler(request)
        except Exception as error:  # noqa: BLE001 - the sender hears of it, nobody else
            self._replies.bounce(stanza, self._work.failed(stanza, error))
            return
        if working is not None:
            self._work.start(stanza, sender, working)

    def _handle_noted(
        self, stanza: Incoming, sender: Sender, route: StanzaRoute, to: JID, host: Host | None
    ) -> None:
        """Handle a stanza whose handler only takes note of it: nothing is sent back."""
        if sender.jid is None or sender.principal is None:
            return
        admitted = sender.admitted if route.admits is None else route.admits(sender.jid)
        if not admitted or host is None or host not in route.hosts:
            self._refused(sender.principal_text)
            return
        request = Request(stanza, sender.jid, sender.principal, to, host, None)
        try:
            working = route.handler(request)
        except Exception:  # noqa: BLE001 - a bad notification must not hurt others
            _log.exception("a handler failed", sender=stanza.sender)
            return
        if working is not None:
            self._work.start(stanza, sender, working)

    def _refuse_skipped(self, event: StanzaSkipped) -> None:
        why = event.limit if event.error is None else event.error.text
        self._rare_log.warning("skipped a stanza", sender=event.from_, bytes=event.size, reason=why)
        sender = self._senders.of(event.from_ or "")
        if event.kind != "iq":
            if event.kind is not None and sender.admitted:
                self._replies.bounce(event, self._unread(event))
            return
        if event.type not in ("get", "set"):
            self._calls.skipped(event.id, event.from_)
            return
        if sender.jid is None:
            error = StanzaError("jid-malformed", sender.refusal)
        elif not sender.admitted:
            self._refused(sender.principal_text)
            error = StanzaError("service-unavailable")
        else:
            error = self._unread(event)
        self._replies.error(event, error)

    def _unread(self, event: StanzaSkipped) -> StanzaError:
        """Return the error for the sender of a skipped stanza."""
        payload = None if event.kind == "iq" else ""
        if event.error is not None:
            return self._faults.malformed(payload, event.error.text)
        what = "is too big." if event.limit == "bytes" else f"contains too many {event.limit}."
        return self._faults.too_big(payload, None, f"The stanza {what}")


def _serves(route: StanzaRoute, sender: Sender) -> bool:
    """Whether a route that a child decides is for what this sender sends."""
    if not route.falls_back or route.admits is None:
        return True
    return sender.jid is not None and route.admits(sender.jid)


def _refuse(stanza: Incoming, head: RequestHead) -> NoReturn:
    """Refuse a request that no handler serves, or that has no id."""
    if head.sender.jid is None:
        raise StanzaError("jid-malformed", head.sender.refusal)
    if not head.sender.admitted:
        raise StanzaError("service-unavailable")
    if stanza.id is None or stanza.type not in ("get", "set"):
        raise StanzaError("bad-request", "an IQ needs an id and a type (RFC 6120 §8.2.3)")
    if head.child is None:
        raise StanzaError("bad-request", "an IQ of type get or set must contain exactly one child")
    if head.host is None:
        raise StanzaError("service-unavailable", _NOBODY)
    raise StanzaError("service-unavailable", "this service is not available here")
