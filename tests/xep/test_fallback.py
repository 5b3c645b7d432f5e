"""XEP-0428 and XEP-0461: what of a body is there for other clients, and what it replies to."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xep.binding import ContentError, Payload, decode, encode
from xep.fallback import Fallback, FallbackBody, without_fallback
from xep.message_replies import Reply

PRINTED: list[tuple[str, Payload]] = [
    (
        "<reply xmlns='urn:xmpp:reply:0' to='anna@example.com/tablet' id='message-id1'/>",
        Reply(to="anna@example.com/tablet", id="message-id1"),
    ),
    ("<reply xmlns='urn:xmpp:reply:0' id='message-id1'/>", Reply(id="message-id1")),
    (
        (
            "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'>"
            "<body start='0' end='33'/></fallback>"
        ),
        Fallback(for_="urn:xmpp:reply:0", bodies=(FallbackBody(start=0, end=33),)),
    ),
    ("<fallback xmlns='urn:xmpp:fallback:0'/>", Fallback()),
]


@pytest.mark.parametrize(("xml", "payload"), PRINTED)
def test_as_the_documents_print_them(xml: str, payload: Payload) -> None:
    read = decode(type(payload), ET.fromstring(xml))
    assert read == payload
    assert decode(type(payload), ET.fromstring(encode(payload))) == payload


def test_a_reply_without_an_id_and_a_range_in_words_are_refused() -> None:
    with pytest.raises(ContentError):
        decode(Reply, ET.fromstring("<reply xmlns='urn:xmpp:reply:0'/>"))
    xml = "<fallback xmlns='urn:xmpp:fallback:0'><body start='one'/></fallback>"
    with pytest.raises(ContentError):
        decode(Fallback, ET.fromstring(xml))


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_a_range_is_counted_in_code_points(before: str, quoted: str, after: str) -> None:
    one = FallbackBody(start=len(before), end=len(before) + len(quoted))
    body = before + quoted + after
    assert without_fallback(body, Fallback(bodies=(one,))) == before + after


def test_without_a_range_all_of_it_is_one() -> None:
    assert without_fallback("like", Fallback(for_="urn:xmpp:reactions:0")) == ""
    assert without_fallback("like", Fallback(bodies=(FallbackBody(),))) == ""
    assert without_fallback("> a\nyes", Fallback(bodies=(FallbackBody(end=4),))) == "yes"


def test_ranges_for_several_features_may_overlap() -> None:
    ranges = [(0, None), (0, 4), (2, 5), (1, 3)]
    bodies = tuple([FallbackBody(start=start, end=end) for start, end in ranges[1:]])
    assert without_fallback("> a\nyes", Fallback(bodies=bodies)) == "es"
    bodies = tuple([FallbackBody(start=start, end=end) for start, end in ranges])
    assert without_fallback("> a\nyes", Fallback(bodies=bodies)) == ""


@pytest.mark.parametrize(
    "ranges", [[(0, 9)], [(3, 2)], [(-1, 2)], [(0, 2), (1, 9)], [(0, -1)], [(5, 6)]]
)
def test_ranges_that_are_none_are_refused(ranges: list[tuple[int, int]]) -> None:
    bodies = tuple([FallbackBody(start=start, end=end) for start, end in ranges])
    with pytest.raises(ValueError, match="not a range of the body"):
        without_fallback("yes!", Fallback(bodies=bodies))
