"""Thousands of requests of a client, many at a time: each is answered."""

from collections import deque
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.profiles import SEED
from tests.servers.base import Server
from tests.servers.chatting import chatting
from tests.servers.clients import TIMEOUT, Element
from tests.servers.talk import INFO, PING, SKILLS, execute, login, query

pytestmark = [pytest.mark.servers, pytest.mark.both_servers, pytest.mark.thorough]

REQUESTS: Final = 5_000
AT_ONCE: Final = 64
KINDS: Final = (
    *(("get", PING),) * 8,
    *(("set", execute("weather", city="Verona")),) * 4,
    ("get", query(INFO)),
    ("get", query(SKILLS)),
    ("get", query("urn:example:unknown")),
    ("set", execute("nothing")),
)


def test_each_of_many_requests_is_answered(xmpp_server: Server, tmp_path: Path) -> None:
    chance = Random(SEED)
    with chatting(xmpp_server, tmp_path) as chat, login(xmpp_server) as juliet:
        waiting = deque[Future[Element]]()
        for _ in range(REQUESTS):
            if len(waiting) == AT_ONCE:
                waiting.popleft().result(TIMEOUT)
            type_, payload = chance.choice(KINDS)
            to = chance.choice((chat.assistant, chat.agent.domain))
            waiting.append(juliet.start_iq(to, payload, type_))
        for reply in waiting:
            reply.result(TIMEOUT)
