"""What one principal sees is the same, byte for byte, whatever another one has and does.

Two services get the same requests of Alice. In one of them Bob has tasks, questions, memories, a
conversation and his own skill as well; in the other he and his skill do not exist. Random
identifiers and times aside, Alice must not be able to tell which one she talks to.
"""

import re
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.config import Agent, Conformance, Policy, RequestLimits, Rule, Skills
from tests.component.link.connection.acceptor import Link
from tests.hostile.attached import DOMAIN, attached
from tests.hostile.tap import Frames
from tests.profiles import examples

pytestmark = pytest.mark.anyio

ALICE: Final = "alice@good.test/desk"
BOB: Final = "bob@good.test/desk"
ASSISTANT: Final = f"assistant@{DOMAIN}"
FLUUX: Final = "urn:fluux:agent:0"
COMMANDS: Final = "http://jabber.org/protocol/commands"
DISCO: Final = "http://jabber.org/protocol/disco"

HIDDEN = '''
from component.skills import skill

@skill(name="only-bob", read_only=True, inline=True)
def only_bob() -> str:
    """Is there for Bob alone."""
    return "for Bob"
'''

_IDENTIFIER: Final = re.compile(r"(?<! version=['\"])\b[0-9a-f]{24,}|[A-Za-z0-9+/_-]{43}=")
_CHANGING: Final = re.compile(
    r"\d{4}-\d\d-\d\d(T[\d:.]+Z?)?|\b\d\d:\d\d:\d\d UTC|\b\d{13}-"
    r"|duration-ms=['\"]\d+['\"]|(?<= id=['\"])[a-z]\d+(?=['\"])"
)
# Who asks, and for what. BOBS and MINE stand for an identifier of a task or a question.
_EXECUTE: Final = f"set <execute xmlns='{FLUUX}#execute' skill='%s' mode='%s'>%s</execute>"
_PARAM: Final = "<param name='%s'>%s</param>"
REQUESTS: Final = (
    *(_EXECUTE % ("echo", "auto", _PARAM % ("text", "x")), _EXECUTE % ("only-bob", "auto", "")),
    *(_EXECUTE % ("only-bob", "async", ""), _EXECUTE % ("conformance.hidden", "auto", "")),
    _EXECUTE % ("conformance.erase", "async", _PARAM % ("target", "disk")),
    _EXECUTE % ("conformance.ask", "async", _PARAM % ("question", "Which?")),
    _EXECUTE % ("conformance.say", "async", _PARAM % ("question", "What?")),
    _EXECUTE % ("memory_store", "auto", _PARAM % ("key", "tea") + _PARAM % ("body", "Green.")),
    _EXECUTE % ("memory_recall", "auto", _PARAM % ("query", "tea")),
    _EXECUTE % ("memory_search", "auto", _PARAM % ("query", "green tea")),
    _EXECUTE % ("memory_forget", "auto", _PARAM % ("key", "tea")),
    _EXECUTE % ("echo", "auto' request='same", _PARAM % ("text", "x")),
    _EXECUTE % ("echo", "auto", _PARAM % ("text", "x") + "<earlier task='BOBS'/>"),
    *(f"get <query xmlns='{FLUUX}#skills'/>", f"get <query xmlns='{FLUUX}#skills' search='bob'/>"),
    f"get <query xmlns='{FLUUX}#skills' skill='only-bob'/>",
    *(f"get <query xmlns='{DISCO}#{kind}'/>" for kind in ("info", "items")),
    *(f"get <query xmlns='{DISCO}#{kind}' node='{COMMANDS}'/>" for kind in ("info", "items")),
    f"get <query xmlns='{DISCO}#info' node='skill/only-bob'/>",
    f"get <query xmlns='{DISCO}#items' node='{FLUUX}#skills'/>",
    *(f"set <command xmlns='{COMMANDS}' node='skill/{name}'/>" for name in ("only-bob", "echo")),
    *(f"set <command xmlns='{COMMANDS}' node='command/{name}'/>" for name in ("tasks", "status")),
    f"set <command xmlns='{COMMANDS}' node='skill/echo' action='cancel' sessionid='BOBS'/>",
    f"get <tasks xmlns='{FLUUX}#task'/>",
    *(f"get <task xmlns='{FLUUX}#task' id='{whose}'/>" for whose in ("MINE", "BOBS")),
    *(f"get <events xmlns='{FLUUX}#task' id='{whose}' since='0'/>" for whose in ("MINE", "BOBS")),
    *(f"set <cancel xmlns='{FLUUX}#task' id='{whose}'/>" for whose in ("MINE", "BOBS")),
    *(
        f"set <decision xmlns='{FLUUX}#confirm' id='{whose}' value='{value}'/>"
        for whose in ("MINE", "BOBS")
        for value in ("approve", "deny")
    ),
)
_LIST: Final = f"get <tasks xmlns='{FLUUX}#task'/>"
_AT_WORK: Final = re.compile("state=['\"](accepted|running|cancelling)['\"]")
SAID: Final = ("/help", "/tasks", "/skills", "/new", "/nosuch", "/status")

_steps = st.lists(
    st.tuples(st.sampled_from((ALICE, ALICE, BOB)), st.sampled_from((*REQUESTS, *SAID))),
    min_size=6,
    max_size=20,
)


class Talk:
    """The server's side of one service: asks for people, and keeps what each of them hears."""

    def __init__(self, link: Link) -> None:
        self.replies: dict[str, str] = {}
        self.said: dict[str, list[str]] = defaultdict(list)
        self.identifiers: dict[str, list[str]] = defaultdict(list)
        self._in_replies: dict[str, list[str]] = defaultdict(list)
        self._link = link
        self._number = 0
        self._changed = anyio.Event()
        self._to_answer: list[str] = []

    async def read(self) -> None:
        """Read until cancelled. Everybody is a person whose client knows nothing."""
        frames = Frames(self._stanza)
        frames.feed(bytes(self._link.received))
        while data := await self._link.receive():
            frames.feed(data)
            while self._to_answer:
                await self._link.send(self._to_answer.pop())
            self._changed.set()
            self._changed = anyio.Event()

    def _stanza(self, name: bytes, attributes: dict[str, str], data: bytes) -> None:
        to, text = attributes.get("to", ""), data.decode()
        if name == b"iq" and attributes["type"] in {"get", "set"}:
            head = f"id='{attributes['id']}' from='{to}' to='{attributes['from']}'"
            condition = "<service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
            self._to_answer.append(
                f"<iq type='error' {head}><error type='cancel'>{condition}</error></iq>"
            )
            return
        whose = to.partition("/")[0]
        found = re.findall(r"(?: task| id|sessionid)=['\"]([0-9a-f]{24,})", text)
        self.identifiers[whose] += found
        if name == b"iq":
            self._in_replies[whose] += found  # messages come when they come
            self.replies[attributes["id"]] = text
        elif name == b"message" and "<body" in text and FLUUX not in text:
            # What is said in answer; questions and the course of tasks come when they come.
            self.said[whose].append(text)

    async def does(self, who: str, what: str, bobs: str) -> str:
        """Ask or say something. Return the reply, once none of their tasks is running."""
        reply = await self._once(who, what, bobs)
        while _AT_WORK.search(await self._once(who, _LIST, bobs)):
            pass
        return reply

    async def _once(self, who: str, what: str, bobs: str) -> str:
        self._number += 1
        id_ = f"n{self._number}"
        mine = (self._in_replies[who.partition("/")[0]] or ["x"])[-1]
        if what in SAID:
            said = self.said[who.partition("/")[0]]
            before = len(said)
            await self._link.send(
                f"<message type='chat' id='{id_}' from='{who}' to='{ASSISTANT}'>"
                f"<body>{what}</body></message>"
            )
            while len(said) == before:
                await self._changed.wait()
            return said[before]
        type_, _, payload = what.partition(" ")
        payload = payload.replace("MINE", mine).replace("BOBS", bobs)
        await self._link.send(
            f"<iq type='{type_}' id='{id_}' from='{who}' to='{ASSISTANT}'>{payload}</iq>"
        )
        while id_ not in self.replies:
            await self._changed.wait()
        return self.replies[id_]


@asynccontextmanager
async def service(directory: Path, *, with_bob: bool) -> AsyncIterator[Talk]:
    hidden = anyio.Path(directory / "hidden.py")
    await hidden.parent.mkdir()
    await hidden.write_text(HIDDEN)
    sections = {
        "agent": Agent(allowed_domains=("good.test",)),
        "policy": Policy(rules=(Rule(skills=("only-bob",), allowed_jids=("bob@good.test",)),)),
        "skills": Skills(modules=(str(hidden),) if with_bob else ()),
        "conformance": Conformance(enabled=True),
        "limits": RequestLimits(inline_s=50),
    }
    with anyio.fail_after(120):
        async with attached(directory, **sections) as link, anyio.create_task_group() as tasks:
            talk = Talk(link)
            tasks.start_soon(talk.read)
            yield talk
            tasks.cancel_scope.cancel()


def same(text: str) -> str:
    """A stanza without what differs between two runs."""
    return _CHANGING.sub("*", _IDENTIFIER.sub("*", text))


@examples(4, 250)
@given(steps=_steps)
async def test_alice_cannot_tell_whether_bob_is_there(steps: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as directory:
        seen: list[list[str]] = []
        for with_bob in (True, False):
            async with service(Path(directory) / str(with_bob), with_bob=with_bob) as talk:
                heard = []
                for who, what in steps:
                    if who == BOB and not with_bob:
                        continue
                    bobs = (talk.identifiers["bob@good.test"] or [secrets.token_hex(16)])[-1]
                    reply = await talk.does(who, what, bobs)
                    if who == ALICE:
                        heard.append(f"{what}\n{same(reply)}")
                seen.append(heard)
        for there, not_there in zip(*seen, strict=True):
            assert there == not_there


async def test_identifiers_cannot_be_guessed(tmp_path: Path) -> None:
    erase = next(what for what in REQUESTS if "conformance.erase" in what)
    form = next(what for what in REQUESTS if "command/tasks" in what)
    async with service(tmp_path / "service", with_bob=False) as talk:
        for _ in range(60):
            await talk.does(ALICE, erase, "x")
            await talk.does(ALICE, form, "x")
        found = set(talk.identifiers["alice@good.test"])
    assert len(found) >= 120
    assert all(len(one) >= 32 for one in found)  # 128 bits
    shortest = min(map(len, found))
    for place in range(shortest):
        # Of 120 draws of 16 digits all but one or two turn up; a clock or a counter shows fewer.
        assert len({one[place] for one in found}) >= 12
