"""Dispatches stanzas to their handlers and sends the replies.

`received` runs for each read of the stream and never waits: what a handler answers at once is
encoded at once, what suspends gets a task. So the stream is always read, however slow a handler is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Literal, NoReturn, TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.router.admission import AdmissionGate, Shares
from component.router.calls import Calls, expect
from component.router.fair_queue import Event, FairQueue, are_small, of_one_sender
from component.router.rare_log import RareLog
from component.router.replies import Output, Replies
from component.router.route_resolver import RequestHead, ResolvedRoute, RouteResolver
from component.router.senders import Sender, Senders
from component.router.table import Request, Route, Table
from component.router.work import Work, discard, failed
from xep.binding import ContentError, Encoded, Payload
from xep.fluux_agent import errors
from xep.fluux_agent.errors import Retry
from xep.jid import JID
from xep.stanza import Incoming
from xep.stanza_error import StanzaError
from xep.stream import StanzaSkipped

__all__ = ["Event", "Router", "RouterOptions"]

P = TypeVar("P", bound=Payload)

_log = structlog.get_logger("component.router")
_MESSAGE_TYPES = frozenset(("chat", "error", "groupchat", "headline", "normal"))
_BOUNCED = frozenset(("chat", "normal"))
"""Nothing is bounced that bounces could answer: errors, headlines, what a room sends."""
_NOBODY = "no agent has this address"

_TOO_MUCH_WAITS = "you have sent more than can be handled so quickly; wait and send it again"

_ANSWERS = frozenset(("result", "error"))
_READY = (Encoded, Payload)
"""What can be sent at once, as an answer that is awaited cannot."""

_STRAIGHT_THROUGH = 4
"""A read of so few stanzas is handled in its own order; sorting it by principal gains nothing."""
_SLICE = 16
_SLICE_S = 0.001
"""Stanzas, and seconds, of work after which what has come meanwhile is looked at."""
_LONGEST_ROUND = 8
"""Principals that are served before the answers of those that wait no more are sent."""
_SMALL_BYTES = 16_384
"""Bytes of stanzas that are handled without a look at the clock."""


class RouterOptions(msgspec.Struct, frozen=True):
    """What a router is told by the settings.

    Attributes:
        domain: the component's own domain.
        agents: localparts of the agents it hosts.
        shares: how many requests may be under way.
        admins: bare addresses that may have the reserved ones of them.
        request_timeout_s: seconds after which a handler that still runs is cancelled.
        retry_after_s: seconds named in the retry hint of a refusal that may pass.
        call_timeout_s: seconds to wait for the answer to an IQ of ours.
        max_stanza_bytes: the largest stanza to send; servers close the stream on larger ones.
    """

    domain: str
    agents: frozenset[str] = frozenset()
    shares: Shares = Shares()
    admins: frozenset[str] = frozenset()
    request_timeout_s: float = 60.0
    retry_after_s: int = 5
    call_timeout_s: float = 30.0
    max_stanza_bytes: int = 262_144


class Router:
    """Dispatches stanzas to their handlers and sends the replies.

    Every IQ get or set gets exactly one reply. Results and errors are never refused: they go to
    the call that waits for them. A principal over its share is refused at once, alone.
    """

    def __init__(
        self,
        options: RouterOptions,
        routes: Iterable[Route],
        admits: Callable[[JID], bool],
        output: Output,
        flush: Callable[[], None],
        clock: Callable[[], float] = perf_counter,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Be told by `refused` whom policy does not admit, at each stanza of theirs."""
        self.table = Table(routes)
        self.options = options
        self.domain = JID.parse(options.domain)
        self._output = output
        self._replies = Replies(output, options.domain, options.max_stanza_bytes)
        self._flush = flush
        self._clock = clock
        self._refused = refused
        self._senders = Senders(admits, self.domain.domain)
        self._routes = RouteResolver(self._senders, self.domain, options.agents, self.table)
        self._admission = AdmissionGate(options.shares, options.admins)
        self._calls = Calls(output.put)
        self._work = Work(self._admission, self._replies, flush, options.request_timeout_s)
        self._queue = FairQueue()
        self._rare_log = RareLog(_log, clock)

    # -- life ------------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the tasks of slow handlers until cancelled; what is cancelled is still answered."""
        await self._work.run(task_status=task_status)

    async def drain(self, timeout_s: float) -> int:
        """Take on nothing new and wait until what is under way is answered.

        What still runs after ``timeout_s`` seconds is cancelled, which answers it too. Returns how
        many requests that were.
        """
        while self.received(()):
            pass
        return await self._work.drain(timeout_s)

    def disconnected(self, reason: str) -> None:
        """The stream is gone: nobody will answer the calls that went out on it."""
        _log.debug("calls in flight fail", reason=reason)
        self._calls.connection_lost()

    # -- figures ---------------------------------------------------------------------------------

    @property
    def answered(self) -> Mapping[str, int]:
        """IQs answered so far: `result`, and the conditions of errors."""
        return {"result": self._replies.results, **self._replies.errors}

    @property
    def under_way(self) -> int:
        """Requests that somebody works on, beside the stream."""
        return self._admission.total

    @property
    def waiting(self) -> int:
        """Stanzas that came and wait for their turn."""
        return self._queue.waiting

    # -- out -------------------------------------------------------------------------------------

    async def call(
        self,
        type_: Literal["get", "set"],
        to: JID,
        payload: Payload,
        expected: type[P],
        *,
        from_: JID | None = None,
        timeout_s: float | None = None,
        known_errors: tuple[type[Payload], ...] = errors.CONDITIONS,
    ) -> P:
        """Send an IQ and return the payload of its result.

        ``known_errors`` are the application conditions to decode from an error.

        Raises:
            StanzaError: the peer's error, ``remote-server-timeout`` when none answered,
                ``policy-violation`` when the answer cannot be read here, or
                ``undefined-condition`` when it is no ``expected``.
        """
        answer = await self._calls.call(
            type_,
            to,
            from_ or self.domain,
            payload,
            self.options.call_timeout_s if timeout_s is None else timeout_s,
            known_errors,
        )
        return expect(expected, answer)

    # -- in --------------------------------------------------------------------------------------

    def received(self, events: Sequence[Event]) -> int:
        """Take what one read of the stream brought, and handle a slice of what waits.

        Stanzas of one principal keep their order. Several principals share the time that handling
        takes, and the answers of one that has nothing waiting any more are sent at once.

        Returns how many stanzas still wait. While there are any it is to be called again, with what
        has come meanwhile or with nothing: so that a turn of somebody new is never far away.
        """
        queue = self._queue
        if not queue.waiting and self._is_short(events):
            for event in events:
                self._handle(event)
            return 0
        for event in queue.add(events):
            self._handle_refused(event)
        if not queue.waiting:
            return 0
        clock, handle, take, charge = self._clock, self._handle, queue.take, queue.charge
        principals = queue.principals
        left = min(principals, _LONGEST_ROUND)
        now = clock()
        over = now + _SLICE_S
        for _ in range(min(queue.waiting, _SLICE)):
            event = take()
            if queue.principals < principals and not are_small((event,), _SMALL_BYTES):
                self._flush()  # their answers are not to wait for what may take long
                principals = queue.principals
            handle(event)
            began, now = now, clock()
            charge(now - began)
            if now > over:
                break
            left -= 1
            if not left:
                if 0 < queue.principals < principals:
                    self._flush()
                principals = queue.principals
                left = min(principals, _LONGEST_ROUND) if principals > 1 else _SLICE
        if 0 < queue.principals < principals:
            self._flush()
        return queue.waiting

    @staticmethod
    def _is_short(events: Sequence[Event]) -> bool:
        """Whether what one read brought takes so little time that it need not be shared."""
        count = len(events)
        if count <= 1:
            return True
        if count > _STRAIGHT_THROUGH and not (count <= _SLICE and of_one_sender(events)):
            return False
        return are_small(events, _SMALL_BYTES)

    def _handle_refused(self, event: Event) -> None:
        """Handle a stanza whose principal has as much waiting as it may: refuse what is answered.

        An answer is taken: whoever waits for it has asked for it, and it takes no time otherwise.
        """
        if isinstance(event, StanzaSkipped):
            self._refuse_skipped(event)
            return
        stanza = event.stanza
        if stanza.kind == "iq" and stanza.type in _ANSWERS:
            self._handle(event)
            return
        sender = self._senders.of(stanza.sender or "")
        if stanza.kind == "iq" and stanza.type in ("get", "set") and stanza.id is not None:
            if sender.jid is None or not sender.admitted:
                self._handle(event)
            else:
                self._replies.error(stanza, self._constraint(_TOO_MUCH_WAITS))
        elif stanza.kind == "message" and sender.admitted and stanza.type in _BOUNCED:
            self._replies.bounce(stanza, self._constraint(_TOO_MUCH_WAITS))

    def _handle(self, event: Event) -> None:
        if isinstance(event, StanzaSkipped):
            self._refuse_skipped(event)
            return
        stanza = event.stanza
        kind = stanza.kind
        if kind == "iq":
            if stanza.type not in _ANSWERS:
                self._handle_request(stanza)
            elif not self._calls.answered(stanza):
                _log.debug("an answer nobody waits for", sender=stanza.sender)
        elif kind is not None:
            self._handle_silent(stanza)
        else:
            _log.warning("ignored an element that is no stanza", name=stanza.name)

    def _handle_request(self, stanza: Incoming) -> None:
        route = self._routes.of(stanza)
        try:
            if not isinstance(route, ResolvedRoute) or stanza.id is None:
                if not route.sender.admitted:
                    self._refused(route.sender.principal_text)
                _refuse(stanza, route)
            if self._work.draining or self._output.congested or route.place_first:
                self._check_busy(route.sender)
            try:
                payload = stanza.sole_decoded(route.decode)
            except ContentError as error:
                raise errors.malformed(str(error)) from error
            handler = route.handler
            answer = handler(
                Request(stanza, route.requester, route.principal, route.to, route.home, payload)
            )
        except StanzaError as error:
            self._replies.error(stanza, error)
        except Exception as error:  # noqa: BLE001 - a handler's fault must still be answered
            self._replies.error(stanza, failed(stanza, error))
        else:
            if type(answer) is Encoded:
                self._replies.encoded(stanza, answer, route.reply)
            elif answer is None or isinstance(answer, _READY):
                self._replies.result(stanza, answer)
            elif (busy := self._busy(route.sender)) is None:
                self._work.request(stanza, route.sender, answer)
            else:
                discard(answer)
                self._replies.error(stanza, busy)

    def _check_busy(self, sender: Sender) -> None:
        busy = self._busy(sender)
        if busy is not None:
            raise busy

    def _busy(self, sender: Sender) -> StanzaError | None:
        """Why nothing more can be taken on for this sender now; None when it can."""
        if self._work.draining:
            text = "the service is stopping; try again later"
        elif self._output.congested:
            text = "the server reads our answers too slowly; try again later"
        else:
            refusal = self._admission.refusal(sender.principal_text)
            if refusal is None:
                return None
            text = refusal
        return self._constraint(text)

    def _constraint(self, text: str) -> StanzaError:
        retry = Retry(after=self.options.retry_after_s)
        return StanzaError("resource-constraint", text, application=(retry,))

    def _handle_silent(self, stanza: Incoming) -> None:
        """A message or a presence: whoever is refused hears nothing. Who is let in and has mistaken
        the address is told so (RFC 6121 §8.5.1).
        """
        sender = self._senders.of(stanza.sender or "")
        if sender.jid is None or sender.principal is None or not sender.admitted:
            self._refused(sender.principal_text)
            return
        to, host = self._routes.address(stanza.to)
        type_ = stanza.type
        if stanza.kind == "message" and type_ not in _MESSAGE_TYPES:
            type_ = "normal"  # RFC 6121 §5.2.2
        if host is None or stanza.kind is None:
            if stanza.kind == "message" and type_ in _BOUNCED:
                self._replies.bounce(stanza, StanzaError("service-unavailable", _NOBODY))
            return
        route = self.table.stanza(host, stanza.kind, type_)
        if route is None:
            return
        busy = self._busy(sender)
        if busy is not None:
            if type_ in _BOUNCED:
                self._replies.bounce(stanza, busy)
            return
        request = Request(stanza, sender.jid, sender.principal, to, host, None)
        try:
            working = route.handler(request)
        except Exception:  # noqa: BLE001 - a handler's fault stays its own
            _log.exception("a handler failed", kind=stanza.kind, sender=stanza.sender)
            return
        if working is not None:
            self._work.silent(stanza, sender, working)

    def _refuse_skipped(self, event: StanzaSkipped) -> None:
        why = event.limit if event.error is None else event.error.text
        self._rare_log.warning("skipped a stanza", sender=event.from_, bytes=event.size, reason=why)
        if event.kind != "iq":
            return
        if event.type not in ("get", "set"):
            self._calls.skipped(event.id, event.from_)
            return
        sender = self._senders.of(event.from_ or "")
        if sender.jid is None:
            error = StanzaError("jid-malformed", sender.refusal)
        elif not sender.admitted:
            self._refused(sender.principal_text)
            error = StanzaError("service-unavailable")
        else:
            error = _unread(event)
        self._replies.error_to(event.id, event.from_, event.to, error)


def _refuse(stanza: Incoming, head: RequestHead) -> NoReturn:
    """Say why a request is refused that nothing serves, or that has no id."""
    if head.sender.jid is None:
        raise StanzaError("jid-malformed", head.sender.refusal)
    if not head.sender.admitted:
        raise StanzaError("service-unavailable")
    if stanza.id is None or stanza.type not in ("get", "set"):
        raise StanzaError("bad-request", "an IQ needs an id and a type (RFC 6120 §8.2.3)")
    if head.child is None:
        raise StanzaError("bad-request", "an IQ of type get or set holds exactly one child")
    if head.host is None:
        raise StanzaError("service-unavailable", _NOBODY)
    raise StanzaError("service-unavailable", "no such service here")


def _unread(event: StanzaSkipped) -> StanzaError:
    """Why a stanza was skipped, for its sender."""
    if event.error is not None:
        return errors.malformed(event.error.text)
    if event.limit == "bytes":
        return errors.too_big()
    error = errors.too_big()
    error.text = f"The stanza holds more {event.limit} than one may."
    return error
