"""Rooms of real servers are watched: who enters and leaves starts work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest

from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.chatting import body
from tests.servers.clients import Element, SlixClient
from tests.servers.fixtures import ServerFactory
from tests.servers.talk import condition, from_, login
from tests.servers.watching import (
    Notes,
    assert_result,
    note_watch,
    noting_agent,
    wait_for,
    with_rooms,
)

pytestmark = [pytest.mark.servers]

MUC = "http://jabber.org/protocol/muc"
NICK = "Librarian"


def enter(client: SlixClient, room: str, nick: str) -> None:
    """Enter a room, and open it to all if it is new."""
    client.send_raw(f"<presence to={quoteattr(f'{room}/{nick}')}><x xmlns='{MUC}'/></presence>")
    own = client.presences.take(from_room(f"{room}/{nick}", "110"))
    if any(each.get("code") == "201" for each in own.iter(f"{{{MUC}#user}}status")):
        form = "<x xmlns='jabber:x:data' type='submit'/>"
        assert_result(client.iq(room, f"<query xmlns='{MUC}#owner'>{form}</query>", "set"))


def from_room(sender: str, code: str) -> Callable[[Element], bool]:
    """Whether a presence comes from an occupant and has a status code."""
    return lambda stanza: (
        str(stanza.get("from")) == sender
        and any(each.get("code") == code for each in stanza.iter(f"{{{MUC}#user}}status"))
    )


def leave(client: SlixClient, room: str, nick: str) -> None:
    """Leave a room."""
    client.send_raw(f"<presence to={quoteattr(f'{room}/{nick}')} type='unavailable'/>")


def room_watch(server: Server, room: str, **more: Any) -> dict[str, Any]:
    params = {"item": "{json.event}", "text": "{json.nick}"}
    return note_watch(server, "lab", room, "room", nick=NICK, params=params, **more)


def watched_room(make_server: ServerFactory) -> tuple[Server, str, dict[str, Any]]:
    """A server, the address of a room there, and a watch of it."""
    server = make_server(start=False)
    room = with_rooms(server)
    server.start()
    return server, room, room_watch(server, room)


def noted(notes: Notes, *expected: tuple[str, str]) -> None:
    wait_for(lambda: notes.rows()[-len(expected) :], lambda rows: rows == list(expected))


def joined(agent: AgentProcess, times: int) -> None:
    wait_for(lambda: agent.log("joined a room"), lambda found: len(found) >= times)


def test_who_enters_and_leaves_starts_work(xmpp_server: Server, tmp_path: Path) -> None:
    server, room = xmpp_server, f"lab@conference.{xmpp_server.host}"
    watch = room_watch(server, room)
    with noting_agent(server, tmp_path / "agent", [watch], watches__check_s=1) as (agent, notes):
        agent.start()
        agent.wait_log("not in a room", reason="there is no such room")
        with login(server, "juliet") as juliet:
            enter(juliet, room, "Juliet")
            joined(agent, 1)
            own = juliet.presences.take(lambda each: each.get("from") == f"{room}/{NICK}")
            assert own.get("type") is None
            with login(server, "romeo") as romeo:
                enter(romeo, room, "Romeo")
                noted(notes, ("joined", "Romeo"))
                romeo.send_raw(f"<presence to='{room}/Romeo'><show>away</show></presence>")
                noted(notes, ("joined", "Romeo"), ("changed", "Romeo"))
                romeo.send_raw(f"<presence to='{room}/Montague'/>")
                noted(notes, ("changed", "Romeo"), ("renamed", "Montague"))
                agent.kill()
                leave(romeo, room, "Montague")
                agent.start()
                noted(notes, ("renamed", "Montague"), ("left", "Montague"))
                joined(agent, 2)
                assert agent.stop() == 0
                juliet.presences.take(
                    lambda each: (
                        each.get("from") == f"{room}/{NICK}" and each.get("type") == "unavailable"
                    )
                )
                enter(romeo, room, "Romeo")
                agent.start()
                noted(notes, ("left", "Montague"), ("joined", "Romeo"))
        wait_for(lambda: sorted(notes.rows()[-2:]), [("left", "Juliet"), ("left", "Romeo")].__eq__)
        assert len(notes.rows()) == 7
        assert agent.log(level="error") == []


@pytest.mark.both_servers
def test_an_occupant_gets_one_sentence_and_an_invitation_is_declined(
    xmpp_server: Server, tmp_path: Path
) -> None:
    server, room = xmpp_server, f"hall@conference.{xmpp_server.host}"
    here = f"{room}/{NICK}"
    with (
        login(server, "juliet") as juliet,
        login(server, "romeo") as romeo,
        noting_agent(
            server, tmp_path / "agent", [room_watch(server, room)], agent__allowed_domains=["*"]
        ) as (agent, _),
    ):
        enter(juliet, room, "Juliet")
        enter(romeo, room, "Romeo")
        agent.start()
        joined(agent, 1)
        for said in ("Juliet told you something.", "/tasks"):
            mark = f"<x xmlns='{MUC}#user'/>"
            romeo.send_raw(f"<message to='{here}' type='chat'><body>{said}</body>{mark}</message>")
        found = romeo.messages.take(lambda each: each.get("from") == here)
        assert "Please write to me directly" in body(found)
        refused = romeo.iq(here, "<query xmlns='urn:fluux:agent:0#skills'/>")
        assert refused.get("type") == "error"
        assert condition(refused) == "service-unavailable"
        invite = f"<x xmlns='{MUC}#user'><invite to='{agent.domain}'/></x>"
        juliet.send_raw(f"<message to='{room}'>{invite}</message>")
        declined = juliet.messages.take(
            lambda each: each.find(f".//{{{MUC}#user}}decline") is not None
        )
        said = "".join(declined.itertext())
        if server.name == "ejabberd":  # it says who invites
            said = body(juliet.messages.take(from_(agent.domain, "chat")))
        assert "Please write to me directly" in said
        assert not [each for each in romeo.messages.all() if each.get("from") == here]
        assert agent.log(level="error") == []


@pytest.mark.thorough
def test_a_server_that_is_restarted_is_joined_again(
    make_server: ServerFactory, tmp_path: Path
) -> None:
    server, room, watch = watched_room(make_server)
    with noting_agent(server, tmp_path / "agent", [watch], watches__check_s=1) as (agent, notes):
        with login(server, "juliet") as juliet:
            enter(juliet, room, "Juliet")
            agent.start()
            joined(agent, 1)
        noted(notes, ("left", "Juliet"))
        server.restart()
        with login(server, "juliet") as juliet:
            enter(juliet, room, "Juliet")
            joined(agent, 2)
            noted(notes, ("left", "Juliet"), ("joined", "Juliet"))
