"""A server's component listener in a thread, as ejabberd's: it takes several of one domain.

It says who a stanza is from, as a server does, so a test can ask as anybody at `HOME`. It outlives
the components that come and go, and keeps what they have sent. It parses with the standard library,
and holds every payload of the protocol against its schema.

    with Dealer() as server:
        ...                                # start services: it is `Attachable`
        one = server.link(0)               # the first that connected
        reply = server.iq(one, "ann@home.test/desk", payload, "set")
"""

import contextlib
import hashlib
import itertools
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Self
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from tests import schemas
from tests.servers.clients import Element, Inbox

HOME = "home.test"
DOMAIN = f"agent.{HOME}"
ASSISTANT = f"assistant@{DOMAIN}"
TIMEOUT = 120.0  # seconds; a bound for a busy machine, not an expectation
_HEADER = (
    "<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept'"
    " xmlns:stream='http://etherx.jabber.org/streams' id='{}' from='{}'>"
)


class Gone(ConnectionError):  # noqa: N818 - reads as what happened
    """The component's connection ended before it had answered."""


class Link:
    """One component that has connected."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.open = True
        self.waiting: dict[str, Future[Element]] = {}
        self.lock = threading.Lock()

    def send(self, text: str) -> None:
        """Send it whole. Raises Gone."""
        try:
            with self.lock:
                self.socket.sendall(text.encode())
        except OSError as error:
            raise Gone(str(error)) from None


class Dealer:
    """Takes every component that knows the secret, from entering to leaving."""

    component_domain = DOMAIN
    secret = "secret of the dealer"
    accounts: dict[str, str] = {}  # noqa: RUF012 - nobody changes it

    def __init__(self) -> None:
        self.messages = Inbox("message")
        self.finals: dict[str, list[Element]] = {}
        """The tasks that have ended, by id, with the messages that said so."""
        self.misfits: list[str] = []
        self._changed = threading.Condition()
        self._links: list[Link] = []
        self._ids = itertools.count(1)
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def agent_toml(self) -> str:
        """The configuration of a service for it."""
        return (
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\ncomponent_domain = "{DOMAIN}"\n'
            f'component_secret = "${{AGENT_SECRET}}"\n[agent]\nallowed_domains = ["{HOME}"]\n'
        )

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            with contextlib.suppress(OSError):
                link.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(TIMEOUT)
        assert not self.misfits, "\n".join(self.misfits)

    # For tests.

    def link(self, number: int) -> Link:
        """The component that has connected as that one, counting from 0, waiting for it."""
        self.wait(lambda: len(self._links) > number, f"component {number} to connect")
        return self._links[number]

    @property
    def count(self) -> int:
        """How many have connected so far."""
        with self._changed:
            return len(self._links)

    def start_iq(
        self,
        link: Link,
        sender: str,
        payload: str,
        type: str = "get",  # noqa: A002
        to: str = ASSISTANT,
    ) -> Future[Element]:
        """Send an IQ to that component; the future fails with Gone when its connection ends."""
        id_ = f"iq-{next(self._ids)}"
        reply: Future[Element] = Future()
        link.waiting[id_] = reply
        attributes = {"id": id_, "type": type, "to": to, "from": sender}
        text = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
        try:
            link.send(f"<iq{text}>{payload}</iq>")
        except Gone as gone:
            self._fail(link, id_, gone)
        else:
            if not link.open:
                self._fail(link, id_, Gone("it had gone"))
        return reply

    def iq(
        self,
        link: Link,
        sender: str,
        payload: str,
        type: str = "get",  # noqa: A002
        to: str = ASSISTANT,
    ) -> Element:
        """Send an IQ and return the reply. Raises Gone, TimeoutError."""
        return self.start_iq(link, sender, payload, type, to).result(TIMEOUT)

    def wait(self, test: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> float:
        """Wait until something holds that changes with what comes in; return for how long."""
        began = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(test, timeout):
                raise TimeoutError(f"waited {timeout} s for {what}")
        return time.monotonic() - began

    def poll(self, test: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> float:
        """Do what `wait` does, for what shows elsewhere and nobody tells, as in a file."""
        began = time.monotonic()
        while not test():
            if time.monotonic() - began > timeout:
                raise TimeoutError(f"waited {timeout} s for {what}")
            time.sleep(0.02)  # between two looks
        return time.monotonic() - began

    def wait_gone(self, link: Link) -> None:
        """Wait until the connection has ended."""
        self.wait(lambda: not link.open, "the connection to end")

    def ended(self, task: str, timeout: float = TIMEOUT) -> Element:
        """The task as the message of its end tells it, waiting for that."""
        self.wait(lambda: task in self.finals, f"the end of {task}", timeout)
        told = self.finals[task][0].find("{*}task")
        assert told is not None
        return told

    # The listener.

    @staticmethod
    def _fail(link: Link, id_: str, gone: Gone) -> None:
        # Whoever takes it out is the one who says so: two threads notice that a link has gone.
        if reply := link.waiting.pop(id_, None):
            reply.set_exception(gone)

    def _start(self, function: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        link = Link(sock)
        try:
            self._read(link)
        finally:
            link.open = False
            sock.close()
            for id_ in list(link.waiting):
                self._fail(link, id_, Gone("it has gone"))
            with self._changed:
                self._changed.notify_all()

    def _read(self, link: Link) -> None:
        parser = ET.XMLPullParser(("start", "end"))
        stream_id, depth = f"stream-{next(self._ids)}", 0
        root: Element | None = None
        while True:
            try:
                data = link.socket.recv(65536)
            except OSError:
                return
            if not data:
                return
            parser.feed(data)
            for event, element in parser.read_events():
                assert isinstance(element, ET.Element)
                if event == "start":
                    depth += 1
                    if depth == 1:
                        root = element
                        link.send(_HEADER.format(stream_id, DOMAIN))
                    continue
                depth -= 1
                if depth == 0:
                    with contextlib.suppress(Gone):
                        link.send("</stream:stream>")
                    return
                if depth == 1:
                    assert root is not None
                    root.clear()
                    self._take(link, element, stream_id)

    def _take(self, link: Link, element: Element, stream_id: str) -> None:
        kind = element.tag.rpartition("}")[2]
        if kind == "handshake":
            proof = hashlib.sha1((stream_id + self.secret).encode()).hexdigest()
            assert element.text == proof, "it does not know the secret"
            link.send("<handshake/>")
            with self._changed:
                self._links.append(link)
                self._changed.notify_all()
            return
        try:
            schemas.check(ET.tostring(element))
        except AssertionError as misfit:
            self.misfits.append(str(misfit))
        if kind == "iq":
            self._take_iq(link, element)
        elif kind == "message":
            self._take_message(element)

    def _take_iq(self, link: Link, iq: Element) -> None:
        id_ = iq.get("id", "")
        if iq.get("type") in ("result", "error"):
            if waiting := link.waiting.pop(id_, None):
                waiting.set_result(iq)
            return
        with contextlib.suppress(Gone):  # it may have been killed since
            link.send(
                f"<iq type='error' id={quoteattr(id_)} from={quoteattr(iq.get('to', ''))}"
                f" to={quoteattr(iq.get('from', ''))}><error type='cancel'><service-unavailable"
                " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
            )

    def _take_message(self, message: Element) -> None:
        told = message.find("{*}task")
        with self._changed:
            if told is not None and message.get("type") == "normal":
                self.finals.setdefault(told.get("id", ""), []).append(message)
            self._changed.notify_all()
        self.messages.put(message)
