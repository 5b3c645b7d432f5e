"""Watches as people define, list and change them."""

from typing import Any

import pytest

from component.features.watches import rows as watch_rows
from component.features.watches.filters import Condition
from component.features.watches.service import WatchError, WatchService, Wish
from component.features.watches.sources import SourceStatus
from component.features.watches.watch import StartRate, Watch
from component.kernel.triggers import Work
from component.store import Storage
from tests.direct_database import DirectDatabase, done
from xep.jid import JID

JULIET = JID.parse("juliet@example.com/balcony")
ROMEO = JID.parse("romeo@example.com")
AGENT = JID.parse("assistant@agent.example")


class Watcher:
    """The part of `component.features.watches.watcher.Watcher` that the service uses."""

    async def reload(self) -> None:
        pass

    def status(self, watch: Watch) -> SourceStatus:
        return SourceStatus("refused", "Not allowed yet.")

    def is_own(self, service: JID) -> bool:
        return service == AGENT

    async def may_read(self, _service: JID, node: str, person: JID) -> bool:
        return node == f"of {person}"


def desk(*services: str, most: int = 2, watcher: bool = True) -> WatchService:
    storage: Any = DirectDatabase(0)
    made: Any = Watcher() if watcher else None
    return WatchService(storage, made, services, most)


def wish(**more: Any) -> Wish:
    given = {"name": "mood", "service": "", "node": "urn:mood", "goal": " Cheer me up. "}
    return Wish(**given | more)


def work(person: JID) -> Work:
    return Work(agent="assistant", principal=person)


def test_a_wish_becomes_a_watch_of_its_person() -> None:
    where = [Condition(element="mood/sad", exists=True)]
    watch = desk().checked(wish(where=where, rate="5/h"), work(JULIET))
    assert (watch.id, watch.owner) == ("juliet@example.com/mood", "juliet@example.com")
    assert watch.principal == watch.service == JULIET.bare
    assert (watch.goal, watch.rate) == ("Cheer me up.", StartRate(5, 3600.0))
    assert watch.where == tuple(where)
    assert (watch.agent, watch.skill, watch.tell) == ("assistant", None, ())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"service": "a@b@c"}, "is not an address"),
        ({"service": "pubsub.example.net"}, "only watch your own account and pubsub.*.org"),
        ({"service": str(ROMEO)}, "not romeo@example.com"),
        ({"service": "pubsub.a.org", "node": "presence"}, "Only an account has presence"),
        ({"where": [Condition()]}, "A condition needs"),
        ({"where": [Condition(element="a//b", exists=True)]}, "is not a path"),
        ({"json_filter": "a ="}, "is not valid JMESPath"),
        ({"rate": "often"}, "The rate 'often' must be"),
        ({"rate": "2/s"}, "one start a second at most"),
        ({"rate": "100/min"}, "one start a second at most"),
        ({"goal": " \n"}, "Say what I should do"),
    ],
)
def test_a_wish_that_cannot_be_met_says_why(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(WatchError) as refused:
        desk("pubsub.*.org").checked(wish(**more), work(JULIET))
    assert reason in str(refused.value)


@pytest.mark.parametrize("rate", ["1/s", "60/min", "3600/h", "1/d"])
def test_a_start_a_second_is_allowed(rate: str) -> None:
    assert desk().checked(wish(rate=rate), work(JULIET)).rate.events > 0


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("juliet@example.com", True),
        ("romeo@example.com", False),
        ("pubsub.a.org", True),
        ("x.pubsub.a.org", False),
        ("pubsub.a.org.evil.net", False),
    ],
)
def test_people_use_their_own_account_and_the_services_that_are_named(
    address: str, may: bool
) -> None:
    assert desk("pubsub.?.org").may_use(JULIET, JID.parse(address)) == may


def test_nobody_has_more_watches_than_the_maximum() -> None:
    made = desk(most=2)
    for name in ("a", "b"):
        done(made.create(wish(name=name), work(JULIET)))
    with pytest.raises(WatchError, match="You have 2 watches, which is the maximum"):
        done(made.create(wish(name="c"), work(JULIET)))
    done(made.create(wish(name="c"), work(ROMEO)))
    assert len(done(made.list(str(JULIET.bare)))) == 2
    assert len(done(made.list(None))) == 3


def test_a_sheet_says_what_a_watch_does() -> None:
    made = desk()
    where = (
        Condition(element="a/b", above=3, below=5),
        Condition(attribute="type", contains="err"),
        Condition(element="c", exists=False),
    )
    done(made.create(wish(where=where, json_filter="ok", rate="5/h"), work(JULIET)))
    (sheet,) = done(made.list(str(JULIET.bare)))
    assert sheet.filter == (
        "a/b is above 3 and is below 5 and type of the payload contains 'err'"
        " and c does not exist and ok"
    )
    assert (sheet.work, sheet.rate) == ("Cheer me up.", "5 in 3600 s, then digest")
    assert (sheet.state, sheet.subscription, sheet.reason) == (
        "active",
        "refused",
        "Not allowed yet.",
    )


def test_nodes_of_the_agent_are_watched_for_those_who_may_read_them() -> None:
    """The agent may read all of them, whatever the settings say about services."""
    mine = {"service": str(AGENT), "node": f"of {JULIET.bare}"}
    made = done(desk().create(wish(**mine), work(JULIET)))
    assert (made.service, made.node) == (AGENT, mine["node"])
    with pytest.raises(WatchError, match="There is no node of romeo"):
        done(desk("*").create(wish(**mine | {"node": "of romeo@example.com"}), work(JULIET)))


@pytest.mark.parametrize("is_running", [True, False])
def test_watches_are_paused_resumed_and_removed(is_running: bool) -> None:
    """By the command line too, while the service is not running."""
    storage: Any = DirectDatabase(0)
    watcher: Any = Watcher()
    running = WatchService(storage, watcher, (), 5)
    done(running.create(wish(), work(JULIET)))
    made = running if is_running else WatchService(storage)
    id_ = "juliet@example.com/mood"
    for change, state in ((made.pause, "paused"), (made.resume, "active")):
        assert done(change(id_))
        (sheet,) = done(made.list(None))
        assert sheet.state == state
        assert (sheet.subscription != "") == is_running
        assert not done(change("unknown"))
    assert done(made.remove(id_))
    assert not done(made.remove(id_))
    assert done(made.list(None)) == []


@pytest.mark.anyio
async def test_resuming_resets_the_breaker(storage: Storage) -> None:
    watch = desk().checked(wish(), work(JULIET))
    await storage.write(lambda db: watch_rows.put(db, watch))
    await storage.write(lambda db: watch_rows.set_state(db, watch.id, "tripped", "a loop"))
    made = WatchService(storage)
    (sheet,) = await made.list(None)
    assert (sheet.state, sheet.reason) == ("tripped", "a loop")
    assert await made.resume(watch.id)
    (sheet,) = await made.list(None)
    assert (sheet.state, sheet.reason) == ("active", "")
