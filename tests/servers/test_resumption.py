"""A client whose connection breaks: what it gets twice or late, and what it says again.

The client has stream management (XEP-0198) and loses its connection before it has acknowledged
anything, as a phone does that changes networks.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from conformance.drivers.deliveries import Deliveries
from tests.component.models.endpoint import Calls, Text
from tests.servers.base import Server
from tests.servers.chatting import STATES, Chat, words
from tests.servers.clients import Element
from tests.servers.raw_client import log_in
from xep.stanza import Incoming

pytestmark = [pytest.mark.servers]

TIMEOUT = 120.0  # seconds; a bound for a busy machine, not an expectation
STANZA: Final = re.compile(rb"<(message|iq)\b(?:[^>]*/>|.*?</\1>)", re.DOTALL)
BODY: Final = "{jabber:client}body"
DELAY: Final = "{urn:xmpp:delay}delay"


class Phone:
    """A client of Juliet's that acknowledges nothing, and can lose its connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._token = secrets.token_hex(4)
        self._connect(bind=True)
        self.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/><presence/>")
        found = re.search(rb" id=['\"]([^'\"]+)", self._until(rb"<enabled [^>]*>"))
        assert found is not None
        self._session = found[1].decode()

    def _connect(self, *, bind: bool) -> None:
        self._socket = log_in(self._server, "juliet", resource=self._token, bind=bind)
        self._socket.settimeout(TIMEOUT)
        self._came = b""

    def breaks(self) -> None:
        """Lose the connection, without a word to the server."""
        self._socket.close()

    def resumes(self) -> None:
        """Connect again and resume the session; what it had is lost, so it has handled nothing."""
        self._connect(bind=False)
        self.send(f"<resume xmlns='urn:xmpp:sm:3' h='0' previd='{self._session}'/>")
        self._until(rb"<resumed [^>]*>")

    def send(self, xml: str) -> None:
        self._socket.sendall(xml.encode())

    def says(self, to: str, name: str, text: str, inside: str = "") -> None:
        """Send a chat message; the same one again if its name was used before."""
        id_ = f"{name}-{self._token}"
        origin = f"<origin-id xmlns='urn:xmpp:sid:0' id='{id_}'/>"
        body = f"<body>{text}</body>{origin}{inside}"
        self.send(f"<message type='chat' to='{to}' id='{id_}'>{body}</message>")

    def takes(self, where: Callable[[Element], bool]) -> Element:
        """The next message or IQ that `where` accepts."""
        while True:
            found = STANZA.search(self._until(STANZA.pattern))
            assert found is not None
            stanza = ET.fromstring(b"<s xmlns='jabber:client'>" + found[0] + b"</s>")[0]
            if where(stanza):
                return stanza

    def hears(self, words: str) -> Element:
        """The next message with these words in its body."""
        return self.takes(lambda stanza: words in stanza.findtext(BODY, ""))

    def _until(self, pattern: bytes) -> bytes:
        while (found := re.search(pattern, self._came, re.DOTALL)) is None:
            data = self._socket.recv()
            assert data, f"the server has ended the stream: {self._came!r}"
            self._came += data
        before, self._came = self._came[: found.end()], self._came[found.end() :]
        return before


@pytest.fixture
def phone(chat: Chat) -> Iterator[Phone]:
    phone = Phone(chat.server)
    phone.says(chat.assistant, "new", "/new")
    phone.hears("new")
    chat.model.requests.clear()
    yield phone
    phone.breaks()


def ids(stanza: Element) -> set[str]:
    """All ids that a message has: its own, its author's, its archive's."""
    return {one for each in (stanza, *stanza) if (one := each.get("id")) is not None}


def incoming(stanza: Element) -> Incoming:
    return Incoming.of(stanza, len(ET.tostring(stanza)))


def test_what_is_delivered_twice_is_one_message(chat: Chat, phone: Phone) -> None:
    chat.model.answers(Text("Good evening, Juliet."))
    phone.says(chat.assistant, "hello", "Good evening!")
    first = phone.hears("Good evening, Juliet.")
    phone.breaks()
    phone.resumes()
    second = phone.hears("Good evening, Juliet.")
    assert second.get("id") == first.get("id")
    assert ids(second) == ids(first)
    assert second.find(DELAY) is not None
    # The conformance kit counts it once, too.
    deliveries = Deliveries(chat.server.jid("juliet"), datetime.now(UTC) - timedelta(minutes=1))
    assert deliveries.is_new(incoming(first))
    assert not deliveries.is_new(incoming(second))


def test_an_answer_comes_late_and_the_question_twice(chat: Chat, phone: Phone) -> None:
    chat.model.answers(Calls(("lookup", {"run": "lost"})), Text("It was in the garden."))
    phone.says(chat.assistant, "question", "Where is it?", f"<active xmlns='{STATES[1:-1]}'/>")
    phone.takes(lambda stanza: stanza.find(f"{STATES}composing") is not None)
    phone.breaks()
    chat.open_gate("lost")
    phone.resumes()
    phone.hears("It was in the garden.")
    # It does not know whether its question has arrived, so it asks once more.
    phone.says(chat.assistant, "question", "Where is it?")
    phone.says(chat.assistant, "ping", "/ping")
    phone.hears("pong")
    chat.model.answers(Text("It is dark."))
    phone.says(chat.assistant, "next", "What else?")
    phone.hears("It is dark.")
    assert len(chat.model.requests) == 3
    assert words(chat.model.requests[-1]) == ["Where is it?", "What else?"]


def test_a_yes_that_comes_twice_approves_once(chat: Chat, phone: Phone) -> None:
    chat.model.answers(Calls(("wipe", {"disk": "sdr"})), Text("The disk sdr is empty now."))
    phone.says(chat.assistant, "wish", "Wipe sdr!")
    question = phone.hears("sdr")
    of = f"<reply xmlns='urn:xmpp:reply:0' to='{chat.assistant}' id='{question.get('id')}'/>"
    phone.says(chat.assistant, "yes", "yes", of)
    phone.breaks()
    phone.resumes()
    phone.hears("sdr is empty now")
    phone.says(chat.assistant, "yes", "yes", of)
    phone.says(chat.assistant, "ping", "/ping")
    phone.hears("pong")
    assert [line for line in chat.effects() if "sdr" in line] == ["wiped sdr"]
