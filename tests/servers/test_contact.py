"""An agent in a contact list, on real servers: its name, avatar and vCard, whose it is, and that it
says so.
"""

import base64
import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from component.app.schema import SCHEMA
from component.config.policy import Agent
from component.kernel.avatars import generated_avatar
from component.store.schema import make_sqlite
from tests.servers.base import Server
from tests.servers.chatting import body, heard, say
from tests.servers.clients import Element, SlixClient
from tests.servers.conftest import MakeAgent
from tests.servers.talk import INFO, ROSTER, from_, login, query, result

pytestmark = [pytest.mark.servers]

PUBSUB = "http://jabber.org/protocol/pubsub"
PHOTO = "{vcard-temp:x:update}x/{vcard-temp:x:update}photo"


def items(client: SlixClient, to: str, node: str) -> Element:
    """The payload of the only item of a node."""
    asked = f"<pubsub xmlns='{PUBSUB}'><items node='{node}'/></pubsub>"
    (found,) = result(client.iq(to, asked)).findall(f"{{{PUBSUB}}}items/{{{PUBSUB}}}item")
    (payload,) = found
    return payload


def shown(client: SlixClient, address: str, digest: str) -> None:
    """Wait for a presence of an address that carries this digest of its avatar. A server may ask
    for presence by itself too (ejabberd probes a new contact), so others may come before it.
    """
    of_the_address = from_(address)
    client.presences.take(
        lambda presence: of_the_address(presence) and presence.findtext(PHOTO) == digest
    )


def test_what_clients_show_of_an_agent(
    xmpp_server: Server, make_agent: MakeAgent, tmp_path: Path
) -> None:
    assistant = f"assistant@{xmpp_server.component_domain}"
    avatar = generated_avatar("somebody else")
    (tmp_path / "own.png").write_bytes(avatar.image)
    agent = make_agent(
        xmpp_server,
        agent__name="Concierge",
        agent__operator="Example Ltd",
        agent__contact="mailto:it@example.com",
        agent__avatar=str(tmp_path / "own.png"),
    ).connected()
    with login(xmpp_server) as juliet:
        # Who has asked for the roster is told what becomes of subscriptions (RFC 6121 §2.2).
        assert juliet.iq(None, ROSTER).get("type") == "result"
        juliet.send_raw(f"<presence to='{assistant}' type='subscribe'/>")
        juliet.presences.take(from_(assistant, "subscribed"))
        shown(juliet, assistant, avatar.sha1)

        card = result(juliet.iq(assistant, "<vCard xmlns='vcard-temp'/>"))
        assert card.findtext("{*}FN") == "Concierge"
        assert card.findtext("{*}ORG/{*}ORGNAME") == "Example Ltd"
        assert card.findtext("{*}EMAIL/{*}USERID") == "it@example.com"
        assert "automated agent, not a person" in card.findtext("{*}DESC", "")
        image = base64.b64decode(card.findtext("{*}PHOTO/{*}BINVAL", ""))
        assert hashlib.sha1(image).hexdigest() == avatar.sha1

        (info,) = items(juliet, assistant, "urn:xmpp:avatar:metadata")
        assert (info.get("id"), info.get("type")) == (avatar.sha1, "image/png")
        data = items(juliet, assistant, "urn:xmpp:avatar:data")
        assert base64.b64decode(data.text or "") == avatar.image
        card = items(juliet, assistant, "urn:xmpp:vcard4")
        assert card.findtext("{*}kind/{*}text") == "application"
        assert card.findtext("{*}org/{*}text") == "Example Ltd"

        found = result(juliet.iq(assistant, query(INFO)))
        identities = {
            (one.get("category"), one.get("type")): one.get("name")
            for one in found.findall(f"{{{INFO}}}identity")
        }
        assert identities[("client", "bot")] == "Concierge"
        values = {
            field.get("var"): field.findtext("{*}value")
            for field in found.iter("{jabber:x:data}field")
        }
        assert values["operator"] == "Example Ltd"
        assert values["support-addresses"] == "mailto:it@example.com"

        agent.set(agent__avatar="", agent__name="Other")
        agent.stop()
        juliet.presences.take(from_(assistant, "unavailable"))
        (tmp_path / "own.png").write_bytes(generated_avatar("somebody new").image)
        agent.set(agent__avatar=str(tmp_path / "own.png"))
        agent.start().connected()
        shown(juliet, assistant, generated_avatar("somebody new").sha1)


def test_each_person_is_told_once_that_it_is_a_machine(
    xmpp_server: Server, make_agent: MakeAgent
) -> None:
    assistant = f"assistant@{xmpp_server.component_domain}"
    agent = make_agent(
        xmpp_server, agent__operator="Example Ltd", agent__notice=Agent().notice
    ).connected()

    def asks(client: SlixClient, *texts: str) -> list[str]:
        """All that is said until the last one is answered."""
        for text in texts:
            say(client, assistant, text)
        said = [body(heard(client))]
        while said.count("pong") < len(texts):
            said.append(body(heard(client)))
        return said

    with login(xmpp_server) as juliet, login(xmpp_server, "romeo") as romeo:
        notice, *answers = asks(juliet, "/ping", "/ping")
        assert notice.startswith("I am Agent, an automated agent operated by Example Ltd.")
        assert answers == ["pong", "pong"]
        assert asks(romeo, "/ping") == [notice, "pong"]
        agent.kill()
        agent.start().connected()
        assert asks(juliet, "/ping") == ["pong"]
        say(juliet, assistant, "help")
        assert "/help - list my commands" in body(heard(juliet))


def contacts(path: Path) -> dict[str, Any]:
    """Until when each contact is sent no presence."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT contact, silent_until FROM subscriptions").fetchall()
        return dict(rows)


@pytest.mark.thorough
def test_a_contact_whose_server_is_gone_is_left_alone(
    xmpp_server: Server, make_agent: MakeAgent, tmp_path: Path
) -> None:
    assistant = f"assistant@{xmpp_server.component_domain}"
    juliet, gone = xmpp_server.jid("juliet"), "somebody@gone.invalid"
    path = tmp_path / "agent" / "data" / "agent.db"
    path.parent.mkdir(parents=True, mode=0o700)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        make_sqlite(connection, path, SCHEMA)
        for contact in (juliet, gone):
            connection.execute(
                "INSERT INTO subscriptions (owner, contact, state, ask) VALUES (?, ?, 'from', 0)",
                (assistant, contact),
            )
    path.chmod(0o600)
    agent = make_agent(xmpp_server, agent__allowed_domains=["*"]).connected()
    # These servers talk with no others, and say so in their own words.
    line = agent.wait_log("presence to a subscriber was returned with an error", contact=gone)
    assert line["condition"] in ("forbidden", "not-allowed")
    agent.stop()
    kept = contacts(path)
    assert kept[juliet] is None
    assert kept[gone] > 0
