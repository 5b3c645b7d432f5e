"""An agent is in rooms of real servers: what each server does to it, and what its clients ask."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.agent_process import AgentProcess, Line
from tests.servers.base import Server
from tests.servers.chatting import body
from tests.servers.client_account import at, client_toml
from tests.servers.fixtures import SITE
from tests.servers.proxy import Pair, Proxy
from tests.servers.room_people import Occupant, entered, person
from tests.servers.talk import condition, execute, result
from tests.servers.watching import note_watch, noting_agent, wait_for

pytestmark = [pytest.mark.servers, pytest.mark.both_servers]

NICK = "Librarian"
OUT = "not in a room"


@contextmanager
def watching(
    server: Server, directory: Path, room: str, nick: str = NICK, **settings: Any
) -> Iterator[AgentProcess]:
    """A service that is to be in a room, not started yet."""
    watch = note_watch(server, "lab", room, "room", nick=nick)
    given = {"watches__check_s": 1} | settings
    with noting_agent(server, directory / "agent", [watch], **given) as (agent, _):
        yield agent


def joined(agent: AgentProcess, times: int) -> Line:
    found = wait_for(lambda: agent.log("joined a room"), lambda lines: len(lines) >= times)
    line: Line = found[-1]
    return line


def moves(agent: AgentProcess, count: int) -> list[Line]:
    """So many lines about occupants."""
    lines: list[Line] = wait_for(
        lambda: agent.log("an occupant moved"), lambda found: len(found) >= count
    )
    return lines


def address_of(server: Server, name: str) -> str:
    return f"{name}@conference.{server.host}"


def test_why_the_agent_is_not_in_a_room_is_in_the_log(xmpp_server: Server, tmp_path: Path) -> None:
    server, room = xmpp_server, address_of(xmpp_server, "reasons")
    with (
        watching(server, tmp_path, room) as agent,
        entered(server, room, juliet="Juliet") as (juliet,),
    ):
        account = f"assistant@{agent.domain}"
        agent.start()
        joined(agent, 1)
        juliet.kick(NICK, "Too loud.")
        line = agent.wait_log(OUT, joins_again="next session")
        assert line["reason"].startswith("the agent was kicked")
        assert line["reason"].endswith("Too loud.")
        agent.stop()
        agent.start()
        joined(agent, 2)
        juliet.ban(account)
        wait_for(lambda: reasons(agent), lambda all_: "the agent was banned" in all_[-1])
        agent.stop()
        agent.start()
        wait_for(lambda: reasons(agent), lambda all_: "is banned from the room" in all_[-1])
        juliet.administrate(jid=account, affiliation="none")
        joined(agent, 3)
        juliet.configure(membersonly=1)
        wait_for(lambda: reasons(agent), lambda all_: "only members may be" in all_[-1])
        juliet.administrate(jid=account, affiliation="member")
        joined(agent, 4)
        juliet.administrate(jid=account, affiliation="none")
        wait_for(lambda: reasons(agent), lambda all_: "only members" in all_[-1])
        juliet.configure(membersonly=0, passwordprotectedroom=1, roomsecret="sesame")
        wait_for(lambda: reasons(agent), lambda all_: "has a password" in all_[-1])
        juliet.configure(passwordprotectedroom=0, roomsecret="")
        joined(agent, 5)
        juliet.destroy("We have moved.", instead=f"new-{room}")
        gone = f"the room was destroyed: We have moved.; it is replaced by new-{room}"
        agent.wait_log(OUT, reason=gone)
        assert agent.log(level="error") == []


def reasons(agent: AgentProcess) -> list[str]:
    return ["", *(line["reason"] for line in agent.log(OUT))]


def test_a_nickname_that_is_taken_gets_a_number_until_it_is_free(
    xmpp_server: Server, tmp_path: Path
) -> None:
    server, room = xmpp_server, address_of(xmpp_server, "nicks")
    with (
        watching(server, tmp_path, room) as agent,
        entered(server, room, juliet="Juliet", romeo=NICK) as (juliet, romeo),
    ):
        agent.start()
        assert joined(agent, 1)["nick"] == f"{NICK}_2"
        romeo.leave()
        agent.wait_log("changed in a room", nick=NICK)
        juliet.sees(NICK)


def test_a_nickname_that_the_server_does_not_accept_is_said(
    xmpp_server: Server, tmp_path: Path
) -> None:
    server, room = xmpp_server, address_of(xmpp_server, "emoji")
    settings = {"agent__admins": [server.jid("juliet")], "watches__check_s": 300}
    with (
        watching(server, tmp_path, room, nick="🤖", **settings) as agent,
        entered(server, room, juliet="Juliet") as (juliet,),
    ):
        agent.start()
        line = agent.wait_log(OUT)
        assert "the nickname 🤖" in line["reason"]
        told = juliet.client.messages.take(lambda each: "is not in the room" in body(each))
        assert body(told).endswith("Choose another nickname for the agent, without emoji.")
        juliet.client.send_raw(
            f"<message to='assistant@{agent.domain}' type='chat'><body>/status</body></message>"
        )
        status = juliet.client.messages.take(lambda each: "Warning: " in body(each))
        assert body(told) in body(status)


def test_the_role_of_the_agent_and_the_features_of_the_room_may_change(
    xmpp_server: Server, tmp_path: Path
) -> None:
    server, room = xmpp_server, address_of(xmpp_server, "voice")
    with (
        watching(server, tmp_path, room) as agent,
        entered(server, room, juliet="Juliet") as (juliet,),
    ):
        agent.start()
        joined(agent, 1)
        juliet.administrate(nick=NICK, role="visitor")
        agent.wait_log("changed in a room", role="visitor")
        juliet.administrate(nick=NICK, role="participant")
        agent.wait_log("changed in a room", role="participant")
        juliet.configure(moderatedroom=1, whois="anyone")
        line = agent.wait_log("a room has other features")
        assert "muc_nonanonymous" in line["added"]  # new rooms of ejabberd are moderated already
        juliet.configure(moderatedroom=0, whois="moderators")
        wait_for(
            lambda: [each["removed"] for each in agent.log("a room has other features")],
            lambda found: {"muc_nonanonymous", "muc_moderated"} <= set(found[-1]),
        )


def test_clients_of_occupants_may_ask_what_every_client_is_asked(
    xmpp_server: Server, tmp_path: Path
) -> None:
    server, room = xmpp_server, address_of(xmpp_server, "questions")
    with (
        watching(server, tmp_path, room, agent__allowed_jids=[server.jid("mallory")]) as agent,
        entered(server, room, juliet="Juliet") as (juliet,),
    ):
        agent.start()
        joined(agent, 1)
        own = juliet.sees(NICK)
        caps = own.find("{http://jabber.org/protocol/caps}c")
        assert caps is not None
        assert own.find("{vcard-temp:x:update}x/{vcard-temp:x:update}photo") is not None
        info = "http://jabber.org/protocol/disco#info"
        for node in ("", f"node='{caps.get('node')}#{caps.get('ver')}'"):
            answer = result(juliet.ask(NICK, f"<query xmlns='{info}' {node}/>"))
            identities = [dict(each.attrib) for each in answer.iter(f"{{{info}}}identity")]
            assert {("client", "bot")} <= {(i["category"], i["type"]) for i in identities}
        juliet.ask(NICK, "<ping xmlns='urn:xmpp:ping'/>")
        for payload in (
            "<query xmlns='jabber:iq:version'/>",
            "<time xmlns='urn:xmpp:time'/>",
            "<vCard xmlns='vcard-temp'/>",
        ):
            assert len(result(juliet.ask(NICK, payload)))
        for refused in (
            execute("note", item="x"),
            f"<query xmlns='{info}' node='urn:fluux:agent:0'/>",
            "<query xmlns='http://jabber.org/protocol/disco#items' node='urn:fluux:agent:0'/>",
            "<query xmlns='urn:fluux:agent:0#skills'/>",
        ):
            assert condition(juliet.ask(NICK, refused)) == "service-unavailable"


def test_what_a_client_claims_to_be_does_not_count(xmpp_server: Server, tmp_path: Path) -> None:
    """Occupant ids, hats and real addresses count only if the room itself says them."""
    server, room = xmpp_server, address_of(xmpp_server, "forgers")
    forged = (
        "<x xmlns='http://jabber.org/protocol/muc#user'>"
        "<item affiliation='owner' role='moderator' jid='juliet@localhost/x'/>"
        "<status code='110'/></x>"
        "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='forged'/>"
        "<hats xmlns='urn:xmpp:hats:0'><hat uri='urn:example:chief' title='Chief'/></hats>"
    )
    with (
        watching(server, tmp_path, room) as agent,
        entered(server, room, juliet="Juliet") as (juliet,),
        person(server, "romeo") as client,
    ):
        agent.start()
        joined(agent, 1)
        romeo = Occupant(client, room, "Romeo")
        romeo.enter(forged)
        romeo.show(f"<show>away</show>{forged}")
        romeo.rename("Montague")
        romeo.leave()
        romeo.enter(forged)
        lines = moves(agent, 5)
        identities = [line["identity"] for line in lines]
        assert {line["affiliation"] for line in lines} == {"none"}
        assert all(not line["hats"] for line in lines)
        assert not [each for each in identities if "forged" in each or "juliet" in each]
        if server.name == "prosody":
            assert all(each.startswith("id:") for each in identities)
            assert len(set(identities)) == 1
        else:  # this version gives no ids, so that each visit is somebody else
            assert all(each.startswith("visit:") for each in identities)
            assert len(set(identities[:4])) == 1
            assert identities[4] != identities[3]
        juliet.configure(whois="anyone")
        agent.wait_log("a room has other features")
        romeo.leave()
        moves(agent, 6)
        romeo.enter(forged)
        line = moves(agent, 7)[-1]
        if server.name == "ejabberd":
            assert line["identity"] == f"jid:{server.jid('romeo')}"


class Race(Proxy):
    """A way to a server on which something happens before the agent learns that there is a room."""

    def __init__(self, address: str, port: int, happens: Callable[[], None]) -> None:
        super().__init__(address, port)
        self._happens: Callable[[], None] | None = happens

    def passing(self, pair: Pair, data: bytes, *, to_server: bool) -> None:
        if not to_server and b"muc_" in data and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()


def test_a_room_that_is_gone_when_the_agent_joins_is_not_there_afterwards(
    xmpp_server: Server, tmp_path: Path
) -> None:
    server, room = xmpp_server, address_of(xmpp_server, "race")
    with (
        entered(server, room, juliet="Juliet") as (juliet,),
        Race(server.address, server.component_port, juliet.destroy) as way,
        watching(server, tmp_path, room, server__port=way.port, watches__check_s=300) as agent,
    ):
        agent.start()
        line = agent.wait_log(OUT)
        # ejabberd lets no component create rooms.
        expected = {"prosody": "there is no such room", "ejabberd": "creation is denied"}
        assert expected[server.name] in line["reason"]
        info = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
        assert condition(juliet.client.iq(room, info)) == "item-not-found"


def test_an_agent_with_an_account_is_in_a_room(xmpp_server: Server, tmp_path: Path) -> None:
    """Its server chooses the resource with which it is in the room."""
    server, room = xmpp_server.on(SITE), address_of(xmpp_server, "account")
    directory = tmp_path / "agent"
    settings = {"toml": client_toml(directory), "watches__check_s": 1, **at(server)}
    watch = note_watch(server, "lab", room, "room", nick=NICK)
    with (
        noting_agent(server, directory, [watch], **settings) as (agent, _),
        entered(server, room, juliet="Juliet", romeo="Romeo") as (juliet, romeo),
    ):
        agent.start()
        joined(agent, 1)
        for payload in ("<query xmlns='jabber:iq:version'/>", "<time xmlns='urn:xmpp:time'/>"):
            assert len(result(juliet.ask(NICK, payload)))
        romeo.leave()
        moves(agent, 1)
        agent.kill()
        agent.start()
        joined(agent, 2)
        assert agent.log(level="error") == []
