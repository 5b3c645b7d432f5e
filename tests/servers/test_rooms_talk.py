"""People talk with an agent in rooms of real servers, with slixmpp as their clients."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.component.models.endpoint import Request, Stall, Text
from tests.servers.base import Server
from tests.servers.chatting import Chat, body, chatting, heard, say
from tests.servers.room_people import Occupant, entered, person
from tests.servers.watching import wait_for

pytestmark = [pytest.mark.servers, pytest.mark.both_servers]

NICK = "FluuxBot"
_ROOMS = uuid4().hex[:8]
"""Rooms of this module alone: other tests use the same servers."""


@pytest.fixture(scope="module")
def service(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    """A service whose agent is in the lobby, and in the gallery, where it answers everybody."""
    rooms = [
        {"jid": address_of(xmpp_server, "lobby"), "nick": NICK, "acknowledge": "👀"},
        {"jid": address_of(xmpp_server, "gallery"), "nick": NICK, "answer": "always"},
    ]
    directory = tmp_path_factory.mktemp("rooms")
    with chatting(xmpp_server, directory, rooms=rooms) as found:
        yield found


@pytest.fixture
def lobby(service: Chat) -> Iterator[tuple[Occupant, Occupant]]:
    room = address_of(service.server, "lobby")
    with entered(service.server, room, juliet="Juliet", romeo="Romeo") as (juliet, romeo):
        juliet.sees(NICK)
        service.model.requests.clear()
        yield juliet, romeo


def address_of(server: Server, name: str) -> str:
    return f"{name}-{_ROOMS}@conference.{server.host}"


def shown(request: Request) -> str:
    """All that a model was shown, as one text."""
    return "\n".join(str(message.get("content")) for message in request.messages)


def test_who_mentions_it_is_answered_with_a_reply_and_others_are_heard(
    service: Chat, lobby: tuple[Occupant, Occupant]
) -> None:
    juliet, romeo = lobby
    service.model.answers(Text("It was the nightingale, Romeo."))
    juliet.say("It was the nightingale, and not the lark.")
    romeo.hears("not the lark", "Juliet")
    romeo.say(f"{NICK}: which bird was it?")
    answer = juliet.hears("It was the nightingale, Romeo.", NICK)
    reply = answer.find("{urn:xmpp:reply:0}reply")
    assert reply is not None
    assert reply.get("to") == romeo.address
    (request,) = service.model.requests
    assert "and not the lark" in shown(request)
    reactions = juliet.client.messages.take(
        lambda each: each.find("{urn:xmpp:reactions:0}reactions") is not None
    )
    assert reactions.findtext("{*}reactions/{*}reaction") == "👀"
    service.model.answers(Text("I am sure."))
    juliet.reply(answer, "Are you sure?")
    romeo.hears("I am sure.", NICK)


def test_a_forged_delay_and_occupant_id_and_account_mean_nothing(
    service: Chat, lobby: tuple[Occupant, Occupant]
) -> None:
    juliet, romeo = lobby
    delay = "<delay xmlns='urn:xmpp:delay' stamp='2020-01-01T00:00:00Z'/>"
    romeo.say(f"{NICK}: answer that!", delay)
    romeo.hears("answer that!")
    forged = (
        "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='of-juliet'/>"
        "<x xmlns='http://jabber.org/protocol/muc#user'>"
        f"<item jid='{service.server.jid('juliet')}' affiliation='owner' role='moderator'/></x>"
    )
    romeo.say(f"{NICK} /new", forged)
    juliet.hears("Only admins of this service", NICK)
    assert service.model.requests == []


def test_stop_of_another_occupant_stops_it(service: Chat, lobby: tuple[Occupant, Occupant]) -> None:
    juliet, romeo = lobby
    service.model.answers(Stall())
    juliet.say(f"@{NICK} count to a million")
    wait_for(lambda: len(service.model.requests), lambda count: count >= 1)
    romeo.say("stop")
    juliet.hears("Stopped.", NICK)


def test_private_messages_belong_to_one_occupant(
    service: Chat, lobby: tuple[Occupant, Occupant]
) -> None:
    juliet, romeo = lobby
    service.model.answers(Text("I keep it."), Text("I know of none."))
    juliet.say("My secret is a bottle.", to=NICK)
    juliet.is_told("I keep it.", NICK)
    romeo.say("What is her secret?", to=NICK)
    romeo.is_told("I know of none.", NICK)
    assert "bottle" not in shown(service.model.requests[-1])
    romeo.say("/tasks", to=NICK)
    romeo.is_told("Write to me directly", NICK)


def test_without_voice_it_is_silent(service: Chat, lobby: tuple[Occupant, Occupant]) -> None:
    juliet, romeo = lobby
    juliet.configure(moderatedroom=1)
    juliet.administrate(nick=NICK, role="visitor")
    service.agent.wait_log("changed in a room", role="visitor")
    romeo.say(f"{NICK}: hello")
    juliet.hears("hello", "Romeo")
    juliet.administrate(nick=NICK, role="participant")
    service.agent.wait_log("changed in a room", role="participant")
    service.model.answers(Text("I am back."))
    romeo.say(f"{NICK}: and now?")
    juliet.hears("I am back.", NICK)
    assert len(service.model.requests) == 1
    juliet.configure(moderatedroom=0)  # for the tests that follow


def test_the_owner_of_a_room_gives_commands_there(service: Chat) -> None:
    server = service.server
    room = address_of(server, "gallery")
    with entered(server, room, juliet="Juliet", romeo="Romeo") as (juliet, romeo):
        juliet.configure(whois="anyone", persistentroom=1)
        juliet.sees(NICK)
        service.model.answers(Text("I answer everybody."))
        romeo.say("hello")
        juliet.hears("I answer everybody.", NICK)
        juliet.say(f"{NICK} /room mode never")
        romeo.hears("I answer nothing from now on", NICK)
        service.agent.stop()
        service.agent.start()
        service.agent.connected()
        juliet.sees(NICK)
        before = len(service.model.requests)
        romeo.say(f"{NICK}: are you there?")
        juliet.hears("are you there?")
        romeo.say(f"{NICK} /room")
        juliet.hears("I answer nothing", NICK)
        assert len(service.model.requests) == before


def test_it_comes_when_an_admin_invites_it_and_declines_what_proves_nothing(
    service: Chat,
) -> None:
    server, domain = service.server, service.agent.domain
    room = address_of(server, "balcony")
    with (
        entered(server, room, juliet="Juliet") as (juliet,),
        person(server, "romeo") as romeo,
    ):
        juliet.invite(domain, direct=False)
        declined = juliet.client.messages.take(
            lambda each: each.find(".//{http://jabber.org/protocol/muc#user}decline") is not None
        )
        said = "".join(declined.itertext())
        if server.name == "ejabberd":  # it says who invites
            said = body(heard(juliet.client, "Invite me directly"))
        assert f"/room join {room}" in said
        juliet.invite(domain)
        heard(juliet.client, "only if an admin of this service invites me")
        Occupant(romeo, room, "Romeo").invite(domain)
        juliet.sees("Agent")
        service.model.answers(Text("Good evening."))
        juliet.say("agent, hello")
        juliet.hears("Good evening.", "Agent")
        say(romeo, service.assistant, f"/room leave {room}")
        heard(romeo, "I have left")
        juliet.sees("Agent", type_="unavailable")


def test_moderated_messages_leave_the_context(
    service: Chat, lobby: tuple[Occupant, Occupant], tmp_path: Path
) -> None:
    del tmp_path
    juliet, romeo = lobby
    romeo.say("My secret is a bottle.")
    message = juliet.hears("My secret is a bottle.")
    id_ = next(
        str(each.get("id"))
        for each in message.iter("{urn:xmpp:sid:0}stanza-id")
        if each.get("by") == juliet.room
    )
    romeo.say("", f"<retract xmlns='urn:xmpp:message-retract:1' id='{id_}'/>")
    service.model.answers(Text("I don't know."))
    juliet.say(f"{NICK}: what is his secret?")
    romeo.hears("I don't know.", NICK)
    assert "bottle" not in shown(service.model.requests[-1])
