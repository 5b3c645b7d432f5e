"""Who an occupant is, and that nobody can claim to be somebody else."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from component.kernel.rooms.occupants import RoomOccupant, RoomPresence, RoomView, identity
from tests.component.kernel.rooms.world import presence
from xep.hats import NAMESPACE as HATS
from xep.jid import JID
from xep.occupant_ids import NAMESPACE as OCCUPANT_IDS


def view(*features: str) -> RoomView:
    room = RoomView(first_visit=1_000)
    room.supports(features)
    room.join("Agent")
    room.take(presence("Agent", 110))
    return room


def claims(of: str, **more: str) -> RoomPresence:
    return replace(presence(of, **more), occupant_id="id-of-juliet", hats=("urn:example:chief",))


def test_ids_and_hats_count_only_where_the_room_announces_them() -> None:
    for features in ((), (OCCUPANT_IDS,), (HATS,), (OCCUPANT_IDS, HATS)):
        room = view(*features)
        room.take(claims("Romeo"))
        found = room.occupants["Romeo"]
        assert (found.occupant_id != "") == (OCCUPANT_IDS in features)
        assert (found.hats != ()) == (HATS in features)
        assert (identity(found) == "id:id-of-juliet") == (OCCUPANT_IDS in features)


def test_ids_are_forgotten_where_a_room_does_not_announce_them_any_more() -> None:
    room = view(OCCUPANT_IDS)
    room.supports(())
    room.join("Agent")
    room.take(claims("Romeo"))
    assert identity(room.occupants["Romeo"]).startswith("visit:")


def test_the_real_address_identifies_where_there_is_no_id() -> None:
    room = view()
    room.take(presence("Romeo", jid=JID.parse("romeo@example.com/balcony")))
    assert identity(room.occupants["Romeo"]) == "jid:romeo@example.com"


def test_without_id_and_address_each_visit_is_somebody_else_and_a_nickname_is_not() -> None:
    room = view()
    room.take(presence("Romeo"))
    first = identity(room.occupants["Romeo"])
    room.take(presence("Romeo", show="away"))
    assert identity(room.occupants["Romeo"]) == first
    room.take(presence("Romeo", 303, show="offline", nick="Montague"))
    room.take(presence("Montague"))
    assert identity(room.occupants["Montague"]) == first
    room.take(presence("Romeo"))  # somebody else takes the nickname
    second = identity(room.occupants["Romeo"])
    room.take(presence("Montague", show="offline"))
    room.take(presence("Montague"))
    assert len({first, second, identity(room.occupants["Montague"])}) == 3


def test_after_a_new_join_everybody_is_somebody_else() -> None:
    room = view()
    room.take(presence("Romeo"))
    before = identity(room.occupants["Romeo"])
    room.join("Agent")
    room.take(presence("Romeo"))
    assert identity(room.occupants["Romeo"]) != before


def test_another_process_gives_other_numbers() -> None:
    first, second = RoomView(1), RoomView(2**47)
    for each in (first, second):
        each.join("Agent")
        each.take(presence("Romeo"))
    assert identity(first.occupants["Romeo"]) != identity(second.occupants["Romeo"])


def test_an_occupant_who_claims_to_be_the_agent_is_an_occupant() -> None:
    room = view()
    room.take(presence("Romeo"))
    room.take(presence("Romeo", 110))
    assert room.nick == "Agent"
    room.take(presence("Romeo", 110, 307, show="offline"))
    assert room.is_in
    assert "Romeo" not in room.occupants


texts = st.text(max_size=8)


@given(texts, texts, texts, texts, st.integers(0, 5), st.integers(0, 5))
def test_two_occupants_have_one_identity_only_if_the_room_says_so(
    id_one: str, id_two: str, jid_one: str, jid_two: str, visit_one: int, visit_two: int
) -> None:
    one = RoomOccupant(nick="Romeo", occupant_id=id_one, jid=jid_one, visit=visit_one)
    two = RoomOccupant(nick="Romeo", occupant_id=id_two, jid=jid_two, visit=visit_two)
    if identity(one) == identity(two):
        by_id = id_one == id_two != ""
        by_jid = not id_one and not id_two and jid_one == jid_two != ""
        by_visit = not (id_one or id_two or jid_one or jid_two) and visit_one == visit_two
        assert by_id or by_jid or by_visit
