"""Real servers keep drafts out of archives, and copy them to no other client."""

import pytest

from component.agent.requests import Reply
from component.kernel.speech import Speech
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import Messenger
from tests.component.link.router.wire import ListOutput
from tests.servers.base import Server
from tests.servers.clients import Element, SlixClient, SlixComponent
from tests.servers.talk import login
from xep.jid import JID

pytestmark = [pytest.mark.servers, pytest.mark.both_servers]

MAM = "urn:xmpp:mam:2"
BODY = "{jabber:client}body"


def say_all(component: SlixComponent, domain: str, to: str, words: str) -> None:
    """Send two drafts and the answer, as an agent does."""
    output = ListOutput()
    speech = Speech(Messenger(output), lambda: True)
    address = ReplyAddress(to, JID("assistant", domain, None), shows_states=True)
    draft = f"{words}.draft"
    speech.draft(Reply(id=draft, to=address, text=f"{words} 1"))
    speech.draft(Reply(id=f"{draft}-2", to=address, text=f"{words} 2", corrects=draft))
    speech.say(Reply(id=f"{words}.answer", to=address, text=f"{words} 3", corrects=draft))
    for xml in output.sent:
        component.send_raw(xml)


def bare(client: SlixClient) -> str:
    return client.jid.partition("/")[0]


def text_of(message: Element) -> str:
    return next((one.text or "" for one in message.iter(BODY)), "")


def heard(client: SlixClient, words: str) -> list[str]:
    """The texts that a client gets, until it gets the answer."""
    answer = client.messages.take(lambda message: text_of(message) == f"{words} 3")
    found = [text_of(message) for message in (*client.messages.all(), answer)]
    return [text for text in found if text.startswith(words)]


def archived(client: SlixClient, words: str) -> list[str]:
    """The texts of the conversation in the archive of an account."""
    while client.messages.all():
        client.messages.take()
    client.iq(bare(client), f"<query xmlns='{MAM}'/>", "set")
    found = [text_of(message) for message in client.messages.all()]
    return [text for text in found if text.startswith(words)]


def test_archives_have_only_the_answer(xmpp_server: Server) -> None:
    server = xmpp_server
    # Prosody's mod_offline knows no hints: the client corrects the drafts when it is back.
    waited = ["absent 1", "absent 2", "absent 3"] if server.name == "prosody" else ["absent 3"]
    login_ = (server.component_domain, server.secret, server.address, server.component_port)
    with SlixComponent(*login_) as component:
        say_all(component, server.component_domain, server.jid("mallory"), "absent")
        with login(server, "mallory") as client:
            client.send_raw("<presence/>")
            assert heard(client, "absent") == waited
            say_all(component, server.component_domain, client.jid, "present")
            assert heard(client, "present") == ["present 1", "present 2", "present 3"]
            assert archived(client, "absent") == ["absent 3"]
            assert archived(client, "present") == ["present 3"]


def test_no_other_client_gets_a_copy_of_a_draft(xmpp_server: Server) -> None:
    server = xmpp_server
    login_ = (server.component_domain, server.secret, server.address, server.component_port)
    with (
        SlixComponent(*login_) as component,
        login(server, "mallory") as client,
        login(server, "mallory") as other,
    ):
        for one in (client, other):
            one.iq(bare(one), "<enable xmlns='urn:xmpp:carbons:2'/>", "set")
            one.send_raw("<presence/>")
            one.iq(bare(one), "<query xmlns='jabber:iq:roster'/>")  # the presence was handled
        say_all(component, server.component_domain, client.jid, "copied")
        assert heard(client, "copied") == ["copied 1", "copied 2", "copied 3"]
        assert heard(other, "copied") == ["copied 3"]
