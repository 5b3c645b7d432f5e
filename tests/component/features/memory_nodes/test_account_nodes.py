"""Nodes in accounts: access as a publisher or on behalf of their owner, and notifications."""

from collections.abc import AsyncIterator, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from component.features.memory_nodes.account_nodes import (
    AccountNodes,
    Location,
    changed_items,
)
from component.features.memory_nodes.items import NodeItem
from component.features.memory_nodes.privileges import Consents, Privileges
from component.memory.store import StoreUnavailableError
from component.memory_directory.layout import SessionKey
from component.pubsub.client import ItemPage
from xep import pubsub, pubsub_event, pubsub_owner
from xep.binding import RawXML
from xep.disco import Identity, InfoQuery
from xep.fluux_agent.memory import NAMESPACE
from xep.jid import JID
from xep.privilege import GrantedNamespace, Permission, Privilege
from xep.pubsub import Item, Subscription
from xep.pubsub_event import Event
from xep.pubsub_owner import PubsubOwner
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example.com")
SERVER = JID.parse("example.com")
JULIET = JID.parse("juliet@example.com")
WHOSE = SessionKey("assistant", JULIET)
TEXT = RawXML("<a xmlns='b'/>")


class Client:
    """Records the requests; answers as a node with one item, or with `refuses`."""

    def __init__(self, asked: list[str], name: str) -> None:
        self._asked = asked
        self._name = name
        self.refuses: dict[str, str] = {}

    def _note(self, verb: str) -> None:
        self._asked.append(f"{self._name} {verb}")
        if verb in self.refuses:
            raise StanzaError(self.refuses[verb])  # type: ignore[arg-type] # named in a test

    async def items(self, *_: Any, **__: Any) -> tuple[Item, ...]:
        self._note("items")
        return (Item(id="tea", payloads=(TEXT,)),)

    async def pages(self, *_: Any) -> AsyncIterator[ItemPage]:
        self._note("pages")
        yield ItemPage((Item(id="tea", payloads=(TEXT,)),))

    async def publish(self, *_: Any, options: Any, **__: Any) -> None:
        shown = ",".join(f"{each.var}={each.values[0]}" for each in options.fields[1:])
        self._note("publish")
        self._asked[-1] += f" {shown}"

    async def retract(self, *_: Any) -> None:
        self._note("retract")

    async def create(self, *_: Any) -> None:
        self._note("create")

    async def subscribe(self, _service: JID, node: str, subscriber: JID) -> Subscription:
        self._note("subscribe")
        return Subscription(node=node, jid=subscriber, subscription="subscribed")

    async def unsubscribe(self, *_: Any) -> None:
        self._note("unsubscribe")

    async def set_owned(self, _service: JID, request: PubsubOwner) -> None:
        assert request.affiliations is not None
        ((made),) = request.affiliations.affiliations
        assert (request.affiliations.node, made.jid) == (NAMESPACE, AGENT)
        self._note(made.affiliation)


class Given:
    """Consents in memory."""

    def __init__(self) -> None:
        self.people: set[JID] = set()

    async def has(self, agent: JID, person: JID) -> bool:
        assert agent == AGENT
        return person in self.people

    async def put(self, agent: JID, person: JID) -> None:
        self.people.add(person)

    async def remove(self, agent: JID, person: JID) -> bool:
        there = person in self.people
        self.people.discard(person)
        return there


class World:
    """The node of Juliet at a server that has not granted privileges yet."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.agent, self.juliet = Client(self.asked, "agent"), Client(self.asked, "juliet")
        self.given = Given()
        self.privileges = Privileges(["example.com"])
        self.software = "Prosody"
        self.consents = Consents(self.given, self.privileges, self.juliet, lambda _agent: AGENT)
        self.nodes = AccountNodes(
            self.agent,
            self.consents,
            lambda whose: Location(whose.who, NAMESPACE, AGENT, shares=False),
            self,
        )
        self.told: list[tuple[SessionKey, Collection[str] | None]] = []
        self.nodes.watch(lambda whose, keys: self.told.append((whose, keys)))

    # The stream.

    @property
    def addresses(self) -> Any:
        return SimpleNamespace(agent_at=lambda address: address.local or "")

    def is_connected(self) -> bool:
        return True

    async def get(self, _to: JID, _query: InfoQuery, _expected: type[InfoQuery]) -> InfoQuery:
        return InfoQuery(identities=(Identity(category="server", type="im", name=self.software),))

    def grant(self, *namespaces: tuple[str, str]) -> None:
        granted = tuple(GrantedNamespace(ns=ns, type=type_) for ns, type_ in namespaces)
        permission = Permission(access="iq", namespaces=granted)
        self.privileges.granted(SERVER, Privilege(permissions=(permission,)))

    def grant_all(self) -> None:
        self.grant((pubsub.NAMESPACE, "both"), (pubsub_owner.NAMESPACE, "set"))

    def take(self) -> list[str]:
        taken, self.asked[:] = list(self.asked), []
        return taken


async def test_without_consent_or_grant_the_agent_uses_its_own_address() -> None:
    here = World()
    expected = [NodeItem("tea", TEXT.text)]
    assert await here.nodes.items(WHOSE) == expected
    here.grant_all()
    assert await here.nodes.items(WHOSE) == expected
    await here.consents.give(WHOSE)
    here.privileges.clear()
    assert await here.nodes.items(WHOSE, ("tea",)) == expected
    assert {each.split()[0] for each in here.take()} == {"agent"}


async def test_with_consent_and_grant_the_agent_acts_on_behalf_of_the_person() -> None:
    here = World()
    here.grant_all()
    await here.consents.give(WHOSE)
    await here.nodes.items(WHOSE)
    # The subscription is the agent's own, and made before the items are listed.
    assert here.take() == ["juliet create", "juliet member", "agent subscribe", "juliet pages"]
    await here.nodes.publish(WHOSE, "tea", TEXT, None)
    options = "pubsub#access_model=whitelist,pubsub#persist_items=true,pubsub#max_items=max"
    assert here.take() == [f"juliet publish {options}"]
    await here.nodes.retract(WHOSE, [NodeItem("tea", "")])
    assert here.take() == ["juliet retract"]
    other = SessionKey("assistant", JID.parse("romeo@example.com"))
    await here.nodes.items(other, ("tea",))
    assert here.take() == ["agent items"], "who has not consented is not acted for"


async def test_the_smaller_grant_is_sufficient_without_a_subscription() -> None:
    here = World()
    here.grant((pubsub.NAMESPACE, "both"))
    here.agent.refuses["subscribe"] = "forbidden"
    await here.consents.give(WHOSE)
    await here.nodes.items(WHOSE)
    assert here.take() == ["juliet create", "agent subscribe", "juliet pages"]
    assert not here.nodes.is_service(JULIET)


async def test_a_node_that_cannot_be_read_is_not_an_empty_one() -> None:
    # Prosody says internal-server-error for each error of the account.
    here = World()
    here.grant_all()
    await here.consents.give(WHOSE)
    here.juliet.refuses = {"create": "internal-server-error", "pages": "internal-server-error"}
    with pytest.raises(StoreUnavailableError):
        await here.nodes.items(WHOSE)
    here.juliet.refuses = {"create": "internal-server-error"}
    assert len(await here.nodes.items(WHOSE)) == 1, "it was there already"
    assert here.take().count("juliet create") == 2, "tried again, because the node may be gone"


async def test_leaving_gives_up_affiliation_and_subscription() -> None:
    here = World()
    here.grant_all()
    await here.consents.give(WHOSE)
    await here.nodes.items(WHOSE)
    assert await here.consents.withdraw(WHOSE)
    await here.nodes.leave(WHOSE)
    assert here.take()[-2:] == ["agent unsubscribe", "juliet none"]
    assert not here.nodes.is_service(JULIET)
    assert not await here.consents.withdraw(WHOSE)
    await here.nodes.items(WHOSE, ("tea",))
    assert here.take() == ["agent items"]


async def test_servers_where_people_cannot_correct_items_are_not_used() -> None:
    here = World()
    here.grant_all()
    await here.consents.give(WHOSE)
    here.software = "ejabberd"
    with pytest.raises(StoreUnavailableError, match="ejabberd"):
        await here.nodes.publish(WHOSE, "tea", TEXT, None)
    assert here.take() == []
    assert not here.nodes.is_reachable(WHOSE)


def published(*ids: str, node: str = NAMESPACE) -> Event:
    items = tuple(pubsub_event.Item(id=id_) for id_ in ids)
    return Event(items=pubsub_event.Items(node=node, items=items))


async def test_notifications_report_changed_items() -> None:
    here = World()
    here.nodes.notified(AGENT, JULIET, published("tea"))
    assert here.told == [], "nobody follows the node yet"
    await here.nodes.items(WHOSE)
    assert here.nodes.is_service(JULIET)
    here.nodes.notified(AGENT, JULIET, published("tea", "hat"))
    here.nodes.notified(AGENT, JULIET, Event(purge=pubsub_event.Purge(node=NAMESPACE)))
    assert here.told == [(WHOSE, {"tea", "hat"}), (WHOSE, None)]


async def test_notifications_from_others_are_ignored() -> None:
    here = World()
    await here.nodes.items(WHOSE)
    researcher = JID.parse("researcher@agent.example.com")
    romeo = JID.parse("romeo@example.com")
    assert not here.nodes.is_service(romeo)
    for subscriber, service, event in (
        (AGENT, romeo, published("tea")),
        (AGENT, JULIET, published("tea", node="urn:xmpp:bookmarks:1")),
        (researcher, JULIET, published("tea")),
        (AGENT, JULIET, Event()),
    ):
        here.nodes.notified(subscriber, service, event)
    assert here.told == []


@pytest.mark.parametrize(
    ("event", "node", "keys"),
    [
        (published("a"), NAMESPACE, {"a"}),
        (
            Event(items=pubsub_event.Items(node="n", items=(pubsub_event.Retract(id="a"),))),
            "n",
            {"a"},
        ),
        (Event(items=pubsub_event.Items(node="n", items=(pubsub_event.Item(),))), "n", None),
        (Event(delete=pubsub_event.Delete(node="n")), "n", None),
        (Event(), "", set()),
    ],
)
def test_the_changed_items_of_a_notification(
    event: Event, node: str, keys: set[str] | None
) -> None:
    assert changed_items(event) == (node, keys)
