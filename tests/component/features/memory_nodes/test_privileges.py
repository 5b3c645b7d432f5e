"""Privileges that servers grant, and requests on behalf of accounts."""

from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from component.features.memory_nodes.privileges import PrivilegedCall, Privileges
from component.link.router.table import Request
from xep import pubsub, pubsub_owner
from xep.binding import Payload, RawXML, decode, encode
from xep.fluux_agent.memory import NAMESPACE
from xep.forwarding import Forwarded, ForwardedIQ
from xep.jid import JID
from xep.privilege import GrantedNamespace, Permission, Privilege, PrivilegedIQ
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

SERVER = JID.parse("example.com")
JULIET = JID.parse("juliet@example.com")
AGENT = JID.parse("assistant@agent.example.com")
GRANT = Privilege(
    permissions=(
        Permission(access="iq", namespaces=(GrantedNamespace(ns=pubsub.NAMESPACE, type="both"),)),
    )
)


def privileges(changed: Callable[[], None] = lambda: None) -> Privileges:
    made = Privileges(["example.com"])
    made.listen(changed)
    return made


# -- what servers grant ----------------------------------------------------------------------------


def test_a_grant_applies_to_the_accounts_of_its_server_and_its_namespaces() -> None:
    told: list[int] = []
    granted = privileges(lambda: told.append(1))
    assert not granted.may_use_nodes(JULIET)
    granted.granted(SERVER, GRANT)
    assert told == [1]
    assert granted.may_use_nodes(JULIET)
    assert not granted.may_own_nodes(JULIET)
    assert not granted.may_use_nodes(JID.parse("juliet@example.org"))
    granted.clear()
    assert not granted.may_use_nodes(JULIET), "the next session may have other privileges"


@pytest.mark.parametrize(
    "sender",
    ["juliet@example.com", "juliet@example.com/balcony", "example.com/x", "evil.example", "com"],
)
def test_grants_by_others_are_ignored(sender: str) -> None:
    granted = privileges()
    attacker = JID.parse(sender)
    assert not granted.is_server(attacker)
    granted.granted(attacker, GRANT)
    for account in ("juliet@example.com", "x@evil.example", "x@com"):
        assert not granted.may_use_nodes(JID.parse(account))


def test_a_grant_without_reading_is_not_enough() -> None:
    granted = privileges()
    only = GrantedNamespace(ns=pubsub.NAMESPACE, type="set")
    granted.granted(SERVER, Privilege(permissions=(Permission(access="iq", namespaces=(only,)),)))
    assert not granted.may_use_nodes(JULIET)


def test_a_later_grant_replaces_earlier_ones() -> None:
    granted = privileges()
    granted.granted(SERVER, GRANT)
    granted.granted(SERVER, Privilege())
    assert not granted.may_use_nodes(JULIET)


def test_privileges_are_accepted_only_at_the_domain_of_the_component() -> None:
    granted = privileges()
    (route,) = granted.routes()
    assert (route.hosts, route.types) == ({"component"}, {"normal"})
    assert route.admits is not None
    assert route.admits(SERVER)
    assert not route.admits(JULIET)
    forwarded = "<forwarded xmlns='urn:xmpp:forward:0'><iq xmlns='jabber:client'/></forwarded>"
    bad = f"<privilege xmlns='{Privilege.xml.namespace}'>{forwarded}</privilege>"
    for payload, expected in ((bad, False), (encode(GRANT), True)):
        text = f"<message xmlns='jabber:client' from='example.com'>{payload}</message>"
        stanza = Incoming.of(fromstring(text), len(text))
        route.handler(Request(stanza, SERVER, SERVER, AGENT, "component", None))
        assert granted.may_use_nodes(JULIET) == expected


# -- requests on behalf of accounts ----------------------------------------------------------------


class Server:
    """A server that forwards the answer of an account. `forge` changes it on the way."""

    def __init__(self, answer: Payload | None = None, **forged: Any) -> None:
        self.answer = answer
        self.forged = forged
        self.asked: list[tuple[str, JID, ForwardedIQ, JID | None]] = []

    async def __call__(
        self, type_: Any, to: JID, payload: Payload, expected: Any, *, from_: Any
    ) -> Any:
        assert isinstance(payload, PrivilegedIQ)
        assert expected is Privilege
        self.asked.append((type_, to, payload.iq, from_))
        payloads = () if self.answer is None else (RawXML(encode(self.answer)),)
        head = {"type": "result", "id": payload.iq.id, "from_": str(to), "to": str(to)}
        iq = ForwardedIQ(**{"payloads": payloads} | head | self.forged)
        # As it is received: what is forged is forged on the wire.
        return decode(Privilege, fromstring(encode(Privilege(forwarded=Forwarded(iq=iq)))))


ITEMS = pubsub.Pubsub(items=pubsub.Items(node=NAMESPACE))


async def ask(server: Server, request: Payload = ITEMS, **options: Any) -> pubsub.Pubsub | None:
    call = PrivilegedCall(server, NAMESPACE)  # type: ignore[arg-type] # the types are those of this test
    return await call("get", JULIET, request, pubsub.Pubsub, from_=AGENT, **options)


async def test_the_request_is_made_on_behalf_of_the_owner() -> None:
    server = Server(ITEMS)
    assert await ask(server) == ITEMS
    ((type_, to, iq, from_),) = server.asked
    assert (type_, to, from_) == ("get", JULIET, AGENT)
    assert (iq.type, iq.to, iq.from_) == ("get", str(JULIET), None)
    assert iq.payloads == (RawXML(encode(ITEMS)),)


async def test_an_answer_may_be_empty() -> None:
    assert await ask(Server()) is None


@pytest.mark.parametrize(
    "forged",
    [
        {"from_": "romeo@example.com"},
        {"from_": "example.com"},
        {"from_": "juliet@example.com/balcony"},
        {"from_": "@"},
        {"to": "romeo@example.com"},
        {"id": "another"},
        {"type": "set"},
    ],
)
async def test_an_answer_that_is_not_from_the_account_is_refused(forged: dict[str, str]) -> None:
    with pytest.raises(StanzaError) as caught:
        await ask(Server(ITEMS, **forged))
    assert caught.value.condition == "undefined-condition"


async def test_the_error_of_the_account_is_raised() -> None:
    condition = "<item-not-found xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
    error = f"<error xmlns='jabber:client' type='cancel'>{condition}</error>"
    with pytest.raises(StanzaError) as caught:
        await ask(Server(type="error", payloads=(RawXML(error),)))
    assert caught.value.condition == "item-not-found"


@pytest.mark.parametrize(
    "request_",
    [
        pubsub.Pubsub(items=pubsub.Items(node="storage:bookmarks")),
        pubsub.Pubsub(subscriptions=pubsub.Subscriptions()),
        pubsub.Pubsub(items=pubsub.Items(node=NAMESPACE), subscriptions=pubsub.Subscriptions()),
        pubsub.Pubsub(
            create=pubsub.Create(node=NAMESPACE),
            configure=pubsub.Configure(node="urn:xmpp:omemo:2"),
        ),
        pubsub.Pubsub(),
        pubsub_owner.PubsubOwner(delete=pubsub_owner.Delete(node="urn:xmpp:avatar:data")),
        pubsub_owner.PubsubOwner(default=pubsub_owner.Default()),
        PrivilegedIQ(iq=ForwardedIQ(type="get", id="1")),
    ],
)
async def test_only_requests_about_the_memory_node_are_made(request_: Payload) -> None:
    server = Server()
    with pytest.raises(ValueError, match="only"):
        await ask(server, request_)
    assert server.asked == []
