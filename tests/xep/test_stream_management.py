"""Counting stanzas: acknowledgements, what is kept, and where stanzas end in what we send."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xep.stream import StreamError
from xep.stream_management import NAMESPACE, StanzaSplitter, StreamManagement

STANZAS = [
    b"<message><body>a &lt; b</body></message>",
    b"<presence/>",
    b"<iq type='get' id='1&gt;'><x xmlns='urn:x' y='>'/></iq>",
    "<message><body>\u2603 \u00e9</body></message>".encode(),
    b" ",
]


def a(count: object) -> ET.Element:
    return ET.fromstring(f"<a xmlns='{NAMESPACE}' h='{count}'/>")


@given(data=st.data(), stanzas=st.lists(st.sampled_from(STANZAS)))
def test_stanzas_are_found_however_they_are_cut(data: st.DataObject, stanzas: list[bytes]) -> None:
    whole = b"".join(stanzas)
    splitter, found, pos = StanzaSplitter(), [], 0
    while pos < len(whole):
        end = data.draw(st.integers(pos + 1, len(whole)))
        found += splitter.feed(whole[pos:end])
        pos = end
    assert [each for each in found if not each.isspace()] == [s for s in stanzas if s != b" "]
    assert b"".join(found) == whole
    assert splitter.part_bytes == 0


@given(acknowledgements=st.lists(st.integers(0, 3)), start=st.sampled_from([0, 2**32 - 3]))
def test_what_is_acknowledged_is_kept_no_longer(acknowledgements: list[int], start: int) -> None:
    management = StreamManagement()
    management._acknowledged = start
    count, left = start, []
    for number, step in enumerate(acknowledgements):
        stanza = f"<message id='{number}'/>".encode()
        management.sent(stanza)
        left.append(stanza)
        taken = min(step, len(left))
        count = (count + taken) % 2**32
        assert management.acknowledge(a(count)) == taken
        del left[:taken]
        assert list(management.unacknowledged) == left
        assert management.waiting_bytes == sum(map(len, left))
        assert management.acknowledged_in_all == management.sent_in_all - len(left)


@pytest.mark.parametrize("count", [2, -1, "x", "", 2**32, 10**12])
def test_a_count_of_what_was_not_sent_is_an_error(count: object) -> None:
    management = StreamManagement()
    management.sent(b"<presence/>")
    with pytest.raises(StreamError):
        management.acknowledge(a(count))
    assert management.unacknowledged == (b"<presence/>",)


def test_received_stanzas_are_counted_modulo() -> None:
    management = StreamManagement()
    management.received = 2**32 - 1
    management.count_received()
    assert management.answer() == f"<a xmlns='{NAMESPACE}' h='0'/>".encode()


@pytest.mark.parametrize(
    ("attributes", "id_", "max_s"),
    [
        ("id='x' resume='true' max='60'", "x", 60),
        ("id='x' resume='1'", "x", None),
        ("id='x'", None, None),
        ("resume='true' max='long'", None, None),
    ],
)
def test_a_session_can_be_resumed_if_the_server_says_so(
    attributes: str, id_: str | None, max_s: int | None
) -> None:
    management = StreamManagement()
    management.enabled(ET.fromstring(f"<enabled xmlns='{NAMESPACE}' {attributes}/>"))
    assert (management.id, management.max_s) == (id_, max_s)
