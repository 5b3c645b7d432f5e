"""PubSub at our addresses: every verb, as an owner, a subscriber and a stranger."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias
from xml.etree import ElementTree as ET

import anyio
import anyio.lowlevel
import pytest

from component.features.pubsub import handlers
from component.pubsub.changes import NodeChange
from component.pubsub.config import DEFAULT, NodeConfig, config_form
from component.pubsub.nodes import MOST_AFFILIATIONS, MOST_AT_NODE
from component.skills import skill
from component.store.database import Database
from component.tasks.expiry import forget
from component.tasks.protocol import DeletedTask
from tests.component.link.router.wire import AGENT, DOMAIN, condition, until
from tests.component.world import ALICE, BOB, World, result
from tests.servers.postgres import Postgres
from xep import pubsub, pubsub_errors, pubsub_event
from xep import pubsub_owner as owner
from xep.binding import Payload, RawXML, decode, encode, keep
from xep.caps import Caps
from xep.commands import Command
from xep.data_forms import Field, Form, form_type_field
from xep.fluux_agent.execute import Accepted, Execute
from xep.jid import JID
from xep.ping import Ping
from xep.pubsub import Pubsub
from xep.pubsub_owner import PubsubOwner
from xep.result_sets import ResultSet
from xep.stanza import Message, Presence
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

AT = JID.parse(AGENT)
CAROL = "carol@a.example/tablet"
EVENT = f"{{{pubsub_event.NAMESPACE}}}event"


def options(form_type: str, **values: str) -> Form:
    """A form that sets options of PubSub."""
    fields = [Field(var=f"pubsub#{name}", values=(value,)) for name, value in values.items()]
    return Form(type="submit", fields=(form_type_field(form_type), *fields))


def config(**values: str) -> Form:
    return options(pubsub.NODE_CONFIG, **values)


def item(id_: str | None = None, text: str = "text") -> pubsub.Item:
    return pubsub.Item(id=id_, payloads=(RawXML(f"<entry xmlns='urn:test'>{text}</entry>"),))


@skill(name="slow")
async def slow() -> str:
    """Take longer than an IQ may."""
    await anyio.lowlevel.checkpoint()
    return "done"


class Party(World):
    """The service, of which Alice is an admin and so may create nodes."""

    def __init__(self) -> None:
        super().__init__([slow], admins=["alice@a.example"], inline_s=0)
        self.seen = 0

    async def get(self, payload: Payload, who: str = ALICE, to: str = AGENT) -> ET.Element:
        return await self.asked(payload, type_="get", from_=who, to=to)

    async def set(self, payload: Payload, who: str = ALICE, to: str = AGENT) -> ET.Element:
        return await self.asked(payload, type_="set", from_=who, to=to)

    async def create(self, node: str, **values: str) -> None:
        request = Pubsub(
            create=pubsub.Create(node=node), configure=pubsub.Configure(form=config(**values))
        )
        reply = await self.set(request)
        assert reply.get("type") == "result", ET.tostring(reply)

    async def publish(
        self, node: str, *items: pubsub.Item, who: str = ALICE, form: Form | None = None
    ) -> ET.Element:
        wanted = None if form is None else pubsub.PublishOptions(form=form)
        return await self.set(
            Pubsub(publish=pubsub.Publish(node=node, items=items), publish_options=wanted), who
        )

    async def subscribe(self, node: str, who: str = BOB, jid: str | None = None) -> ET.Element:
        address = JID.parse(jid) if jid else JID.parse(who).bare
        return await self.set(Pubsub(subscribe=pubsub.Subscribe(node=node, jid=address)), who)

    async def ids(self, node: str, who: str = ALICE, **wanted: Any) -> list[str | None]:
        page = wanted.pop("page", None)
        reply = await self.get(Pubsub(items=pubsub.Items(node=node, **wanted), page=page), who)
        found = result(Pubsub, reply).items
        assert found is not None
        return [each.id for each in found.items]

    async def events(self, count: int) -> list[tuple[str, pubsub_event.Event]]:
        """To whom the next notifications were sent, and what they say."""
        sent = self.news_of_nodes.sent
        await until(lambda: len(sent) >= self.seen + count)
        new, self.seen = sent[self.seen : self.seen + count], self.seen + count
        found = []
        for each in new:
            message = ET.fromstring(f"<r xmlns='jabber:client'>{each}</r>")[0]
            event = message.find(EVENT)
            assert event is not None, each
            found.append((message.get("to", ""), decode(pubsub_event.Event, event, strict=True)))
        return found


def application(reply: ET.Element) -> str:
    """The condition of XEP-0060 in an error; empty if it has none."""
    found = reply.find(f".//{{{pubsub_errors.NAMESPACE}}}*")
    return "" if found is None else found.tag.partition("}")[2]


def refusal(reply: ET.Element) -> tuple[str, str]:
    return condition(reply), application(reply)


Running: TypeAlias = Callable[[], AbstractAsyncContextManager[Party]]


TABLES = ("nodes", "items", "subscriptions", "affiliations")


@pytest.fixture(scope="module")
def shared_url(postgres_server: Postgres) -> Iterator[str]:
    """A PostgreSQL database for all tests."""
    with postgres_server.migrated_database() as url:
        yield url


@pytest.fixture
def running(request: pytest.FixtureRequest, database_kind: str) -> Running:
    """A service with no nodes and no tasks."""
    url = request.getfixturevalue("shared_url") if database_kind == "postgresql" else ""

    def clean(database: Database) -> None:
        for table in TABLES:
            database.execute(f"DELETE FROM pubsub_{table}")
        for table in ("subscriptions", "replay", "tasks"):
            database.execute(f"DELETE FROM {table}")

    @asynccontextmanager
    async def run() -> AsyncIterator[Party]:
        party = Party()
        async with party.running(url):
            await party.storage.write(clean)
            yield party

    return run


def published(event: pubsub_event.Event) -> list[str | None]:
    assert event.items is not None
    return [each.id for each in event.items.items]


# -- nodes ---------------------------------------------------------------------------------------


async def test_who_may_create_and_what_is_in_the_way(running: Running) -> None:
    async with running() as party:
        await party.create("news")
        again = await party.set(Pubsub(create=pubsub.Create(node="news")))
        assert condition(again) == "conflict"
        stranger = await party.set(Pubsub(create=pubsub.Create(node="other")), BOB)
        assert condition(stranger) == "forbidden"
        named = result(Pubsub, await party.set(Pubsub(create=pubsub.Create()))).create
        assert named is not None
        assert await party.ids(named.node) == []
        computed = await party.set(Pubsub(create=pubsub.Create(node="urn:fluux:agent:0#skills")))
        assert condition(computed) == "conflict"


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"access_model": "roster"}, "unsupported-access-model"),
        ({"access_model": "nobody"}, "unsupported-access-model"),
        ({"max_items": "0"}, ""),
        ({"max_items": "many"}, ""),
        ({"persist_items": "perhaps"}, ""),
        ({"colour": "red"}, ""),
    ],
)
async def test_a_configuration_that_there_cannot_be(
    running: Running, values: dict[str, str], refused: str
) -> None:
    async with running() as party:
        request = Pubsub(
            create=pubsub.Create(node="n"), configure=pubsub.Configure(form=config(**values))
        )
        assert refusal(await party.set(request)) == ("not-acceptable", refused)
        assert condition(await party.publish("n", item(), who=BOB)) == "item-not-found"


async def test_an_owner_reads_and_changes_the_configuration(running: Running) -> None:
    async with running() as party:
        await party.create("n", max_items="5", access_model="open")
        asked = PubsubOwner(configure=owner.Configure(node="n"))
        answer = result(PubsubOwner, await party.get(asked)).configure
        assert answer is not None
        assert answer.form == config_form(NodeConfig(max_items=5, access_model="open"))
        assert condition(await party.get(asked, BOB)) == "forbidden"
        for each in ("1", "2", "3"):
            await party.publish("n", item(each))
        changed = PubsubOwner(configure=owner.Configure(node="n", form=config(max_items="1")))
        assert condition(await party.set(changed, BOB)) == "forbidden"
        cancelled = owner.Configure(node="n", form=Form(type="cancel"))
        await party.set(PubsubOwner(configure=cancelled))
        assert await party.ids("n") == ["1", "2", "3"]
        await party.set(changed)
        assert await party.ids("n") == ["3"]
        default = await party.get(PubsubOwner(default=owner.Default()), BOB)
        form = result(PubsubOwner, default).default
        assert form is not None
        assert form.form == config_form(DEFAULT)


@pytest.mark.ports
async def test_a_node_is_deleted_with_everything(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        await party.publish("n", item("1"))
        await party.subscribe("n")
        await party.events(1)
        redirect = owner.Delete(node="n", redirect=owner.Redirect(uri="xmpp:x"))
        refused = await party.set(PubsubOwner(delete=redirect))
        assert condition(refused) == "feature-not-implemented"
        gone = PubsubOwner(delete=owner.Delete(node="n"))
        assert condition(await party.set(gone, BOB)) == "forbidden"
        assert (await party.set(gone)).get("type") == "result"
        ((to, event),) = await party.events(1)
        assert to == "bob@b.example"
        assert event.delete == pubsub_event.Delete(node="n")
        assert condition(await party.set(gone)) == "item-not-found"
        await party.create("n", access_model="open")
        assert await party.ids("n") == []
        reply = await party.get(Pubsub(subscriptions=pubsub.Subscriptions()), BOB)
        made = result(Pubsub, reply).subscriptions
        assert made == pubsub.Subscriptions()


# -- items ---------------------------------------------------------------------------------------


@pytest.mark.ports
async def test_items_are_published_replaced_retracted_and_purged(running: Running) -> None:
    async with running() as party:
        await party.create("n", max_items="max")
        reply = result(Pubsub, await party.publish("n", item("1", "one"))).publish
        assert reply == pubsub.Publish(node="n", items=(pubsub.Item(id="1"),))
        chosen = result(Pubsub, await party.publish("n", item())).publish
        assert chosen is not None
        (made,) = chosen.items
        await party.publish("n", item("1", "again"))
        assert await party.ids("n") == [made.id, "1"]
        answer = await party.get(Pubsub(items=pubsub.Items(node="n", items=(pubsub.Item(id="1"),))))
        (found,) = result(Pubsub, answer).items.items  # type: ignore[union-attr] # it is there
        assert found == item("1", "again")
        retract = Pubsub(retract=pubsub.Retract(node="n", items=(pubsub.Item(id="1"),)))
        assert (await party.set(retract)).get("type") == "result"
        assert condition(await party.set(retract)) == "item-not-found"
        assert await party.ids("n") == [made.id]
        assert condition(await party.set(PubsubOwner(purge=owner.Purge(node="n")), BOB)) == (
            "forbidden"
        )
        await party.set(PubsubOwner(purge=owner.Purge(node="n")))
        assert await party.ids("n") == []


@pytest.mark.parametrize(
    ("values", "items", "refused"),
    [
        ({}, (), ("bad-request", "item-required")),
        ({}, (pubsub.Item(id="1"),), ("bad-request", "payload-required")),
        (
            {},
            (pubsub.Item(payloads=(RawXML("<a xmlns='a'/>"), RawXML("<b xmlns='b'/>"))),),
            ("bad-request", "invalid-payload"),
        ),
        ({"type": "urn:other"}, (item(),), ("bad-request", "invalid-payload")),
        ({"max_payload_size": "10"}, (item(),), ("not-acceptable", "payload-too-big")),
        (
            {"persist_items": "0", "deliver_payloads": "0"},
            (item(),),
            ("bad-request", "item-forbidden"),
        ),
        ({"max_items": "1"}, (item("1"), item("2")), ("not-allowed", "max-items-exceeded")),
        ({}, (item("x" * 2000),), ("not-acceptable", "")),
    ],
)
async def test_an_item_that_does_not_fit_the_node(
    running: Running,
    values: dict[str, str],
    items: tuple[pubsub.Item, ...],
    refused: tuple[str, str],
) -> None:
    async with running() as party:
        await party.create("n", **values)
        assert refusal(await party.publish("n", *items)) == refused


async def test_publish_options_are_preconditions_and_configure_a_new_node(running: Running) -> None:
    wanted = options(pubsub.PUBLISH_OPTIONS, access_model="open")
    other = options(pubsub.PUBLISH_OPTIONS, access_model="whitelist")
    unknown = options(pubsub.PUBLISH_OPTIONS, colour="red")
    async with running() as party:
        assert (await party.publish("n", item("1"), form=wanted)).get("type") == "result"
        assert await party.ids("n", BOB) == ["1"]
        assert (await party.publish("n", item("2"), form=wanted)).get("type") == "result"
        for form in (other, unknown):
            refused = refusal(await party.publish("n", item("3"), form=form))
            assert refused == ("conflict", "precondition-not-met")
        assert await party.ids("n") == ["2"]


@pytest.mark.ports
async def test_items_are_retrieved_by_number_and_page(running: Running) -> None:
    async with running() as party:
        await party.create("n", max_items="max")
        for number in range(10):
            await party.publish("n", item(str(number)))
        assert await party.ids("n", max_items=3) == ["7", "8", "9"]
        assert await party.ids("n", page=ResultSet(max=2)) == ["0", "1"]
        assert await party.ids("n", page=ResultSet(max=2, after="1")) == ["2", "3"]
        assert await party.ids("n", page=ResultSet(max=2, before="")) == ["8", "9"]
        assert await party.ids("n", page=ResultSet(max=0)) == []
        gone = Pubsub(items=pubsub.Items(node="n"), page=ResultSet(after="gone"))
        assert condition(await party.get(gone)) == "item-not-found"
        assert await party.ids("n", items=(pubsub.Item(id="gone"),)) == []
        assert condition(await party.get(Pubsub(items=pubsub.Items()))) == "bad-request"


async def test_a_transient_node_keeps_nothing_but_notifies(running: Running) -> None:
    async with running() as party:
        await party.create("n", persist_items="0", access_model="open")
        await party.subscribe("n")
        await party.publish("n", item("1"))
        ((_, event),) = await party.events(1)
        assert published(event) == ["1"]
        kept = await party.get(Pubsub(items=pubsub.Items(node="n")))
        assert refusal(kept) == ("feature-not-implemented", "unsupported")
        retract = Pubsub(retract=pubsub.Retract(node="n", items=(pubsub.Item(id="1"),)))
        lacking = await party.set(retract)
        assert refusal(lacking) == ("feature-not-implemented", "unsupported")


# -- subscriptions -------------------------------------------------------------------------------


@pytest.mark.ports
async def test_a_subscriber_is_told_of_the_last_item_and_of_what_follows(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open", max_items="9")
        await party.publish("n", item("0"))
        await party.publish("n", item("1"))
        made = result(Pubsub, await party.subscribe("n")).subscription
        assert made is not None
        assert (made.subscription, str(made.jid)) == ("subscribed", "bob@b.example")
        await party.publish("n", item("2"))
        retract = pubsub.Retract(node="n", items=(pubsub.Item(id="0"),))
        await party.set(Pubsub(retract=retract))
        await party.set(PubsubOwner(purge=owner.Purge(node="n")))
        last, new, gone, purged = await party.events(4)
        assert {last[0], new[0], gone[0], purged[0]} == {"bob@b.example"}
        assert (published(last[1]), published(new[1])) == (["1"], ["2"])
        assert gone[1].items is not None
        assert gone[1].items.items == (pubsub_event.Retract(id="0"),)
        assert purged[1].purge == pubsub_event.Purge(node="n")
        again = result(Pubsub, await party.subscribe("n")).subscription
        assert again == made
        bye = pubsub.Unsubscribe(node="n", jid=made.jid, subid="wrong")
        reply = await party.set(Pubsub(unsubscribe=bye), BOB)
        assert refusal(reply) == ("not-acceptable", "invalid-subid")
        bye = pubsub.Unsubscribe(node="n", jid=made.jid)
        stranger = await party.set(Pubsub(unsubscribe=bye), CAROL)
        assert condition(stranger) == "forbidden"
        await party.set(Pubsub(unsubscribe=bye), BOB)
        reply = await party.set(Pubsub(unsubscribe=bye), BOB)
        assert refusal(reply) == ("unexpected-request", "not-subscribed")


async def test_nobody_subscribes_another(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        for jid in ("alice@a.example", "bob@b.example/other"):
            reply = await party.subscribe("n", jid=jid)
            assert refusal(reply) == ("bad-request", "invalid-jid")
        assert (await party.subscribe("n", jid=BOB)).get("type") == "result"


@pytest.mark.ports
async def test_options_of_a_subscription(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        await party.subscribe("n")
        bob = JID.parse("bob@b.example")
        silent = options(pubsub.SUBSCRIBE_OPTIONS, deliver="0")
        asked = pubsub.Options(node="n", jid=bob, form=silent)
        assert (await party.set(Pubsub(options=asked), BOB)).get("type") == "result"
        got = await party.get(Pubsub(options=pubsub.Options(node="n", jid=bob)), BOB)
        form = result(Pubsub, got).options
        assert form is not None
        assert form.form is not None
        assert form.form.read("pubsub#deliver", bool) is False
        await party.publish("n", item("1"))
        loud = options(pubsub.SUBSCRIBE_OPTIONS, deliver="1")
        await party.set(Pubsub(options=pubsub.Options(node="n", jid=bob, form=loud)), BOB)
        await party.publish("n", item("2"))
        ((_, event),) = await party.events(1)
        assert published(event) == ["2"]
        wrong = options(pubsub.SUBSCRIBE_OPTIONS, colour="red")
        reply = await party.set(Pubsub(options=pubsub.Options(node="n", jid=bob, form=wrong)), BOB)
        assert refusal(reply) == ("bad-request", "invalid-options")
        ended = options(pubsub.SUBSCRIBE_OPTIONS, expire="2020-01-01T00:00:00Z")
        await party.set(Pubsub(options=pubsub.Options(node="n", jid=bob, form=ended)), BOB)
        reply = await party.get(Pubsub(options=pubsub.Options(node="n", jid=bob)), BOB)
        assert refusal(reply) == ("unexpected-request", "not-subscribed")


# -- access --------------------------------------------------------------------------------------

READS: dict[str, Callable[[str], Payload]] = {
    "items": lambda node: Pubsub(items=pubsub.Items(node=node)),
    "options": lambda node: Pubsub(options=pubsub.Options(node=node, jid=JID.parse(BOB).bare)),
    "subscriptions": lambda node: Pubsub(subscriptions=pubsub.Subscriptions(node=node)),
    "affiliations": lambda node: Pubsub(affiliations=pubsub.Affiliations(node=node)),
    "configure": lambda node: PubsubOwner(configure=owner.Configure(node=node)),
    "owner's affiliations": lambda node: PubsubOwner(affiliations=owner.Affiliations(node=node)),
    "owner's subscriptions": lambda node: PubsubOwner(subscriptions=owner.Subscriptions(node=node)),
}
WRITES: dict[str, Callable[[str], Payload]] = {
    "create": lambda node: Pubsub(create=pubsub.Create(node=node)),
    "publish": lambda node: Pubsub(publish=pubsub.Publish(node=node, items=(item("1"),))),
    "retract": lambda node: Pubsub(retract=pubsub.Retract(node=node, items=(pubsub.Item(id="1"),))),
    "subscribe": lambda node: Pubsub(
        subscribe=pubsub.Subscribe(node=node, jid=JID.parse(BOB).bare)
    ),
    "unsubscribe": lambda node: Pubsub(
        unsubscribe=pubsub.Unsubscribe(node=node, jid=JID.parse(BOB).bare)
    ),
    "options": lambda node: Pubsub(
        options=pubsub.Options(
            node=node,
            jid=JID.parse(BOB).bare,
            form=options(pubsub.SUBSCRIBE_OPTIONS, deliver="0"),
        )
    ),
    "configure": lambda node: PubsubOwner(
        configure=owner.Configure(node=node, form=config(title="x"))
    ),
    "delete": lambda node: PubsubOwner(delete=owner.Delete(node=node)),
    "purge": lambda node: PubsubOwner(purge=owner.Purge(node=node)),
    "affiliations": lambda node: PubsubOwner(
        affiliations=owner.Affiliations(
            node=node,
            affiliations=(owner.Affiliation(jid=JID.parse(BOB).bare, affiliation="owner"),),
        )
    ),
    "subscriptions": lambda node: PubsubOwner(
        subscriptions=owner.Subscriptions(
            node=node,
            subscriptions=(owner.Subscription(jid=JID.parse(BOB).bare, subscription="subscribed"),),
        )
    ),
}


def same(reply: ET.Element) -> list[bytes]:
    """What a reply says, without its id and the name of the node."""
    return [
        ET.tostring(child).replace(b"'none'", b"'mine'").replace(b'"none"', b'"mine"')
        for child in reply
    ]


@pytest.mark.ports
async def test_what_belongs_to_somebody_else_looks_as_if_it_were_not_there(
    running: Running,
) -> None:
    async with running() as party:
        await party.pubsub.ensure(
            AT, "mine", NodeConfig(access_model="whitelist"), owners=[JID.parse(ALICE).bare]
        )
        await party.pubsub.publish(AT, "mine", "1", keep(Ping()))
        assert await party.ids("mine", ALICE) == ["1"]
        for kind, requests in (("get", READS), ("set", WRITES)):
            for verb, request in requests.items():
                theirs = await party.asked(request("mine"), type_=kind, from_=BOB)
                absent = await party.asked(request("none"), type_=kind, from_=BOB)
                lists = verb in ("subscriptions", "affiliations") and kind == "get"
                assert theirs.get("type") == ("result" if lists else "error"), verb
                assert same(theirs) == same(absent), verb
        assert await party.ids("mine", ALICE) == ["1"]
        assert party.news_of_nodes.sent == []
        shown = await party.pubsub.visible(party.pubsub.requester(AT, JID.parse(BOB)))
        assert "mine" not in dict(shown)


async def test_the_presence_model_asks_for_a_presence_subscription(running: Running) -> None:
    async with running() as party:
        await party.create("n")
        refused = ("not-authorized", "presence-subscription-required")
        assert refusal(await party.get(Pubsub(items=pubsub.Items(node="n")), BOB)) == refused
        assert refusal(await party.subscribe("n")) == refused
        await _see_presence(party, "bob@b.example")
        assert await party.ids("n", BOB) == []
        assert (await party.subscribe("n")).get("type") == "result"


async def _see_presence(party: Party, contact: str, state: str = "from") -> None:
    await party.storage.write(
        lambda database: (
            database.execute(
                "INSERT INTO subscriptions (owner, contact, state, ask) VALUES (?, ?, ?, 0)",
                (AGENT, contact, state),
            )
            and None
        )
    )


@pytest.mark.ports
async def test_affiliations_decide_who_reads_and_publishes(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")

        async def make(affiliation: Any) -> ET.Element:
            made = owner.Affiliation(jid=JID.parse(BOB).bare, affiliation=affiliation)
            return await party.set(
                PubsubOwner(affiliations=owner.Affiliations(node="n", affiliations=(made,)))
            )

        assert condition(await party.publish("n", item("1"), who=BOB)) == "forbidden"
        await make("publisher")
        assert (await party.publish("n", item("1"), who=BOB)).get("type") == "result"
        await make("publish-only")
        assert (await party.publish("n", item("2"), who=BOB)).get("type") == "result"
        reply = await party.get(Pubsub(items=pubsub.Items(node="n")), BOB)
        assert condition(reply) == "forbidden"
        await make("outcast")
        for request in (await party.publish("n", item("3"), who=BOB), await party.subscribe("n")):
            assert condition(request) == "forbidden"
        got = await party.get(PubsubOwner(affiliations=owner.Affiliations(node="n")))
        found = result(PubsubOwner, got).affiliations
        assert found is not None
        assert [(str(each.jid), each.affiliation) for each in found.affiliations] == [
            ("alice@a.example", "owner"),
            ("bob@b.example", "outcast"),
        ]
        alone = owner.Affiliation(jid=JID.parse(ALICE).bare, affiliation="none")
        reply = await party.set(
            PubsubOwner(affiliations=owner.Affiliations(node="n", affiliations=(alone,)))
        )
        assert condition(reply) == "not-acceptable"


async def test_an_owner_approves_a_subscription(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="authorize")
        await party.publish("n", item("1"))
        reply = await party.subscribe("n")
        made = result(Pubsub, reply).subscription
        assert made is not None
        assert made.subscription == "pending"
        refused = await party.subscribe("n")
        assert refusal(refused) == ("not-authorized", "pending-subscription")
        reply = await party.get(Pubsub(items=pubsub.Items(node="n")), BOB)
        assert refusal(reply) == ("not-authorized", "not-subscribed")
        await until(lambda: bool(party.news_of_nodes.sent))
        (asking,) = party.news_of_nodes.sent
        assert "to='alice@a.example'" in asking
        assert "pubsub#allow" in asking
        party.seen = 1
        approved = owner.Subscription(jid=made.jid, subscription="subscribed")
        await party.set(
            PubsubOwner(subscriptions=owner.Subscriptions(node="n", subscriptions=(approved,)))
        )
        (_, said), (_, last) = await party.events(2)
        assert said.subscription is not None
        assert said.subscription.subscription == "subscribed"
        assert published(last) == ["1"]
        assert await party.ids("n", BOB) == ["1"]


async def _pending(party: Party, who: str = BOB, node: str = "n") -> str:
    """Have somebody ask for a subscription; its id."""
    made = result(Pubsub, await party.subscribe(node, who)).subscription
    assert made is not None
    assert made.subscription == "pending"
    await until(lambda: len(party.news_of_nodes.sent) > party.seen)
    party.seen = len(party.news_of_nodes.sent)
    return made.subid or ""


@pytest.mark.ports
async def test_an_owner_gets_the_requests_that_wait(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="authorize")
        await party.create("other", access_model="open")
        first = Command(node=pubsub.GET_PENDING)
        await _pending(party)
        await _pending(party, CAROL)
        asked = result(Command, await party.set(first))
        assert asked.form is not None
        assert asked.form.form_type == pubsub.SUBSCRIBE_AUTHORIZATION
        (choice,) = [each for each in asked.form.fields if each.var != "FORM_TYPE"]
        assert (choice.var, choice.type) == ("pubsub#node", "list-single")
        assert [option.value for option in choice.options] == ["n"]
        form = Form(type="submit", fields=(Field(var="pubsub#node", values=("n",)),))
        done = Command(node=first.node, sessionid=asked.sessionid, form=form)
        assert result(Command, await party.set(done)).status == "completed"
        await until(lambda: len(party.news_of_nodes.sent) == party.seen + 2)
        for sent, who in zip(party.news_of_nodes.sent[party.seen :], (BOB, CAROL), strict=True):
            assert f"to='{ALICE}'" in sent
            assert f"<value>{JID.parse(who).bare}</value>" in sent
            assert "pubsub#allow" in sent


async def test_only_owners_get_the_requests_that_wait(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="authorize")
        await party.create("hidden", access_model="whitelist")
        first = Command(node=pubsub.GET_PENDING)
        assert condition(await party.set(first, BOB)) == "forbidden"
        asked = result(Command, await party.set(first))
        for name, refused in (("missing", "item-not-found"), ("n", "")):
            form = Form(type="submit", fields=(Field(var="pubsub#node", values=(name,)),))
            again = Command(node=first.node, sessionid=asked.sessionid, form=form)
            reply = await party.set(again)
            assert (condition(reply) if refused else reply.get("type")) == (refused or "result")
            asked = result(Command, await party.set(first))


async def test_affiliations_decide_about_requests_that_wait(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="authorize")

        async def make(who: str, affiliation: Any) -> None:
            made = owner.Affiliation(jid=JID.parse(who).bare, affiliation=affiliation)
            request = owner.Affiliations(node="n", affiliations=(made,))
            reply = await party.set(PubsubOwner(affiliations=request))
            assert reply.get("type") == "result"

        await _pending(party)
        await _pending(party, CAROL)
        await make(BOB, "publisher")
        await make(CAROL, "outcast")
        for (to, event), state in zip(await party.events(2), ("subscribed", "none"), strict=True):
            assert event.subscription is not None
            assert (to, event.subscription.subscription) == (str(event.subscription.jid), state)
        got = await party.get(PubsubOwner(subscriptions=owner.Subscriptions(node="n")))
        found = result(PubsubOwner, got).subscriptions
        assert found is not None
        assert [(str(each.jid), each.subscription) for each in found.subscriptions] == [
            ("bob@b.example", "subscribed")
        ]


async def test_who_waits_is_not_listed_and_is_told_when_the_node_is_deleted(
    running: Running,
) -> None:
    async with running() as party:
        await party.create("n", access_model="authorize")
        await _pending(party)
        got = await party.get(PubsubOwner(subscriptions=owner.Subscriptions(node="n")))
        found = result(PubsubOwner, got).subscriptions
        assert found == owner.Subscriptions(node="n")
        await party.set(PubsubOwner(delete=owner.Delete(node="n")))
        ((to, event),) = await party.events(1)
        assert (to, event.delete) == ("bob@b.example", pubsub_event.Delete(node="n"))


@pytest.mark.ports
async def test_if_one_change_is_invalid_none_is_made_and_all_are_returned(
    running: Running,
) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        alice, bob = JID.parse(ALICE).bare, JID.parse(BOB).bare

        async def affiliate(*wanted: tuple[JID, Any]) -> ET.Element:
            made = tuple(owner.Affiliation(jid=jid, affiliation=each) for jid, each in wanted)
            request = owner.Affiliations(node="n", affiliations=made)
            return await party.set(PubsubOwner(affiliations=request))

        refused = await affiliate((bob, "publisher"), (alice, "member"))
        assert condition(refused) == "not-acceptable"
        beside = decode(PubsubOwner, refused[0], strict=True).affiliations
        assert beside is not None
        assert [(each.jid, each.affiliation) for each in beside.affiliations] == [
            (bob, "none"),
            (alice, "owner"),
        ]
        assert condition(await affiliate((bob, "member"), (bob, "publisher"))) == "bad-request"
        got = await party.get(PubsubOwner(affiliations=owner.Affiliations(node="n")))
        found = result(PubsubOwner, got).affiliations
        assert found is not None
        assert [each.jid for each in found.affiliations] == [alice]

        made = result(Pubsub, await party.subscribe("n")).subscription
        assert made is not None
        wanted = (
            owner.Subscription(jid=JID.parse(CAROL).bare, subscription="subscribed"),
            owner.Subscription(jid=bob, subscription="unconfigured"),
        )
        refused = await party.set(
            PubsubOwner(subscriptions=owner.Subscriptions(node="n", subscriptions=wanted))
        )
        assert condition(refused) == "not-acceptable"
        listed = decode(PubsubOwner, refused[0], strict=True).subscriptions
        assert listed is not None
        assert [(each.jid, each.subscription, each.subid) for each in listed.subscriptions] == [
            (JID.parse(CAROL).bare, "none", None),
            (bob, "subscribed", made.subid),
        ]


@pytest.mark.parametrize(
    ("model", "may"), [("publishers", set()), ("subscribers", {BOB}), ("open", {BOB, CAROL})]
)
async def test_the_publish_model_decides_who_publishes(
    running: Running, model: str, may: set[str]
) -> None:
    async with running() as party:
        await party.create("n", access_model="open", publish_model=model)
        await party.subscribe("n", BOB)
        for who in (BOB, CAROL):
            reply = await party.publish("n", item(), who=who)
            if who in may:
                assert reply.get("type") == "result"
            else:
                assert condition(reply) == "forbidden"


# -- nothing unrequested ------------------------------------------------------------------------


async def _own(party: Party, node: str, who: str) -> None:
    """Make somebody an owner of a node of Alice's, beside her."""
    made = owner.Affiliation(jid=JID.parse(who).bare, affiliation="owner")
    request = owner.Affiliations(node=node, affiliations=(made,))
    reply = await party.set(PubsubOwner(affiliations=request))
    assert reply.get("type") == "result"


async def _add(party: Party, node: str, who: str, by: str) -> ET.Element:
    """Have an owner subscribe somebody."""
    made = owner.Subscription(jid=JID.parse(who).bare, subscription="subscribed")
    request = owner.Subscriptions(node=node, subscriptions=(made,))
    return await party.set(PubsubOwner(subscriptions=request), by)


async def test_an_owner_subscribes_nobody_who_has_not_asked_for_it(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        await _own(party, "n", BOB)
        refused = await _add(party, "n", CAROL, BOB)
        assert condition(refused) == "not-acceptable"
        assert "has to ask for the subscription itself" in ET.tostring(refused, "unicode")
        await party.publish("n", item("1"), who=BOB)
        await _see_presence(party, "carol@a.example")
        assert (await _add(party, "n", CAROL, BOB)).get("type") == "result"
        (_, said), (_, last) = await party.events(2)
        assert said.subscription is not None
        assert published(last) == ["1"]


async def test_who_has_stopped_the_agent_gets_no_notifications(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        await party.subscribe("n")
        await party.subscribe("n", CAROL)
        await party.contacts.stop(AT, JID.parse(BOB).bare)
        await party.publish("n", item("1"))
        ((to, _),) = await party.events(1)
        assert to == "carol@a.example"
        await party.contacts.start(AT, JID.parse(BOB).bare)
        await party.publish("n", item("2"))
        assert {to for to, _ in await party.events(2)} == {"bob@b.example", "carol@a.example"}


async def test_who_has_stopped_the_agent_subscribes_after_starting_it(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        await party.contacts.stop(AT, JID.parse(BOB).bare)
        refused = await party.subscribe("n")
        assert condition(refused) == "not-allowed"
        assert "/start-contact" in ET.tostring(refused, "unicode")


async def test_only_owners_who_want_messages_are_asked_to_approve(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="authorize")
        await _own(party, "n", CAROL)
        await party.subscribe("n")
        await party.publish("n", item("1"))
        await until(lambda: bool(party.news_of_nodes.sent))
        (asking,) = party.news_of_nodes.sent
        assert "to='alice@a.example'" in asking


# -- what one principal may cause ---------------------------------------------------------------


async def test_subscriptions_of_one_principal_to_one_node_are_limited(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        replies = [
            await party.subscribe("n", f"bob@b.example/{number}", f"bob@b.example/{number}")
            for number in range(MOST_AT_NODE + 1)
        ]
        assert {each.get("type") for each in replies[:-1]} == {"result"}
        assert refusal(replies[-1]) == ("policy-violation", "too-many-subscriptions")
        assert (await party.subscribe("n", CAROL)).get("type") == "result"


async def test_affiliations_with_a_node_are_limited(running: Running) -> None:
    async with running() as party:
        await party.create("n")

        async def affiliate(first: int, count: int) -> ET.Element:
            made = tuple(
                owner.Affiliation(jid=JID.parse(f"m{number}@c.example"), affiliation="member")
                for number in range(first, first + count)
            )
            return await party.set(
                PubsubOwner(affiliations=owner.Affiliations(node="n", affiliations=made))
            )

        assert (await affiliate(0, MOST_AFFILIATIONS - 1)).get("type") == "result"
        refused = await affiliate(MOST_AFFILIATIONS, 1)
        assert condition(refused) == "not-acceptable"


@pytest.mark.ports
async def test_the_oldest_items_are_deleted_when_a_node_has_too_many_bytes(
    running: Running,
) -> None:
    async with running() as party:
        small = NodeConfig(access_model="open", max_items=100, max_bytes=1_000)
        await party.pubsub.ensure(AT, "n", small)
        for number in range(8):
            await party.pubsub.publish(AT, "n", str(number), item(text="x" * 200).payloads[0])
        assert await party.ids("n") == ["4", "5", "6", "7"]


@pytest.mark.ports
@pytest.mark.parametrize("limit", [{"max_bytes": 1_000}, {"max_items": 4}])
async def test_a_node_that_deletes_nothing_refuses_items_when_it_is_full(
    running: Running, limit: dict[str, int]
) -> None:
    async with running() as party:
        full = NodeConfig(refuses_when_full=True, **({"max_items": 100} | limit))
        await party.pubsub.ensure(AT, "n", full, owners=(JID.parse(BOB).bare,))
        for number in range(4):
            reply = await party.publish("n", item(str(number), "x" * 200), who=BOB)
            assert reply.get("type") == "result"
        refused = await party.publish("n", item("4", "x" * 200), who=BOB)
        assert condition(refused) == "resource-constraint"
        assert "delete some items first" in ET.tostring(refused, "unicode")
        assert (await party.publish("n", item("3", "y" * 100), who=BOB)).get("type") == "result"
        assert await party.ids("n", BOB) == ["0", "1", "2", "3"]


async def test_what_a_principal_publishes_is_charged_for_each_subscriber(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "BYTES_PER_S", 1)
    monkeypatch.setattr(handlers, "BURST_BYTES", 1_000_000)
    async with running() as party:
        await party.create("n", access_model="open", publish_model="open", max_items="max")
        for who in (BOB, CAROL):
            await party.subscribe("n", who)
        for _ in range(5):  # 3 times 61 KB each
            reply = await party.publish("n", item(text="x" * 61_000), who=BOB)
            assert reply.get("type") == "result"
        reply = await party.publish("n", item(text="x" * 61_000), who=BOB)
        assert condition(reply) == "resource-constraint"
        assert (await party.publish("n", item(), who=CAROL)).get("type") == "result"
        assert (await party.publish("n", item())).get("type") == "result", "an admin"


async def test_options_beside_a_request_name_neither_node_nor_address(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        bob = JID.parse(BOB).bare
        form = options(pubsub.SUBSCRIBE_OPTIONS, deliver="0")

        async def subscribe(**more: Any) -> ET.Element:
            wanted = pubsub.Options(form=form, **more)
            return await party.set(
                Pubsub(subscribe=pubsub.Subscribe(node="n", jid=bob), options=wanted), BOB
            )

        assert condition(await subscribe(jid=bob)) == "bad-request"
        assert condition(await subscribe(node="n")) == "bad-request"
        assert (await subscribe()).get("type") == "result"
        named = pubsub.Configure(node="m", form=config())
        reply = await party.set(Pubsub(create=pubsub.Create(node="m"), configure=named))
        assert condition(reply) == "bad-request"
        alone = Pubsub(options=pubsub.Options(node="n"))
        assert refusal(await party.get(alone, BOB)) == ("bad-request", "jid-required")
        alone = Pubsub(options=pubsub.Options(node="n", form=form))
        assert refusal(await party.set(alone, BOB)) == ("bad-request", "jid-required")


async def test_items_are_not_returned_for_another_subscription(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        await party.publish("n", item("1"))
        made = result(Pubsub, await party.subscribe("n")).subscription
        assert made is not None
        assert await party.ids("n", BOB, subid=made.subid) == ["1"]
        wrong = Pubsub(items=pubsub.Items(node="n", subid="another"))
        assert refusal(await party.get(wrong, BOB)) == ("not-acceptable", "invalid-subid")


# -- interests and listeners ---------------------------------------------------------------------


@pytest.mark.ports
async def test_who_is_interested_is_notified_without_a_subscription(running: Running) -> None:
    async with running() as party:
        await party.create("n")
        await party.create("other")
        await party.publish("n", item("1"))
        await _see_presence(party, "bob@b.example")
        party.features_of[BOB] = ["n+notify"]
        party.features_of[CAROL] = ["n+notify"]  # she is no contact
        for client in (BOB, CAROL):
            party.bench.receive(
                Presence(
                    from_=client, to=AGENT, payloads=(Caps(node="urn:client", ver="1"),)
                ).encode()
            )
        ((to, last),) = await party.events(1)
        assert (to, published(last)) == (BOB, ["1"])
        await party.publish("other", item("x"))
        await party.publish("n", item("2"))
        ((to, event),) = await party.events(1)
        assert (to, published(event)) == (BOB, ["2"])
        party.bench.receive(Presence(from_=BOB, to=AGENT, type="unavailable").encode())
        await party.publish("n", item("3"))
        await party.subscribe("n")
        ((to, last),) = await party.events(1)  # nothing came before the last item
        assert (to, published(last)) == ("bob@b.example", ["3"])


@pytest.mark.ports
async def test_listeners_hear_of_every_change_in_order(running: Running) -> None:
    heard: list[NodeChange] = []

    async def listener(change: NodeChange) -> None:
        heard.append(change)
        raise ValueError("a fault of one listener")

    async with running() as party:
        party.pubsub.listen(AT, "n", listener)
        await party.pubsub.ensure(AT, "n", NodeConfig(), owners=[JID.parse(BOB).bare])
        await party.pubsub.publish(AT, "other", "1", keep(Ping()))
        await party.pubsub.publish(AT, "n", "1", keep(Ping()))
        assert (await party.publish("n", item("2"), who=BOB)).get("type") == "result"
        await party.pubsub.retract(AT, "n", ["1", "2", "gone"])
        deletion = PubsubOwner(delete=owner.Delete(node="n"))
        assert (await party.set(deletion, BOB)).get("type") == "result"
        await until(lambda: len(heard) == 4)
    kinds = [(each.kind, each.publisher) for each in heard]
    assert kinds == [
        ("published", AGENT),
        ("published", "bob@b.example"),
        ("retracted", AGENT),
        ("deleted", "bob@b.example"),
    ]
    assert heard[2].ids == ("2",)  # the node keeps one item


async def test_the_skills_of_each_are_at_one_node(running: Running) -> None:
    async with running() as party:
        for to in (AGENT, DOMAIN):
            asked = Pubsub(items=pubsub.Items(node="urn:fluux:agent:0#skills"))
            found = result(Pubsub, await party.get(asked, BOB, to)).items
            assert found is not None
            names = [each.id for each in found.items]
            assert names == list(party.view(JID.parse(BOB).bare).names())
        changed = await party.publish("urn:fluux:agent:0#skills", item())
        assert condition(changed) == "forbidden"


@pytest.mark.ports
async def test_subscribers_are_told_of_skills_that_come_into_their_view(running: Running) -> None:
    node = "urn:fluux:agent:0#skills"
    async with running() as party:
        for who in (ALICE, BOB):
            assert (await party.subscribe(node, who)).get("type") == "result"
        await party.pubsub.refresh(AT)
        assert party.news_of_nodes.sent == []

        @skill(name="new", inline=True)
        def new() -> None:
            """Do nothing."""

        party.registry.add(new)
        await party.pubsub.refresh(AT)
        told = await party.events(2)
        assert [(to, published(event)) for to, event in told] == [
            ("alice@a.example", ["new"]),
            ("bob@b.example", ["new"]),
        ]
        await party.pubsub.refresh(AT)
        party.registry.remove("new")
        await party.pubsub.refresh(AT)
        (_, event), _ = await party.events(2)
        assert event.items is not None
        assert event.items.items == (pubsub_event.Retract(id="new"),)


async def watched_task(party: Any, node: str) -> str:
    """The id of a task of Alice; she and Bob are subscribed to the node of tasks."""
    for who in (ALICE, BOB):
        assert (await party.subscribe(node, who)).get("type") == "result"
    return result(Accepted, await party.asked(Execute(skill="slow"), from_=ALICE)).task


@pytest.mark.ports
async def test_a_task_is_at_the_node_of_its_principal_only(running: Running) -> None:
    node = "urn:fluux:agent:0#tasks"
    async with running() as party:
        task = await watched_task(party, node)
        ((to, event),) = await party.events(1)
        assert (to, published(event)) == ("alice@a.example", [task])
        assert await party.ids(node, ALICE) == [task]
        assert await party.ids(node, BOB) == []


async def test_the_newest_tasks_are_at_the_node_the_newest_last(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.features.tasks_iq.node._MOST_TASKS", 2)
    async with running() as party:
        made = []
        for number in range(3):
            asked = Execute(skill="slow", request=f"r{number}")
            made.append(result(Accepted, await party.asked(asked, from_=ALICE)).task)
            await party.storage.write(
                lambda database, number=number: database.execute(
                    "UPDATE tasks SET created = created + ? WHERE id = ?", (number, made[-1])
                )
            )
        assert await party.ids("urn:fluux:agent:0#tasks", ALICE) == made[1:]


async def test_a_task_that_is_stored_no_longer_leaves_the_node(running: Running) -> None:
    node = "urn:fluux:agent:0#tasks"
    async with running() as party:
        task = await watched_task(party, node)
        await party.events(1)
        deleted: list[DeletedTask] = []

        def expire(database: Database) -> None:
            database.execute("UPDATE tasks SET state = 'completed', retain_until = 0")
            database.execute("UPDATE replay SET expires = 0")
            forget(database, deleted=deleted)

        await party.storage.write(expire)
        for each in deleted:
            party.service.deleted(each)
        ((to, event),) = await party.events(1)
        assert to == "alice@a.example"
        assert event.items is not None
        assert event.items.items == (pubsub_event.Retract(id=task),)


async def test_an_unknown_request_is_refused(running: Running) -> None:
    async with running() as party:
        for payload in (Pubsub(), PubsubOwner()):
            for type_ in ("get", "set"):
                reply = await party.asked(payload, type_=type_)
                assert condition(reply) == "bad-request"


def test_encoded_errors_carry_both_conditions() -> None:
    error = StanzaError("conflict", application=(pubsub_errors.PreconditionNotMet(),))
    assert encode(pubsub_errors.PreconditionNotMet()) in error.encode()


@pytest.mark.parametrize(("allow", "state"), [("1", "subscribed"), ("0", "none")])
async def test_an_owner_answers_the_form(running: Running, allow: str, state: str) -> None:
    async with running() as party:
        await party.create("n", access_model="authorize")
        await party.subscribe("n")
        await until(lambda: bool(party.news_of_nodes.sent))
        asking = ET.fromstring(f"<r xmlns='jabber:client'>{party.news_of_nodes.sent[0]}</r>")[0]
        found = asking.find("{jabber:x:data}x")
        assert found is not None
        form = decode(Form, found)
        fields = tuple(
            Field(var=each.var, values=(allow,) if each.var == "pubsub#allow" else each.values)
            for each in form.fields
        )
        answer = Form(type="submit", fields=fields)
        party.seen = 1
        for who in (BOB, ALICE):  # of whom the first is no owner
            party.bench.receive(
                Message(from_=who, to=AGENT, id="answer", payloads=(answer,)).encode()
            )
            await party.bench.settled()
        assert "forbidden" in party.bench.output.sent[-1]
        ((to, event),) = await party.events(1)
        assert to == "bob@b.example"
        assert event.subscription is not None
        assert event.subscription.subscription == state


@pytest.mark.ports
async def test_own_subscriptions_and_affiliations(running: Running) -> None:
    async with running() as party:
        await party.create("n", access_model="open")
        await party.create("m", access_model="open")
        for node in ("m", "n"):
            await party.subscribe(node)
            await party.subscribe(node, ALICE)
        for asked, nodes in (("", ["m", "n"]), ("n", [""]), ("other", [])):
            request = Pubsub(subscriptions=pubsub.Subscriptions(node=asked))
            found = result(Pubsub, await party.get(request, BOB)).subscriptions
            assert found is not None
            assert [each.node for each in found.subscriptions] == nodes
        for asked, nodes in (("", ["m", "n"]), ("n", ["n"]), ("other", [])):
            own = Pubsub(affiliations=pubsub.Affiliations(node=asked))
            affiliations = result(Pubsub, await party.get(own)).affiliations
            assert affiliations is not None
            assert [each.node for each in affiliations.affiliations] == nodes
