"""What a server delivers again, or late, is not taken for something that the target does."""

from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import fromstring, tostring

from hypothesis import given
from hypothesis import strategies as st

from conformance.drivers.deliveries import Deliveries
from xep.stanza import Incoming

ACCOUNT = "juliet@example.com"
BEGUN = datetime(2026, 11, 23, 12, tzinfo=UTC)
ID = "<stanza-id xmlns='urn:xmpp:sid:0' id='{id}' by='{by}'/>"


def message(*inside: str, kind: str = "message", to: str = f"{ACCOUNT}/desk") -> Incoming:
    xml = f"<{kind} xmlns='jabber:client' from='agent.example.com' to='{to}' id='m'>"
    element = fromstring(f"{xml}{''.join(inside)}</{kind}>")
    return Incoming.of(element, len(tostring(element)))


def delay(stamp: datetime, by: str | None) -> str:
    who = "" if by is None else f" from='{by}'"
    return f"<delay xmlns='urn:xmpp:delay' stamp='{stamp:%Y-%m-%dT%H:%M:%SZ}'{who}/>"


def deliveries() -> Deliveries:
    return Deliveries(ACCOUNT, BEGUN)


@given(st.lists(st.sampled_from("abcdef"), max_size=30))
def test_a_message_counts_once_however_often_it_is_delivered(ids: list[str]) -> None:
    found = deliveries()
    # A session that is resumed gets it late as well, and another resource may get it.
    late = delay(BEGUN + timedelta(seconds=5), ACCOUNT)
    new = [
        one
        for number, one in enumerate(ids)
        if found.is_new(message(ID.format(id=one, by=ACCOUNT), late if number % 2 else ""))
    ]
    assert new == list(dict.fromkeys(ids))


def test_what_the_target_sends_twice_is_seen_twice() -> None:
    found = deliveries()
    assert found.is_new(message(ID.format(id="1", by=ACCOUNT)))
    assert found.is_new(message(ID.format(id="2", by=ACCOUNT)))
    assert found.is_new(message())
    assert found.is_new(message())


def test_an_id_by_somebody_else_says_nothing() -> None:
    found = deliveries()
    for by in ("room@rooms.example.com", "agent.example.com", "romeo@example.com"):
        assert found.is_new(message(ID.format(id="1", by=by)))
        assert found.is_new(message(ID.format(id="1", by=by)))


def test_what_the_server_kept_from_before_is_left_over() -> None:
    found = deliveries()
    before, since = BEGUN - timedelta(minutes=1), BEGUN + timedelta(seconds=1)
    for by in ("example.com", ACCOUNT, f"{ACCOUNT}/phone"):
        assert not found.is_new(message(delay(before, by)))
        assert found.is_new(message(delay(since, by)))
    # Anybody else's word, such as the target's own, is to be judged.
    for other in ("agent.example.com", None):
        assert found.is_new(message(delay(before, other)))


def test_other_stanzas_are_never_repetitions() -> None:
    found = deliveries()
    for kind in ("iq", "presence"):
        for _ in range(2):
            assert found.is_new(message(ID.format(id="1", by=ACCOUNT), kind=kind))
