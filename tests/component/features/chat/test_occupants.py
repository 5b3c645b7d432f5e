"""Occupants of rooms get one sentence, invitations are declined, and no model is asked."""

from collections.abc import Callable
from typing import Any

import pytest

from component.features.chat.handlers import OccupantHandler
from component.link.messages.messenger import Messenger
from component.link.router.table import IQRoute
from tests.component.features.chat.handler import message_handler
from tests.component.link.router.wire import AGENT, Bench, iq
from xep.jid import JID
from xep.muc import USER
from xep.version import Version

ROOM = JID.parse("lab@conference.b.example")
NICK = f"{ROOM}/Romeo"
OURS = f"{AGENT}/rooms"
MARK = f"<x xmlns='{USER}'/>"


class NoAgent:
    """No message may come here."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def not_refused(principal: JID) -> bool:
    return not principal.domain.endswith("refused.example")


def bench(
    clock: Clock, *, joined: bool = True, admits: Callable[[JID], bool] = not_refused
) -> Bench:
    """Return a router as in the service, which admits no occupant of the agent's room."""

    def is_room(address: JID) -> bool:
        return joined and address.bare == ROOM

    made: list[Bench] = []

    class Output:
        """That of the bench, which is made with the handlers."""

        def __getattr__(self, name: str) -> Any:
            return getattr(made[0].output, name)

    output: Any = Output()
    nothing: Any = NoAgent()
    messenger: Any = Messenger(output)
    occupants = OccupantHandler(messenger, admits, is_room, clock)
    messages = message_handler(messenger, nothing, agents=nothing, clock=clock)
    version = IQRoute("get", Version, lambda _request: Version(name="agent", version="1"))
    routes = [*occupants.routes(), *messages.routes(), version]
    made.append(Bench(routes, admits=lambda who: admits(who) and not is_room(who)))
    return made[0]


def message(sender: str, content: str, type_: str = "chat", to: str = OURS) -> str:
    return f"<message from='{sender}' to='{to}' type='{type_}' id='1'>{content}</message>"


def test_an_occupant_gets_one_sentence_and_no_second_one_for_an_hour() -> None:
    clock = Clock()
    made = bench(clock)
    for body in ("Hello", "/help", "yes"):
        made.receive(message(NICK, f"<body>{body}</body>{MARK}"))
    (sent,) = made.output.sent
    assert f"from='{OURS}'" in sent
    assert f"to='{NICK}'" in sent
    assert f"Please write to me directly: {AGENT}" in sent
    assert USER in sent, "the room needs the mark of a private message"
    made.receive(message(f"{ROOM}/Juliet", f"<body>Hello</body>{MARK}"))
    assert len(made.output.sent) == 2
    clock.now = 3601.0
    made.receive(message(NICK, f"<body>Hello</body>{MARK}"))
    assert len(made.output.sent) == 3


def test_a_message_of_an_occupant_without_the_mark_reaches_no_agent() -> None:
    made = bench(Clock())
    made.receive(message(NICK, "<body>Hello</body>"))
    assert made.output.sent == []


@pytest.mark.parametrize("payload", ["<query xmlns='jabber:iq:version'/>", "<x xmlns='urn:x'/>"])
def test_a_request_of_an_occupant_is_refused(payload: str) -> None:
    made = bench(Clock())
    made.receive(iq(payload, from_=NICK, to=OURS))
    (sent,) = made.output.sent
    assert "service-unavailable" in sent


def invitation(inviter: str, room: JID = ROOM) -> str:
    """Return an invitation as a room passes it on, with the element for old clients."""
    invite = f"<invite from='{inviter}'><reason>Come!</reason></invite>"
    direct = f"<x xmlns='jabber:x:conference' jid='{room}'/>"
    content = f"<body>Come!</body><x xmlns='{USER}'>{invite}</x>{direct}"
    return message(str(room), content, "normal", to=AGENT)


@pytest.mark.parametrize("joined", [True, False])
def test_each_invitation_is_declined_and_the_reason_is_given_once_a_minute(joined: bool) -> None:
    """Prosody does not say who invites."""
    clock = Clock()
    made = bench(clock, joined=joined)
    for _ in range(3):
        made.receive(invitation(NICK))
    clock.now = 61.0
    made.receive(invitation(NICK))
    assert len(made.output.sent) == 4
    for number, sent in enumerate(made.output.sent):
        assert f"to='{ROOM}'" in sent
        assert f"<decline to='{NICK}'" in sent
        assert "<body>" not in sent
        assert (f"Please write to me directly: {AGENT}" in sent) == (number in (0, 3))


def test_an_inviter_whom_the_server_of_the_room_names_gets_a_message() -> None:
    """Ejabberd says who invites."""
    made = bench(Clock())
    for _ in range(2):
        made.receive(invitation("juliet@b.example/x"))
    declined, said, again = made.output.sent
    for sent in (declined, again):
        assert f"to='{ROOM}'" in sent
        assert "<decline to='juliet@b.example/x'/>" in sent
    assert "to='juliet@b.example/x'" in said
    assert f"Please write to me directly: {AGENT}" in said


def test_a_room_cannot_have_people_of_other_servers_written_to() -> None:
    made = bench(Clock())
    made.receive(invitation("juliet@a.example/x"))
    (sent,) = made.output.sent
    assert f"to='{ROOM}'" in sent
    assert "<body>" not in sent


def test_an_invitation_to_a_room_of_a_refused_server_is_ignored() -> None:
    made = bench(Clock(), joined=False)
    room = JID.parse("lab@rooms.refused.example")
    made.receive(invitation(f"{room}/Romeo", room), invitation("tybalt@refused.example", room))
    assert made.output.sent == []


def test_a_room_beside_people_who_are_admitted_is_answered() -> None:
    """The policy names the domain of the people, and not that of their rooms."""

    def admits(who: JID) -> bool:
        return who.domain == "b.example"

    made = bench(Clock(), joined=False, admits=admits)
    made.receive(invitation(NICK))
    (sent,) = made.output.sent
    assert f"Please write to me directly: {AGENT}" in sent
    made.receive(message(NICK, f"<body>Hello</body>{MARK}"))
    assert len(made.output.sent) == 1, "its occupants are not admitted"


def test_who_invites_directly_is_answered_once_a_minute() -> None:
    clock = Clock()
    made = bench(clock)
    direct = f"<x xmlns='jabber:x:conference' jid='{ROOM}' reason='Come!'/>"
    invited = message("juliet@b.example/x", f"<body>Come!</body>{direct}", "normal", to=AGENT)
    made.receive(invited, invited)
    (sent,) = made.output.sent
    assert "to='juliet@b.example/x'" in sent
    assert "I can't take part in rooms yet" in sent
    clock.now = 61.0
    made.receive(invited)
    assert len(made.output.sent) == 2


def test_strangers_get_nothing() -> None:
    made = bench(Clock())
    for content in (MARK, "<x xmlns='jabber:x:conference' jid='a@b.example'/>"):
        made.receive(message("a@refused.example/x", f"<body>Hello</body>{content}"))
    assert made.output.sent == []


def test_an_answer_to_our_refusal_is_not_answered() -> None:
    made = bench(Clock())
    declined = f"<x xmlns='{USER}'><decline from='juliet@b.example'/></x>"
    made.receive(message(str(ROOM), declined, "normal", to=AGENT))
    assert made.output.sent == []
