"""An agent with two addresses is one contact on real servers, and declines invitations to rooms."""

import pytest

from tests.servers.base import Server
from tests.servers.chatting import body, heard, say
from tests.servers.clients import Element, SlixClient
from tests.servers.conftest import MakeAgent
from tests.servers.fixtures import ServerFactory
from tests.servers.talk import ROSTER, from_, login, result
from tests.servers.test_watches_rooms import enter
from tests.servers.watching import with_rooms

pytestmark = [pytest.mark.servers, pytest.mark.both_servers]

USER = "http://jabber.org/protocol/muc#user"


def contacts(client: SlixClient) -> dict[str, str]:
    """Return the subscriptions of a person's contacts, by address."""
    items = result(client.iq(None, ROSTER)).findall("{jabber:iq:roster}item")
    return {str(item.get("jid")): str(item.get("subscription")) for item in items}


def subscribe(client: SlixClient, to: str) -> None:
    """Add a contact, and wait until it has granted the subscription."""
    client.send_raw(f"<presence to='{to}' type='subscribe'/>")
    client.presences.take(from_(to, "subscribed"))


def test_the_latest_of_two_addresses_is_the_contact(
    xmpp_server: Server, make_agent: MakeAgent
) -> None:
    agent = make_agent(xmpp_server).connected()
    domain, assistant = agent.domain, f"assistant@{agent.domain}"
    with login(xmpp_server) as juliet:
        assert result(juliet.iq(None, ROSTER)) is not None
        subscribe(juliet, assistant)
        subscribe(juliet, domain)
        juliet.presences.take(from_(assistant, "unsubscribed"))
        found = contacts(juliet)
        assert (found[domain], found.get(assistant, "none")) == ("to", "none")
        message = heard(juliet, f"I am the same agent as {assistant}.")
        assert message.get("from") == domain
        say(juliet, assistant, "/schedule add in 1 second: run echo text=oolong")
        assert heard(juliet, "Added").get("from") == assistant
        assert heard(juliet, "oolong").get("from") == assistant, "it was asked for there"


def test_an_invitation_of_a_room_is_declined_and_the_person_told(
    make_server: ServerFactory, make_agent: MakeAgent
) -> None:
    server = make_server(start=False)
    room = with_rooms(server)
    server.start()
    agent = make_agent(server).connected()
    assistant = f"assistant@{agent.domain}"
    with login(server) as juliet:
        enter(juliet, room, "Juliet")
        invite = f"<x xmlns='{USER}'><invite to='{assistant}'><reason>Come!</reason></invite></x>"
        juliet.send_raw(f"<message to='{room}'>{invite}</message>")
        declined = juliet.messages.take(lambda each: each.find(f"{{{USER}}}x/*") is not None)
        decline = declined.find(f"{{{USER}}}x/{{{USER}}}decline")
        assert decline is not None
        assert declined.get("from") == room
        assert str(decline.get("from")).startswith(assistant)
        assert f"/room join {room}" in told(juliet, decline)


def told(juliet: SlixClient, decline: Element) -> str:
    """Return the reason of a refusal, which Prosody passes on; ejabberd says who invites."""
    reason = decline.findtext(f"{{{USER}}}reason")
    return reason or body(heard(juliet, "Invite me directly"))
