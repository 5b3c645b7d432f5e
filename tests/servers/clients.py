"""slixmpp as the peer that nobody here wrote: a client and a component, for tests on any loop.

slixmpp lives on asyncio, the tests on trio and asyncio. So each peer runs in a thread with a loop
of its own, behind a face of blocking calls; `a…` are their awaitable twins, on either backend.
Every wait is bounded and ends in TimeoutError, every broken stream in ConnectionError, so a test
never hangs. What a peer received is handed out as it came, as `xml.etree` elements. What a client
received of `urn:fluux:agent:0` is held against its schemas: closing the client says what misfits.

    with SlixClient("juliet@localhost", password, server.address, server.c2s_port) as juliet:
        reply = juliet.iq(to="agent.localhost", payload="<query xmlns='…'/>")

    async with SlixClient(…) as juliet:
        reply = await juliet.aiq(to="agent.localhost", payload="<query xmlns='…'/>")
        message = await juliet.anext_message()
"""

import asyncio
import contextlib
import copy
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

import slixmpp
from anyio import to_thread

from tests import schemas
from tests.servers.slix_echo import answer_execute

Element = ET.Element
T = TypeVar("T")
TIMEOUT = 120.0  # seconds; a bound for a busy machine, not an expectation


class PeerRefused(ConnectionError):  # noqa: N818 - reads as what happened
    """The server ended the stream or the login; `condition` is its reason, such as `conflict`."""

    def __init__(self, condition: str) -> None:
        super().__init__(f"the server refused or ended the stream: {condition}")
        self.condition = condition


class Inbox:
    """Stanzas of one kind in the order they came; tests may look, and take what they expect."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._stanzas: list[Element] = []
        self._changed = threading.Condition()

    def put(self, stanza: Element) -> None:
        with self._changed:
            self._stanzas.append(stanza)
            self._changed.notify_all()

    def all(self) -> list[Element]:
        """Return what has come and was not taken."""
        with self._changed:
            return list(self._stanzas)

    def take(
        self, where: Callable[[Element], bool] = lambda _: True, timeout: float = TIMEOUT
    ) -> Element:
        """Remove and return the first stanza that `where` accepts, waiting for it.

        Raises TimeoutError, naming what came instead.
        """
        give_up = time.monotonic() + timeout
        with self._changed:
            while True:
                for index, stanza in enumerate(self._stanzas):
                    if where(stanza):
                        return self._stanzas.pop(index)
                if not self._changed.wait(give_up - time.monotonic()):
                    others = [ET.tostring(s, "unicode") for s in self._stanzas]
                    raise TimeoutError(f"no such {self._kind} in {timeout} s; came: {others}")


class _Peer(ABC):
    """A slixmpp stream in a thread of its own. It connects once: for another try, make another."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.messages = Inbox("message")
        self.presences = Inbox("presence")
        self._ids = itertools.count(1)
        self._waiting: dict[str, Future[Element]] = {}
        self._session: Future[str] = Future()
        self._ended: Future[str] = Future()
        self._condition = ""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._answers: list[object] = []
        self.xmpp: Any  # slixmpp's own object; to be touched from its loop only

    @abstractmethod
    def _build(self) -> Any:
        """Make the slixmpp object, in its loop, not yet connected."""

    # Connecting and closing.

    def connect(self, timeout: float = TIMEOUT) -> Self:
        """Connect and log in; return when the session has started.

        Raises PeerRefused with the server's condition (`not-authorized`, `conflict`,
        `host-unknown`, …), ConnectionError when nobody listens, TimeoutError.
        """
        self._thread = threading.Thread(target=self._run, name="slixmpp", daemon=True)
        self._thread.start()
        try:
            self._session.result(timeout)
        except BaseException:
            self.close()
            raise
        return self

    def close(self, timeout: float = TIMEOUT) -> None:
        """Close the stream properly and wait for the end of the thread."""
        if self._thread is None:
            return
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just closed by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"slixmpp did not end within {timeout} s")
        self._thread = None

    def wait_closed(self, timeout: float = TIMEOUT) -> str:
        """Wait until the stream is gone; return the stream error's condition, if any came."""
        return self._ended.result(timeout)

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await to_thread.run_sync(self.connect)

    async def __aexit__(self, *exc: object) -> None:
        await to_thread.run_sync(self.close)

    # Sending and waiting.

    @property
    def jid(self) -> str:
        """The full JID that the server gave this session."""
        return self._session.result(0)

    def send_raw(self, xml: str) -> None:
        """Put `xml` on the stream as it is. Raises ConnectionError when there is none."""

        async def send() -> None:
            self.xmpp.send_raw(xml)

        self._in_loop(send)

    def start_iq(
        self,
        to: str | None,
        payload: str,
        type: str = "get",  # noqa: A002
        sender: str | None = None,
    ) -> Future[Element]:
        """Send an IQ with a fresh id and return the future reply (of type result or error).

        The future fails with ConnectionError when the stream ends first. `sender` is the `from`
        of the stanza, for components. Raises ParseError for a payload that is not well-formed.
        """
        ET.fromstring(payload)
        id_ = f"iq-{next(self._ids)}"
        attributes = {"id": id_, "type": type, "to": to, "from": sender}
        text = "".join(f" {k}={quoteattr(v)}" for k, v in attributes.items() if v is not None)
        return self.start_raw_iq(f"<iq{text}>{payload}</iq>")

    def start_raw_iq(self, xml: str) -> Future[Element]:
        """Send a whole IQ as it is written, with its own id, and return the future reply."""
        id_ = ET.fromstring(xml).attrib["id"]
        reply: Future[Element] = Future()
        self._waiting[id_] = reply
        try:
            self.send_raw(xml)
        except ConnectionError:
            self._waiting.pop(id_, None)
            raise
        return reply

    def iq(
        self,
        to: str | None,
        payload: str,
        type: str = "get",  # noqa: A002
        sender: str | None = None,
        timeout: float = TIMEOUT,
    ) -> Element:
        """Send an IQ and return the whole reply, result or error."""
        try:
            return self.start_iq(to, payload, type, sender).result(timeout)
        except TimeoutError:
            raise TimeoutError(f"no reply from {to} in {timeout} s to {payload}") from None

    async def aiq(
        self,
        to: str | None,
        payload: str,
        type: str = "get",  # noqa: A002
        sender: str | None = None,
        timeout: float = TIMEOUT,  # noqa: ASYNC109 - the thread's wait cannot be cancelled
    ) -> Element:
        """Do what `iq` does, awaitable."""
        return await self._in_thread(lambda: self.iq(to, payload, type, sender, timeout))

    def next_message(self, timeout: float = TIMEOUT) -> Element:
        """Take the oldest message, waiting for one."""
        return self.messages.take(timeout=timeout)

    async def anext_message(
        self,
        timeout: float = TIMEOUT,  # noqa: ASYNC109
    ) -> Element:
        """Do what `next_message` does, awaitable."""
        return await self._in_thread(lambda: self.next_message(timeout))

    def next_presence(self, timeout: float = TIMEOUT) -> Element:
        """Take the oldest presence, waiting for one. A client's own comes back to it first."""
        return self.presences.take(timeout=timeout)

    async def anext_presence(
        self,
        timeout: float = TIMEOUT,  # noqa: ASYNC109
    ) -> Element:
        """Do what `next_presence` does, awaitable."""
        return await self._in_thread(lambda: self.next_presence(timeout))

    def run(self, work: Callable[[Any], Coroutine[Any, Any, T]], timeout: float = TIMEOUT) -> T:
        """Call `work` with slixmpp's own object, in its loop, and return what it gives.

        For what slixmpp's plug-ins do. Raises what they raise, such as IqError.
        """
        assert self._loop is not None
        answer = asyncio.run_coroutine_threadsafe(work(self.xmpp), self._loop).result(timeout)
        # A part of a stanza of slixmpp has only a weak reference to the whole, without which it
        # no longer finds its own parts.
        self._answers.append(answer)
        return answer

    # Inside the thread.

    @staticmethod
    async def _in_thread(call: Callable[[], Element]) -> Element:
        # Not waiting for the thread lets a cancelled test go on; its wait is bounded anyway.
        return await to_thread.run_sync(call, abandon_on_cancel=True)

    def _in_loop(self, function: Callable[[], Any]) -> None:
        if self._loop is None or self._ended.done() or not self._session.done():
            raise ConnectionError(f"{type(self).__name__} has no stream: {self._condition or '-'}")
        coroutine = function()
        try:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT)
        except RuntimeError as error:  # the loop has closed meanwhile
            coroutine.close()
            raise ConnectionError(str(error)) from error
        except slixmpp.xmlstream.xmlstream.NotConnectedError as error:
            raise ConnectionError(f"{type(self).__name__} lost its stream") from error

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except Exception as error:  # noqa: BLE001 - whoever waits for the session must hear of it
            self._fail(error)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.xmpp = xmpp = self._build()
        xmpp.add_event_handler("session_start", self._on_session)
        xmpp.add_event_handler("connection_failed", self._on_connection_failed)
        xmpp.add_event_handler("failed_all_auth", self._on_failed_auth)
        xmpp.add_event_handler("stream_error", self._on_stream_error)
        xmpp.add_event_handler("disconnected", self._on_disconnected)
        xmpp.connect(self.host, self.port)
        await self._stop.wait()
        xmpp.cancel_connection_attempt()
        if xmpp.is_connected():
            await xmpp.disconnect(wait=2.0)

    def _on_session(self, _: object) -> None:
        if not self._session.done():
            self._session.set_result(str(self.xmpp.boundjid))

    def _on_connection_failed(self, error: object) -> None:
        self._fail(error if isinstance(error, OSError) else ConnectionError(str(error)))

    def _on_failed_auth(self, _: object) -> None:
        self._condition = self._condition or "not-authorized"

    def _on_stream_error(self, error: Any) -> None:
        self._condition = str(error["condition"])

    def _on_disconnected(self, reason: object) -> None:
        self._fail(
            PeerRefused(self._condition)
            if self._condition
            else ConnectionError(f"the stream ended: {reason}")
        )

    def _fail(self, error: Exception) -> None:
        if not self._session.done():
            self._session.set_exception(error)
        if not self._ended.done():
            self._ended.set_result(self._condition)
        while self._waiting:
            self._waiting.popitem()[1].set_exception(error)
        self._stop.set()

    def _record(self, stanza: Element) -> None:
        kind = stanza.tag.rpartition("}")[2]
        if kind == "iq" and stanza.get("type") in {"result", "error"}:
            if waiting := self._waiting.pop(stanza.get("id", ""), None):
                waiting.set_result(copy.deepcopy(stanza))
        elif kind == "message":
            self.messages.put(copy.deepcopy(stanza))
        elif kind == "presence":
            self.presences.put(copy.deepcopy(stanza))


class _Client(slixmpp.ClientXMPP):
    record: Callable[[Element], None]

    def incoming_filter(self, xml: Element) -> Element:
        # The one place where slixmpp shows a stanza before it adds attributes of its own.
        self.record(xml)
        return xml


class _Component(slixmpp.ComponentXMPP):
    record: Callable[[Element], None]

    def incoming_filter(self, xml: Element) -> Element:
        self.record(xml)
        changed: Element = super().incoming_filter(xml)  # type: ignore[no-untyped-call]
        return changed


class SlixClient(_Peer):
    """A slixmpp client. It answers pings and disco queries, and nothing else, by itself.

    With `ca_file` (`server.ca_file`) the session is encrypted by STARTTLS and the server's
    certificate verified; without, it is plain. With `presence` it is available once connected.
    `plugins` are slixmpp's, such as `xep_0115` for a client with capabilities.
    """

    def __init__(
        self,
        jid: str,
        password: str,
        host: str,
        port: int,
        *,
        ca_file: Path | None = None,
        presence: bool = True,
        plugins: tuple[str, ...] = ("xep_0030", "xep_0199"),
    ) -> None:
        super().__init__(host, port)
        self._login = (jid, password)
        self._ca_file = ca_file
        self._presence = presence
        self._plugins = plugins
        self._invalid: list[str] = []

    def close(self, timeout: float = TIMEOUT) -> None:
        """Do what every peer does. Raises AssertionError if what came does not fit its schema."""
        super().close(timeout)
        invalid, self._invalid = self._invalid, []
        assert not invalid, "\n".join(invalid)

    @property
    def encrypted(self) -> bool:
        """Whether the session runs over TLS."""
        return "starttls" in self.xmpp.features

    def _build(self) -> Any:
        plain = self._ca_file is None
        mechanisms = {"unencrypted_plain": plain, "unencrypted_scram": plain}
        xmpp = _Client(*self._login, plugin_config={"feature_mechanisms": mechanisms})
        xmpp.record = self._record
        xmpp.enable_direct_tls = False
        xmpp.enable_starttls = not plain
        xmpp.enable_plaintext = plain
        xmpp.ca_certs = self._ca_file
        xmpp.auto_authorize = None  # subscriptions are the test's to answer
        xmpp.auto_subscribe = False
        for plugin in self._plugins:
            xmpp.register_plugin(plugin)
        return xmpp

    def _record(self, stanza: Element) -> None:
        try:
            schemas.check(ET.tostring(stanza))
        except AssertionError as misfit:
            self._invalid.append(str(misfit))
        super()._record(stanza)

    def _on_session(self, event: object) -> None:
        if self._presence:
            self.xmpp.send_raw("<presence/>")
        super()._on_session(event)


class SlixComponent(_Peer):
    """A slixmpp component, to stand where ours will: it answers every execute like our `echo`."""

    def __init__(self, domain: str, secret: str, host: str, port: int) -> None:
        super().__init__(host, port)
        self._login = (domain, secret)

    def _build(self) -> Any:
        xmpp = _Component(*self._login, self.host, self.port)  # type: ignore[no-untyped-call]
        xmpp.record = self._record
        xmpp.auto_authorize = None
        xmpp.auto_subscribe = False
        answer_execute(xmpp)
        return xmpp
