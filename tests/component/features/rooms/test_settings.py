"""The sections about rooms, and what applies to each room."""

from typing import Any

import pytest

from component.features.rooms.options import all_options
from component.features.rooms.rows import RoomRow
from component.features.rooms.settings import INVITATIONS, ROOMS
from tests.component.smallest_settings import SMALLEST
from xep.jid import JID

LOBBY = JID.parse("lobby@conference.localhost")
ROOM = f'[[rooms]]\njid = "{LOBBY}"\nnick = "FluuxBot"\n'


def test_what_the_document_of_fluux_prints_works(read: Any) -> None:
    settings = read(SMALLEST + ROOM)
    ((key, options),) = all_options(settings[ROOMS], settings[INVITATIONS], ()).items()
    assert key == ("assistant", LOBBY)
    assert (options.nick, options.answer, options.principal) == ("FluuxBot", "mention", LOBBY)
    assert (options.section.skills, options.section.read_only) == (("*",), True)
    assert settings.later == ()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('[[rooms]]\njid = "conference.localhost"', "must be the address of a room"),
        ('[[rooms]]\njid = "lobby@conference.localhost/x"', "must be the address of a room"),
        ('[[rooms]]\njid = "@@"', "is not an address"),
        ("[[rooms]]", "rooms[0].jid is missing"),
        (f'{ROOM}answer = "sometimes"', "rooms[0].answer"),
        (f'{ROOM}agent = "clerk"', "rooms[0].agent is 'clerk', and no agent is called that"),
        (f'{ROOM}principal = "guest@example.com/x"', "must be an address without a resource"),
        (f'{ROOM}people = ["ann@example.com/x"]', "must be an address without a resource"),
        (f'{ROOM}acknowledge = "ok"', "must be one emoji"),
        (f"{ROOM}history = 1000", "rooms[0].history"),
        (f"{ROOM}budget_usd = -1", "rooms[0].budget_usd"),
        (f"{ROOM}{ROOM}", "keep one of them"),
        ('[room_invitations]\naccept = "all"', "room_invitations.accept"),
        ('[room_invitations]\nservers = ["a@b"]', "must be a domain"),
    ],
)
def test_a_mistake_gets_a_sentence(problems: Any, more: str, sentence: str) -> None:
    assert sentence in str(problems(SMALLEST + more))


def rows(*rows_: RoomRow, read: Any, more: str = "") -> Any:
    settings = read(SMALLEST + ROOM + more)
    return all_options(settings[ROOMS], settings[INVITATIONS], rows_)


def test_a_row_comes_before_the_settings(read: Any) -> None:
    row = RoomRow(agent="assistant", room=str(LOBBY), answer="always", persona="pirate")
    found = rows(row, read=read)["assistant", LOBBY]
    assert (found.nick, found.answer, found.persona) == ("FluuxBot", "always", "pirate")
    assert found.is_declared


def test_a_room_that_was_left_is_not_there(read: Any) -> None:
    assert rows(RoomRow(agent="assistant", room=str(LOBBY), is_left=True), read=read) == {}


def test_an_invited_room_has_what_the_section_of_invitations_says(read: Any) -> None:
    row = RoomRow(agent="assistant", room="a@b.example", inviter="ann@example.com")
    found = rows(row, read=read, more='[room_invitations]\nanswer = "reply"\nskills = ["tide"]\n')
    options = found["assistant", JID.parse("a@b.example")]
    assert (options.answer, options.section.skills, str(options.inviter)) == (
        "reply",
        ("tide",),
        "ann@example.com",
    )
    assert not options.is_declared


@pytest.mark.parametrize(
    ("accounts", "account", "counts"),
    [
        ("server", "ann@localhost", True),
        ("server", "ann@conference.localhost", True),
        ("server", "ann@example.com", False),
        ("server", "ann@evil.localhost", False),
        ("all", "ann@example.com", True),
        ("none", "ann@localhost", False),
    ],
)
def test_a_room_vouches_for_accounts_of_its_own_server(
    read: Any, accounts: str, account: str, counts: bool
) -> None:
    settings = read(f'{SMALLEST}{ROOM}accounts = "{accounts}"\n')
    (options,) = all_options(settings[ROOMS], settings[INVITATIONS], ()).values()
    assert options.vouches(JID.parse(account)) == counts
