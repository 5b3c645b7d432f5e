"""Mixed traffic of many principals: what is remembered of it is bounded."""

import gc
import sys
from pathlib import Path
from random import Random
from typing import Final

import anyio
import pytest

from component.config import Agent, Conformance
from component.config.llm import LLM
from tests.component.link.connection.acceptor import DOMAIN, Link
from tests.component.models.answers import Text
from tests.component.models.endpoint import Endpoint, serving
from tests.hostile.attached import attached
from tests.profiles import SEED
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

STANZAS: Final = 10_000
"""In each of the rounds; the first two fill what is remembered."""
AT_ONCE: Final = 200
AGENT: Final = f"assistant@{DOMAIN}"
NS: Final = "urn:fluux:agent:0"
MEMORY: Final = (
    f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='{NS}#memory/{{who}}'>"
    f"<item id='k{{few}}'><memory xmlns='{NS}#memory' key='k{{few}}'><content>some {{n}}</content>"
    "</memory></item></publish></pubsub>"
)
EXECUTE: Final = (
    f"<execute xmlns='{NS}#execute' skill='echo'{{}}><param name='text'>{{{{n}}}}</param></execute>"
)
COMMAND: Final = f"<command xmlns='http://jabber.org/protocol/commands' node='{NS}#skills/echo'/>"
KINDS: Final = (
    ("iq", "get", "<ping xmlns='urn:xmpp:ping'/>"),
    ("iq", "get", "<query xmlns='http://jabber.org/protocol/disco#info'/>"),
    ("iq", "get", f"<query xmlns='{NS}#skills'/>"),
    ("iq", "set", EXECUTE.format("")),
    ("iq", "set", EXECUTE.format(" mode='async' request='r{n}'")),
    ("iq", "set", COMMAND),
    ("iq", "set", MEMORY),
    ("message", "chat", "<body>message {n}</body>"),
    ("message", "chat", "<body>/help</body>"),
    ("presence", "available", ""),
)


class Traffic:
    """The server's end of the stream, with the requests that were not answered yet."""

    def __init__(self, link: Link, model: Endpoint) -> None:
        self.pending: set[str] = set()
        self._link = link
        self._model = model
        self._chance = Random(SEED)
        self._sent = 0

    async def read(self) -> None:
        """Take what the service sends, until cancelled."""
        while True:
            stanza = await self._link.stanza()
            self.pending.discard(stanza.id or "")
            self._link.received.clear()
            self._model.requests.clear()

    async def round(self) -> int:
        """Send the stanzas of a round, wait for all answers, and return the allocated blocks."""
        for _ in range(STANZAS // AT_ONCE):
            for _ in range(AT_ONCE):
                await self._link.send(self._next())
            await eventually(lambda: not self.pending)
        gc.collect()
        return sys.getallocatedblocks()

    def _next(self) -> str:
        self._sent += 1
        kind, type_, inside = self._chance.choice(KINDS)
        number = self._chance.randrange(200)
        who = f"user{number}@d{number % 5}.test"
        if kind == "iq":
            self.pending.add(f"i{self._sent}")
        shown = "" if type_ == "available" else f" type='{type_}'"
        few = self._sent % 5
        inside = inside.replace("{who}", who).replace("{few}", str(few))
        return (
            f"<{kind} id='i{self._sent}'{shown} from='{who}/x' to='{AGENT}'>"
            f"{inside.replace('{n}', str(self._sent))}</{kind}>"
        )


async def test_memory_stops_growing_when_what_is_remembered_is_full(tmp_path: Path) -> None:
    async with serving() as model:
        model.otherwise = Text("Here you are.")
        llm = LLM(provider="openai", model="scripted", base_url=model.url, api_key="sk-x")  # type: ignore[arg-type]  # pydantic makes a SecretStr
        agent, kit = Agent(allowed_domains=("*",)), Conformance(enabled=True)
        async with (
            attached(tmp_path, llm=llm, agent=agent, conformance=kit) as link,
            anyio.create_task_group() as tasks,
        ):
            traffic = Traffic(link, model)
            tasks.start_soon(traffic.read)
            blocks = [await traffic.round() for _ in range(4)]
            tasks.cancel_scope.cancel()
    print("allocated blocks after each round:", blocks)
    assert blocks[-1] < blocks[-2] * 1.05
