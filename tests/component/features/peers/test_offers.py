"""What peers offer: made when it is used, asked for when it changes, and dropped in the end."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from component.features.peers import offers
from component.features.peers.catalogue import PeerCatalogue, described
from component.skills import Skill, skill
from tests.component.features.peers.scripted import ScriptedAgent
from tests.component.features.peers.scripted import described as description
from tests.component.features.peers.test_calls import (
    ROMEO,
    execute,
    run,
    settings,
    text_of,
    two,
    using,
)
from tests.kit import Kit, Peer, anyio_backend, service
from xep import disco, pubsub_event
from xep.binding import Payload, encode
from xep.commands import NAMESPACE as COMMANDS
from xep.fluux_agent.execute import Output, Result
from xep.fluux_agent.skills import NAMESPACE as SKILLS
from xep.fluux_agent.skills import SkillsQuery
from xep.pubsub import Pubsub, Subscription
from xep.pubsub_event import Event
from xep.result_sets import First, ResultSet
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

DAY_S = 86_400.0
ME = "assistant@agent.a.example"


class ListingAgent(ScriptedAgent):
    """An agent that lists its skills in pages, and has a node of them.

    Attributes:
        queries: the questions for skills.
        subscribed: the requests for a subscription.
        error: what it answers to all of them.
        listing: called before each page.
    """

    has_node = True
    error: StanzaError | None = None
    page = 50

    def __init__(self, kit: Kit, domain: str, *names: str) -> None:
        super().__init__(kit, domain, [description(name) for name in sorted(names)])
        self.queries: list[SkillsQuery] = []
        self.subscribed: list[Incoming] = []
        self.listing: Callable[[], object] = lambda: None

    def offer(self, *names: str) -> None:
        """Offer other skills."""
        self.skills = tuple(description(name) for name in sorted(names))
        self.version = f"{self.version}+"

    def notify(self, *, sender: str = "", to: str = ME) -> None:
        """Send a notification of the node of skills."""
        items = pubsub_event.Items(node=SKILLS, items=(pubsub_event.Item(id="x"),))
        event = encode(Event(items=items))
        self.say(f"<message from='{sender or self._domain}' to='{to}'>{event}</message>")

    def _answer(self, stanza: Incoming) -> Payload | None:
        asked = stanza.payload(Pubsub)
        query = stanza.payload(SkillsQuery)
        if asked is not None and asked.subscribe is not None:
            self.subscribed.append(stanza)
            if not self.has_node or self.error is not None:
                raise self.error or StanzaError("item-not-found")
            who = asked.subscribe.jid
            return Pubsub(
                subscription=Subscription(node=SKILLS, jid=who, subscription="subscribed")
            )
        if query is None:
            return super()._answer(stanza)
        self.queries.append(query)
        if self.error is not None:
            raise self.error
        if query.version == self.version:
            return SkillsQuery(version=self.version, ttl=3600, unchanged=True)
        self.listing()
        names = [one.name for one in self.skills]
        after = None if query.page is None else query.page.after
        start = 0 if after is None else names.index(after) + 1
        shown = self.skills[start : start + self.page]
        part = ResultSet(count=len(names))
        if shown:
            first = First(key=shown[0].name, index=start)
            part = ResultSet(first=first, last=shown[-1].name, count=len(names))
        return SkillsQuery(version=self.version, ttl=3600, skills=shown, page=part)


@asynccontextmanager
async def listed(tmp_path: Path, *names: str) -> AsyncIterator[tuple[Kit, ListingAgent, Peer]]:
    """A service that uses the skills of an agent, and a person of it."""
    async with service(tmp_path / "x", {}) as server:
        b = ListingAgent(server, "agent.b.example", *names)
        unasked = settings("a", using("b")) | {"policy": {"confirm": "never"}}
        async with service(tmp_path / "a", unasked, beside=server) as a:
            await a.settled()
            yield a, b, a.peer(ROMEO)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the skills of peers that are made."""
    names: list[str] = []
    make = PeerCatalogue.make

    def counted(self: PeerCatalogue, name: str, number: int) -> Skill | None:
        names.append(name)
        return make(self, name, number)

    monkeypatch.setattr(PeerCatalogue, "make", counted)
    return names


def names_of(kit: Kit) -> list[str]:
    """Return the skills of peers that are offered."""
    return [name for name in kit.service.catalog.registry.names() if name.startswith(("b.", "c."))]


async def test_a_skill_of_a_peer_is_made_when_it_is_used(tmp_path: Path, made: list[str]) -> None:
    async with listed(tmp_path, "x", "y", "z") as (a, b, romeo):
        b.results["y"] = Result(skill="y", outputs=(Output(name="output", text="done"),))
        await a.restart()
        assert names_of(a) == ["b.x", "b.y", "b.z"]
        assert made == []
        assert text_of((await run(romeo, "b.y")).result) == "done"
        assert set(made) == {"b.y"}
        assert made == ["b.y"]


async def test_a_reload_touches_only_the_peers_that_have_changed(
    tmp_path: Path, made: list[str]
) -> None:
    async with service(tmp_path / "x", {}) as server:
        b = ListingAgent(server, "agent.b.example", "x", "y")
        c = ListingAgent(server, "agent.c.example", "x", "y")
        policy = {"policy": {"confirm": "never"}}
        both = settings("a", using("b"), using("c")) | policy
        async with service(tmp_path / "a", both, beside=server) as a:
            await a.settled()
            registry = a.service.catalog.registry
            before = registry.get("b.x"), registry.get("c.x")
            b.queries.clear()
            c.queries.clear()
            await a.reload(settings("a", using("b"), using("c", skills=["x"])) | policy)
            await a.advance(2)
            assert names_of(a) == ["b.x", "b.y", "c.x"]
            assert registry.get("b.x") is before[0]
            assert registry.get("c.x") is not before[1]
            assert made == ["b.x", "c.x", "c.x"]
            assert b.queries == []
            assert [query.version for query in c.queries] == ["1"]
            # What was made before is called through the links of now.
            romeo = a.peer(ROMEO)
            b.results["x"] = Result(skill="x", outputs=(Output(name="output", text="done"),))
            assert text_of((await run(romeo, "b.x")).result) == "done"
            await a.reload(settings("a", using("c", skills=["x"])))
            assert names_of(a) == ["c.x"]


async def test_a_peer_notifies_of_its_changes(tmp_path: Path) -> None:
    @skill(read_only=True, open_world=False)
    def later() -> str:
        """Come later."""
        return "Here."

    async with two(tmp_path, read_only=["later"]) as (a, b, romeo):
        assert "b.later" not in names_of(a)
        b.service.catalog.registry.add(later)
        await a.advance(15)
        assert "b.later" in names_of(a)
        answer = await execute(romeo, "b.later")
        assert text_of(answer.require(Result)) == "Here."
        b.service.catalog.registry.remove("later")
        await a.advance(15)
        assert "b.later" not in names_of(a)


async def test_a_notification_counts_only_from_the_peer_itself(tmp_path: Path) -> None:
    async with listed(tmp_path, "x") as (a, b, _):
        ListingAgent(a, "agent.evil.example", "x")
        b.offer("x", "y")
        b.queries.clear()
        b.notify(to="other@agent.a.example")
        b.say(
            f"<message from='agent.evil.example' to='{ME}'>"
            f"<event xmlns='http://jabber.org/protocol/pubsub#event'><items node='{SKILLS}'/>"
            "</event></message>"
        )
        await a.advance(30)
        assert b.queries == []
        b.notify()
        await a.advance(5)
        assert names_of(a) == ["b.x", "b.y"]


async def test_a_flood_of_notifications_causes_few_requests(tmp_path: Path) -> None:
    async with listed(tmp_path, "x") as (a, b, _):
        b.queries.clear()
        for _each in range(100):
            b.notify()
            await a.advance(0.5)
        assert len(b.queries) <= 6


async def test_a_subscription_is_renewed_and_the_ttl_counts_where_there_is_none(
    tmp_path: Path,
) -> None:
    async with listed(tmp_path, "x") as (a, b, _):
        b.has_node = False
        assert len(b.subscribed) == 1
        b.offer("x", "y")
        await a.advance(3700)
        assert names_of(a) == ["b.x", "b.y"]
        assert len(b.subscribed) == 1
        await a.jump(DAY_S + 3600)
        assert len(b.subscribed) == 2


async def test_a_lost_subscription_is_asked_for_again(tmp_path: Path) -> None:
    async with listed(tmp_path, "x") as (a, b, _):
        gone = pubsub_event.Delete(node=SKILLS)
        b.say(f"<message from='agent.b.example' to='{ME}'>{encode(Event(delete=gone))}</message>")
        await a.advance(15)
        assert len(b.subscribed) == 2


async def test_nothing_but_one_request_is_sent_if_nothing_has_changed(tmp_path: Path) -> None:
    async with listed(tmp_path, "x") as (a, b, _):
        b.queries.clear()
        before = len(b.requests)
        await a.advance(3700)
        assert [query.version for query in b.queries] == ["1"]
        assert len(b.requests) == before + 1


async def test_skills_of_a_peer_that_does_not_answer_lapse_and_come_back(tmp_path: Path) -> None:
    async with listed(tmp_path, "x") as (a, b, _):
        b.error = StanzaError("remote-server-not-found")
        await a.jump(DAY_S)
        assert names_of(a) == ["b.x"]
        await a.jump(2 * 3600)
        assert names_of(a) == []
        (warning,) = [text for each in a.kernel.warnings for text in each() if "a day" in text]
        assert "not offered here: b." in warning
        await a.restart()
        assert names_of(a) == []
        b.error = None
        b.queries.clear()
        await a.advance(1500)
        assert names_of(a) == ["b.x"]
        assert b.queries[0].version == "1"
        assert not [text for each in a.kernel.warnings for text in each() if "a day" in text]


async def test_skills_of_a_peer_that_refuses_are_dropped_at_once(tmp_path: Path) -> None:
    async with listed(tmp_path, "x") as (a, b, _):
        b.error = StanzaError("service-unavailable")
        await a.restart()
        assert names_of(a) == []
        (warning,) = [text for each in a.kernel.warnings for text in each() if "serve" in text]
        assert warning.startswith("Agents that do not serve this one: b.")
        await a.stop()
        b.error = StanzaError("remote-server-not-found")
        await a.start()
        assert names_of(a) == []
        b.error = None
        await a.advance(30)
        assert names_of(a) == ["b.x"]


async def test_skills_stay_while_the_server_of_a_peer_says_that_it_is_away(tmp_path: Path) -> None:
    async with listed(tmp_path, "x") as (a, b, _):
        b.error = StanzaError("service-unavailable", type="wait")
        await a.restart()
        assert names_of(a) == ["b.x"]


async def test_a_list_that_changes_between_two_pages_is_read_again(tmp_path: Path) -> None:
    async with service(tmp_path / "x", {}) as server:
        b = ListingAgent(server, "agent.b.example", "k", "l", "m")
        b.page = 2

        def changes() -> None:
            if len(b.queries) == 2:
                b.offer("a", "l", "m")

        b.listing = changes
        async with service(tmp_path / "a", settings("a", using("b")), beside=server) as a:
            await a.settled()
            assert names_of(a) == ["b.a", "b.l", "b.m"]
            assert len(b.queries) == 4


async def test_a_list_that_never_stays_the_same_is_given_up(tmp_path: Path) -> None:
    async with service(tmp_path / "x", {}) as server:
        b = ListingAgent(server, "agent.b.example", "k", "l", "m")
        b.page = 2
        b.listing = lambda: b.offer("k", "l", "m")
        async with service(tmp_path / "a", settings("a", using("b")), beside=server) as a:
            await a.settled()
            assert names_of(a) == []
            assert len(b.queries) == 6


async def test_what_one_peer_says_does_not_keep_others_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads(peer: Any, said: Any) -> Any:
        if peer.name == "b":
            raise RuntimeError("a fault")
        return described(peer, said)

    monkeypatch.setattr(offers, "described", reads)
    async with service(tmp_path / "x", {}) as server:
        ListingAgent(server, "agent.b.example", "x")
        c = ListingAgent(server, "agent.c.example", "x")
        both = settings("a", using("b"), using("c"))
        async with service(tmp_path / "a", both, beside=server) as a:
            await a.settled()
            assert names_of(a) == ["c.x"]
            assert len(c.queries) == 1


async def test_a_peer_that_was_removed_is_not_remembered(tmp_path: Path) -> None:
    async with listed(tmp_path, "x") as (a, b, _):
        await a.reload(settings("a", using("c")))
        b.error = StanzaError("remote-server-not-found")
        await a.reload(settings("a", using("b")))
        await a.settled()
        assert names_of(a) == []


async def test_few_peers_are_asked_at_a_time(tmp_path: Path) -> None:
    async with service(tmp_path / "x", {}) as server:
        asked: list[str] = []
        names = [f"p{number}" for number in range(60)]
        agents = [ListingAgent(server, f"agent.{name}.example", "x") for name in names]
        for agent in agents:
            agent._answer = lambda stanza: asked.append(stanza.id or "")  # type: ignore[method-assign,assignment] # no answer
        peers = settings("a", *map(using, names))
        async with service(tmp_path / "a", peers, beside=server) as a:
            await a.advance(4)
            assert len(asked) == 16


async def test_peers_that_do_not_answer_leave_room_for_the_others(tmp_path: Path) -> None:
    async with service(tmp_path / "x", {}) as server:
        asked: list[str] = []
        names = [f"p{number}" for number in range(40)]
        agents = [ListingAgent(server, f"agent.{name}.example", "x") for name in names]
        for agent in agents:
            agent.error = StanzaError("remote-server-timeout")
        peers = settings("a", *map(using, names))
        async with service(tmp_path / "a", peers, beside=server) as a:
            await a.advance(3)
            for agent in agents:
                agent._answer = lambda stanza: asked.append(stanza.id or "")  # type: ignore[method-assign,assignment] # no answer
            await a.advance(12)
            assert len(asked) == 8


async def test_pages_of_a_long_list_make_only_what_they_show(
    tmp_path: Path, made: list[str]
) -> None:
    names = [f"skill-{number:04}" for number in range(5000)]
    async with listed(tmp_path, *names) as (a, _, romeo):
        await a.restart()
        seen: list[str] = []
        after: str | None = None
        for _page in range(200):
            query = SkillsQuery(page=ResultSet(max=50, after=after))
            answer = (await romeo.iq("get", encode(query))).require(SkillsQuery)
            assert answer.page is not None
            assert answer.page.count is not None
            assert len(made) <= len(seen) + 50
            seen += [one.name for one in answer.skills]
            after = answer.page.last
            if not answer.skills:
                break
        assert [name for name in seen if name.startswith("b.")] == [f"b.{name}" for name in names]
        made.clear()
        for node in (SKILLS, COMMANDS):
            query = disco.ItemsQuery(node=node, page=ResultSet(max=50, after="1skill/b"))
            items = (await romeo.iq("get", encode(query))).require(disco.ItemsQuery)
            assert len(items.items) == 50
            assert items.page is not None
            assert (items.page.count or 0) > 5000
        assert "Do skill-0000 (b.skill-0000)" in [one.name for one in items.items]
        assert made == []
        search = SkillsQuery(search="b.skill-4999")
        found = (await romeo.iq("get", encode(search))).require(SkillsQuery)
        assert [one.name for one in found.skills] == ["b.skill-4999"]
        assert made == []  # it was made for the last page
        await romeo.say("/skills")
        await romeo.hear("more: add words to search")
        assert len(made) < 60
