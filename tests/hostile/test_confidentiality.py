"""What one principal sees is the same, byte for byte, whatever another one has and does.

Two services get the same requests of Alice. In one of them Bob has tasks, questions, memories, a
conversation and his own skill as well; in the other he and his skill do not exist. Random
identifiers and times aside, Alice must not be able to tell which one she talks to.
"""

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import AGENT, Kit, anyio_backend, service
from tests.kit.xmpp import body
from tests.profiles import examples
from xep.stanza import Incoming

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

ALICE: Final = "alice@good.test/desk"
BOB: Final = "bob@good.test/desk"
ASSISTANT: Final = f"assistant@{AGENT}"
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
    """Two people and a service, and the identifiers that each of them has received."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._peers = {who: kit.peer(who) for who in (ALICE, BOB)}
        self._in_replies: dict[str, list[str]] = {ALICE: [], BOB: []}

    def identifiers(self, who: str) -> list[str]:
        """Return those that somebody has received."""
        peer = self._peers[who]
        return [one for stanza in (*peer.stanzas, *peer.requests) for one in _identifiers(stanza)]

    async def does(self, who: str, what: str, bobs: str) -> str:
        """Ask or say something. Return the reply, once none of their tasks is running."""
        reply = await self._once(who, what, bobs)
        while _AT_WORK.search(await self._once(who, _LIST, bobs)):
            await self._kit.advance(1)
        return reply

    async def _once(self, who: str, what: str, bobs: str) -> str:
        peer = self._peers[who]
        if what in SAID:
            peer.take()
            await peer.say(what, ASSISTANT)
            # Questions and the course of tasks come when they come.
            said = await peer.receive(lambda one: bool(body(one)) and FLUUX not in one.forward())
            return said.forward()
        type_, _, payload = what.partition(" ")
        mine = (self._in_replies[who] or ["x"])[-1]
        payload = payload.replace("MINE", mine).replace("BOBS", bobs)
        reply = await peer.iq(type_, payload, ASSISTANT)
        self._in_replies[who] += _identifiers(reply)  # those of messages come when they come
        return reply.forward()


def _identifiers(stanza: Incoming) -> list[str]:
    return re.findall(r"(?: task| id|sessionid)=['\"]([0-9a-f]{24,})", stanza.forward())


@asynccontextmanager
async def talking(directory: Path, *, with_bob: bool) -> AsyncIterator[Talk]:
    """Run a service, in which Bob's skill exists or not."""
    async with service(directory, _sections(directory, with_bob=with_bob)) as kit:
        yield Talk(kit)


def _sections(directory: Path, *, with_bob: bool) -> dict[str, Any]:
    directory.mkdir()
    hidden = directory / "hidden.py"
    hidden.write_text(HIDDEN)
    return {
        "agent": {"allowed_domains": ["good.test"]},
        "policy": {"rules": [{"skills": ["only-bob"], "allowed_jids": ["bob@good.test"]}]},
        "skills": {"modules": [str(hidden)] if with_bob else []},
        "conformance": {"enabled": True},
        "limits": {"inline_s": 50},
    }


def same(text: str) -> str:
    """A stanza without what differs between two runs."""
    return _CHANGING.sub("*", _IDENTIFIER.sub("*", text))


@examples(4, 250)
@given(steps=_steps)
async def test_alice_cannot_tell_whether_bob_is_there(steps: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as directory:
        seen: list[list[str]] = []
        for with_bob in (True, False):
            async with talking(Path(directory) / str(with_bob), with_bob=with_bob) as talk:
                heard = []
                for who, what in steps:
                    if who == BOB and not with_bob:
                        continue
                    bobs = (talk.identifiers(BOB) or [secrets.token_hex(16)])[-1]
                    reply = await talk.does(who, what, bobs)
                    if who == ALICE:
                        heard.append(f"{what}\n{same(reply)}")
                seen.append(heard)
        for there, not_there in zip(*seen, strict=True):
            assert there == not_there


async def test_identifiers_cannot_be_guessed(tmp_path: Path) -> None:
    erase = next(what for what in REQUESTS if "conformance.erase" in what)
    form = next(what for what in REQUESTS if "command/tasks" in what)
    async with talking(tmp_path / "service", with_bob=False) as talk:
        for _ in range(60):
            await talk.does(ALICE, erase, "x")
            await talk.does(ALICE, form, "x")
        found = set(talk.identifiers(ALICE))
    assert len(found) >= 120
    assert all(len(one) >= 32 for one in found)  # 128 bits
    shortest = min(map(len, found))
    for place in range(shortest):
        # Of 120 draws of 16 digits all but one or two turn up; a clock or a counter shows fewer.
        assert len({one[place] for one in found}) >= 12
