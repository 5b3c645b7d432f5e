"""Stream errors: to XML and back."""

from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xep.stream.streams import HEADER
from xep.stream import CONDITIONS, Condition, ElementReceived, StreamError, StreamParser

XML_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff")
)


def _round(error: StreamError) -> StreamError:
    _, event = StreamParser().receive(HEADER + error.encode())
    assert isinstance(event, ElementReceived)
    assert event.element.tag == "{http://etherx.jabber.org/streams}error"
    return StreamError.from_element(event.element)


def test_there_are_all_conditions_of_the_rfc() -> None:
    assert len(CONDITIONS) == 25  # RFC 6120 §4.9.3.1 to §4.9.3.25


@given(st.sampled_from(sorted(CONDITIONS)), XML_TEXT, XML_TEXT)
def test_what_is_encoded_is_decoded(condition: Condition, text: str, content: str) -> None:
    error = _round(StreamError(condition, text, content=content))
    assert (error.condition, error.text, error.content) == (
        condition,
        text.strip(),
        content.strip(),
    )


@given(st.text())
def test_no_text_makes_it_ill_formed(text: str) -> None:
    assert _round(StreamError("reset", text)).condition == "reset"


def test_it_is_a_sentence_in_logs() -> None:
    assert (
        str(StreamError("conflict", "Somebody else is here.")) == "conflict: Somebody else is here."
    )
    assert str(StreamError("conflict")) == "conflict"


OWN = "xmlns='urn:ietf:params:xml:ns:xmpp-streams'"


@pytest.mark.parametrize(
    ("inside", "condition", "text"),
    [
        ("", "undefined-condition", ""),
        (f"<invalid-id {OWN}/>", "undefined-condition", "invalid-id"),
        ("<conflict xmlns='urn:x'/>", "undefined-condition", ""),
        (f"<text {OWN}> Bye. </text><x xmlns='urn:x'/><reset {OWN}/>", "reset", "Bye."),
    ],
)
def test_errors_of_others(inside: str, condition: str, text: str) -> None:
    error = StreamError.from_element(fromstring(f"<error>{inside}</error>"))
    assert (error.condition, error.text) == (condition, text)
