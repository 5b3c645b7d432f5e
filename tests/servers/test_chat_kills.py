"""Chat messages while the service is killed with -9: what it has confirmed, it answers.

A component's stream has no acknowledgements (XEP-0114), so what the server has written to it in the
moment of a kill is lost. A receipt (XEP-0184) says that a message is on disk: its sender gets an
answer, whatever happens afterwards. Messages that find no service come back as errors.
"""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Self

import pytest

from tests.component.models.answers import Answer, Text
from tests.component.models.endpoint import Request
from tests.profiles import SEED, THOROUGH
from tests.servers.base import Server
from tests.servers.chatting import chatting
from tests.servers.clients import Element, SlixClient
from tests.servers.talk import login
from tests.waiting import until

pytestmark = [pytest.mark.servers]

KILLS = 35 if THOROUGH else 1
_NUMBER = re.compile(r"message (\d+)")
_RECEIVED = "{urn:xmpp:receipts}received"


def _answer(request: Request) -> Answer:
    """Name the messages of the person that no answer names yet."""
    said, told = set[str](), set[str]()
    for each in request.messages:
        (told if each["role"] == "assistant" else said).update(_NUMBER.findall(str(each)))
    return Text(", ".join(f"message {number}" for number in sorted(said - told, key=int)))


def _receipts(messages: list[Element]) -> Iterator[int]:
    for message in messages:
        received = message.find(_RECEIVED)
        if received is not None:
            yield int(received.attrib["id"].removeprefix("m"))


def _answered(messages: list[Element]) -> Iterator[int]:
    for message in messages:
        if message.get("type") != "error":
            body = message.findtext("{jabber:client}body") or ""
            yield from map(int, _NUMBER.findall(body))


class Talker:
    """Sends messages all the time, in a thread of its own."""

    def __init__(self, client: SlixClient, to: str, chance: Random) -> None:
        self.sent = 0
        self._client = client
        self._to = to
        self._chance = chance
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._talk)

    def _talk(self) -> None:
        while not self._over.wait(self._chance.uniform(0.02, 0.3)):
            self._client.send_raw(
                f"<message type='chat' id='m{self.sent}' to='{self._to}'>"
                f"<body>message {self.sent}</body><thread>t{self.sent}</thread>"
                "<request xmlns='urn:xmpp:receipts'/></message>"
            )
            self.sent += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.both_servers
def test_each_message_with_a_receipt_is_answered(xmpp_server: Server, tmp_path: Path) -> None:
    chance = Random(SEED)
    limits = {"loop__waiting_per_principal": 10_000}
    with chatting(xmpp_server, tmp_path, **limits) as chat, login(xmpp_server) as juliet:
        chat.model.otherwise = _answer
        with Talker(juliet, chat.assistant, Random(SEED)) as talker:
            for _ in range(KILLS):
                goal = talker.sent + 1 + chance.randrange(8)
                until(
                    lambda: talker.sent >= goal and any(_receipts(juliet.messages.all()))  # noqa: B023
                )
                chat.again()
        until(
            lambda: set(_receipts(juliet.messages.all())) <= set(_answered(juliet.messages.all()))
        )
        received = set(_receipts(juliet.messages.all()))
        print(f"{talker.sent} messages, {len(received)} receipts, all answered")
        assert received
