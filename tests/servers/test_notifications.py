"""Webhooks start work, and its results reach people: at once, after the night, as a digest, or when
they come online.
"""

import base64
import hmac
import json
import re
import sqlite3
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest

from tests.servers.base import PortLease, Server
from tests.servers.chatting import Chat, asks, body, chatting, heard, say
from tests.servers.clients import SlixClient
from tests.servers.talk import login

pytestmark = [pytest.mark.servers]

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Hooked:
    """A service with webhooks, and a sender."""

    def __init__(self, chat: Chat, port: int) -> None:
        self.chat = chat
        self.port = port
        self.sent = 0

    @property
    def assistant(self) -> str:
        return self.chat.assistant

    def post(self, path: str, text: str) -> Any:
        """Send a delivery; the answer."""
        self.sent += 1
        content = json.dumps({"text": text}).encode()
        id_, at = f"msg_{self.sent}", str(int(time.time()))
        signed = f"{id_}.{at}.".encode() + content
        signature = base64.b64encode(hmac.new(KEY, signed, sha256).digest()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            content,
            {
                "Content-Type": "application/json",
                "webhook-id": id_,
                "webhook-timestamp": at,
                "webhook-signature": f"v1,{signature}",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.status == 202
            return json.loads(response.read())


@pytest.fixture(scope="module")
def hooked(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooked]:
    common = {"secret": SECRET, "skill": "echo", "params": {"text": "text"}}
    juliet, romeo = xmpp_server.jid("juliet"), xmpp_server.jid("romeo")
    hooks = [
        {"name": "now", "principal": juliet, "template": "News: $text", **common},
        {"name": "online", "principal": romeo, "deliver": "online", **common},
    ]
    lease = PortLease("127.0.0.1")
    with chatting(
        xmpp_server,
        tmp_path_factory.mktemp("hooked"),
        http__port=lease.port,
        webhook=hooks,
        notifications__quiet="",
        notifications__per_window=3,
        notifications__window_s=60,
    ) as chat:
        yield Hooked(chat, lease.port)
    lease.release()


@pytest.fixture(scope="module")
def juliet(hooked: Hooked) -> Iterator[SlixClient]:
    with login(hooked.chat.server) as client:
        yield client


def night() -> str:
    """Hours that begin an hour ago and end in two, UTC."""
    now = datetime.now(UTC)
    return f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=2):%H:%M}"


def test_a_delivery_reaches_its_person(hooked: Hooked, juliet: SlixClient) -> None:
    answer = hooked.post("/now", "it rains")
    assert answer["status"] == "accepted"
    message = heard(juliet, "it rains")
    assert body(message) == "News: it rains"
    assert message.attrib["from"] == hooked.assistant
    assert message.attrib["type"] == "chat"
    assert message.find("{urn:xmpp:receipts}request") is not None


def test_nobody_is_notified_at_night(hooked: Hooked, juliet: SlixClient) -> None:
    asks(juliet, hooked.assistant, f"/quiet {night()} UTC", "Your quiet hours are")
    for number in range(6):
        hooked.post("/now", f"owl {number}")
    listed = ""
    while listed.count("owl") < 6:  # the tasks end one after another
        listed = asks(juliet, hooked.assistant, "/notifications", "held")
    assert "held for now" in listed
    (first, *_) = re.findall(r"\(id (\w+)\)", listed)
    asks(juliet, hooked.assistant, f"/drop-notification {first}", "1 notification")
    asks(juliet, hooked.assistant, "/quiet off", "no quiet hours")
    said: list[str] = []
    while sum(one.count("owl") for one in said) < 5:
        said.append(body(heard(juliet, "owl")))
    # At most three messages fit into the window, so the last one is a digest.
    assert len(said) <= 3
    assert " notifications:" in said[-1]


@pytest.mark.thorough
def test_a_held_result_survives_a_kill_and_waits_for_its_person(hooked: Hooked) -> None:
    with login(hooked.chat.server, "romeo") as romeo:
        romeo.send_raw(f"<presence type='subscribe' to='{hooked.assistant}'/>")
        romeo.presences.take(lambda stanza: stanza.get("from") == hooked.assistant)
    hooked.post("/online", "welcome back")
    database = next(hooked.chat.agent.directory.rglob("agent.db"))
    until = time.monotonic() + 30
    rows: list[Any] = []
    while not rows and time.monotonic() < until:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            rows = connection.execute(
                "SELECT person, waits_online, sent FROM notifications WHERE text = 'welcome back'"
            ).fetchall()
    assert rows == [(hooked.chat.server.jid("romeo"), 1, None)]
    hooked.chat.again()
    with login(hooked.chat.server, "romeo") as romeo:
        message = heard(romeo, "welcome back")
        assert message.attrib["from"] == hooked.assistant
        say(romeo, hooked.assistant, "/notifications")
        heard(romeo, "no held notifications")
