"""Clients that nobody here wrote log in to the server and talk: slixmpp, aioxmpp, profanity."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from demo_server import DemoServer
from tests.demo_server.peers import AGENT, LIMIT, Component, connect_component, new_server
from tests.demo_server.profanity import Profanity
from tests.servers.clients import PeerRefused, SlixClient, SlixComponent

pytestmark = pytest.mark.anyio
ITEMS = "http://jabber.org/protocol/disco#items"
EXECUTE = "urn:fluux:agent:0#execute"
C = "{jabber:client}"


@pytest.fixture
async def server() -> AsyncIterator[DemoServer]:
    with anyio.fail_after(5 * LIMIT):
        async with new_server() as running:
            yield running


def slixmpp_client(
    server: DemoServer, account: str, password: str, *, verified: bool = True
) -> SlixClient:
    ca_file = server.ca_file if verified else None
    jid = f"{account}@{server.host}"
    return SlixClient(jid, password, server.address, server.c2s_port, ca_file=ca_file)


def slixmpp_component(server: DemoServer) -> SlixComponent:
    return SlixComponent(AGENT, "secret", server.address, server.component_port)


@asynccontextmanager
async def answering_component(server: DemoServer) -> AsyncIterator[None]:
    """A component that says that it answers pings, and does."""

    async def answer(component: Component) -> None:
        while True:
            stanza = await component.stanza()
            if stanza.type != "get":
                continue
            info = "http://jabber.org/protocol/disco#info"
            payload = ""
            if stanza.sole_child == f"{{{info}}}query":
                payload = f"<query xmlns='{info}'><feature var='urn:xmpp:ping'/></query>"
            await component.says(
                f"<iq type='result' id='{stanza.id}' from='{AGENT}' to='{stanza.sender}'>"
                f"{payload}</iq>"
            )

    async with connect_component(server) as component, anyio.create_task_group() as group:
        await component.log_in()
        group.start_soon(answer, component)
        yield
        group.cancel_scope.cancel()


def presence_of(sender: str, type_: str | None = None) -> Any:
    """A test for a presence of this type from `sender`, whatever its resource."""
    return lambda p: p.get("type") == type_ and p.get("from", "").partition("/")[0] == sender


@pytest.mark.parametrize("verified", [True, False], ids=["starttls", "plain"])
async def test_slixmpp_executes_chats_and_subscribes_on_the_demo_server(
    server: DemoServer, verified: bool
) -> None:
    async with (
        slixmpp_client(server, "juliet", "pässword", verified=verified) as juliet,
        slixmpp_client(server, "romeo", "r", verified=verified) as romeo,
        slixmpp_component(server) as component,
    ):
        assert juliet.encrypted == verified
        # Discovery of the component, and an execution.
        items = await juliet.aiq("localhost", f"<query xmlns='{ITEMS}'/>")
        assert [item.get("jid") for item in items.iter(f"{{{ITEMS}}}item")] == [AGENT]
        result = await juliet.aiq(
            AGENT,
            f"<execute xmlns='{EXECUTE}' skill='echo'><param name='text'>hi</param></execute>",
            "set",
        )
        assert result.findtext(f".//{{{EXECUTE}}}output") == "hi"
        # Messages, both ways.
        await to_thread.run_sync(
            juliet.send_raw, "<message to='romeo@localhost' type='chat'><body>hark</body></message>"
        )
        message = await romeo.anext_message()
        assert (message.get("from"), message.findtext(f"{C}body")) == (juliet.jid, "hark")
        # A subscription, to a person and to the component.
        for contact, peer in (("romeo@localhost", romeo), (f"bot@{AGENT}", component)):
            await to_thread.run_sync(
                juliet.send_raw, f"<presence type='subscribe' to='{contact}'/>"
            )
            presences = peer.presences
            await to_thread.run_sync(presences.take, presence_of("juliet@localhost", "subscribe"))
            sender = "" if peer is romeo else f"from='{contact}'"
            for type_ in ("type='subscribed'", ""):
                await to_thread.run_sync(
                    peer.send_raw, f"<presence {type_} {sender} to='juliet@localhost'/>"
                )
            await to_thread.run_sync(juliet.presences.take, presence_of(contact, "subscribed"))
            await to_thread.run_sync(juliet.presences.take, presence_of(contact))


@pytest.mark.parametrize(("account", "password"), [("juliet", "wrong"), ("nobody", "pässword")])
async def test_slixmpp_is_refused_with_a_wrong_password(
    server: DemoServer, account: str, password: str
) -> None:
    with pytest.raises(PeerRefused, match="not-authorized"):
        async with slixmpp_client(server, account, password):
            pass


# aioxmpp lives on asyncio: in a loop of its own, in a thread.


async def aioxmpp_talks(server: DemoServer, password: str) -> dict[str, Any]:
    """Log in as romeo, accept all subscriptions, and answer one message."""
    import aioxmpp
    import aioxmpp.dispatcher
    from aioxmpp import connector

    # Its check of certificates needs an older pyOpenSSL; the other clients do verify ours.
    security = aioxmpp.make_security_layer(password, no_verify=True)
    client = aioxmpp.PresenceManagedClient(
        aioxmpp.JID.fromstr("romeo@localhost"),
        security,
        override_peer=[(server.address, server.c2s_port, connector.STARTTLSConnector())],
        max_initial_attempts=1,
    )
    disco = client.summon(aioxmpp.DiscoClient)
    roster = client.summon(aioxmpp.RosterClient)
    messages = client.summon(aioxmpp.dispatcher.SimpleMessageDispatcher)
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    messages.register_callback(aioxmpp.MessageType.CHAT, None, inbox.put_nowait)
    roster.on_subscribe.connect(lambda stanza: roster.approve(stanza.from_))
    async with asyncio.timeout(LIMIT), client.connected():
        items = await disco.query_items(aioxmpp.JID.fromstr("localhost"))
        ping = aioxmpp.IQ(
            type_=aioxmpp.IQType.GET,
            to=aioxmpp.JID.fromstr(AGENT),
            payload=aioxmpp.ping.Ping(),
        )
        await client.send(ping)
        await roster.set_entry(aioxmpp.JID.fromstr("juliet@localhost"), name="Juliet")
        question = await inbox.get()
        answer = aioxmpp.Message(to=question.from_, type_=aioxmpp.MessageType.CHAT)
        answer.body[None] = "aye"
        await client.send(answer)
        return {
            "items": [str(item.jid) for item in items.items],
            "body": question.body.any(),
            "contacts": {str(jid): item.subscription for jid, item in roster.items.items()},
        }


def aioxmpp_thread(server: DemoServer, password: str) -> dict[str, Any]:
    return asyncio.run(aioxmpp_talks(server, password))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_aioxmpp_discovers_and_chats_on_the_demo_server(server: DemoServer) -> None:
    seen: dict[str, Any] = {}

    async def romeo() -> None:
        seen.update(await to_thread.run_sync(aioxmpp_thread, server, "r"))

    async with (
        slixmpp_client(server, "juliet", "pässword") as juliet,
        answering_component(server),
        anyio.create_task_group() as group,
    ):
        await to_thread.run_sync(
            juliet.send_raw, "<presence type='subscribe' to='romeo@localhost'/>"
        )
        group.start_soon(romeo)
        there = presence_of("romeo@localhost")
        address = (await to_thread.run_sync(juliet.presences.take, there)).get("from")
        await to_thread.run_sync(
            juliet.send_raw, f"<message type='chat' to='{address}'><body>ay me</body></message>"
        )
        answer = await juliet.anext_message()
        assert (answer.get("from"), answer.findtext(f"{C}body")) == (address, "aye")
    assert seen == {"items": [AGENT], "body": "ay me", "contacts": {"juliet@localhost": "from"}}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_aioxmpp_is_refused_with_a_wrong_password(server: DemoServer) -> None:
    import aiosasl

    with pytest.raises(aiosasl.AuthenticationFailure):
        await to_thread.run_sync(aioxmpp_thread, server, "wrong")


# profanity


async def test_profanity_chats_and_subscribes_on_the_demo_server(
    server: DemoServer, tmp_path: Path
) -> None:
    async with (
        slixmpp_client(server, "romeo", "r") as romeo,
        answering_component(server),
        Profanity(tmp_path) as screen,
    ):
        await screen.shows("Type '/help' to show complete help")
        connect = f"/connect juliet@localhost server {server.address} port {server.c2s_port}"
        await screen.types(f"{connect} tls trust", until="password")
        await screen.types("wrong", until="Login failed")
        await screen.types(f"{connect} tls trust", until="password")
        await screen.types("pässword", until="logged in successfully")

        await screen.types("/disco items localhost", until=AGENT)
        await screen.types(f"/disco info {AGENT}", until="urn:xmpp:ping")

        await screen.types("/sub request romeo@localhost")
        await to_thread.run_sync(romeo.presences.take, presence_of("juliet@localhost", "subscribe"))
        await to_thread.run_sync(
            romeo.send_raw, "<presence type='subscribed' to='juliet@localhost'/>"
        )
        await screen.shows("romeo@localhost")
        await screen.types("/msg romeo@localhost wherefore")
        message = await romeo.anext_message()
        assert message.findtext(f"{C}body") == "wherefore"
        await to_thread.run_sync(
            romeo.send_raw,
            f"<message type='chat' to='{message.get('from')}'><body>forswear</body></message>",
        )
        await screen.shows("forswear")
