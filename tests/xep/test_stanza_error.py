"""Stanza errors: every condition there and back, and whatever else may stand in an error."""

from typing import get_args
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xep.strategies import LANGUAGES, elements, xml_text
from xep.fluux_agent.errors import CONDITIONS, InvalidParam, Retry
from xep.stanza import NAMESPACE as CLIENT
from xep.stanza_error import DEFAULT_TYPES, Condition, ErrorType, StanzaError

# RFC 6120 §8.3.3, sentence by sentence.
RFC = {
    "bad-request": "modify",
    "conflict": "cancel",
    "feature-not-implemented": "cancel",
    "forbidden": "auth",
    "gone": "cancel",
    "internal-server-error": "cancel",
    "item-not-found": "cancel",
    "jid-malformed": "modify",
    "not-acceptable": "modify",
    "not-allowed": "cancel",
    "not-authorized": "auth",
    "policy-violation": "modify",
    "recipient-unavailable": "wait",
    "redirect": "modify",
    "registration-required": "auth",
    "remote-server-not-found": "cancel",
    "remote-server-timeout": "wait",
    "resource-constraint": "wait",
    "service-unavailable": "cancel",
    "subscription-required": "auth",
    "undefined-condition": "cancel",
    "unexpected-request": "wait",
}
conditions = st.sampled_from(get_args(Condition))


def parse(xml: str) -> ET.Element:
    return ET.fromstring(f"<iq xmlns='{CLIENT}'>{xml}</iq>")[0]


def again(error: StanzaError) -> StanzaError:
    return StanzaError.of(parse(error.encode()), CONDITIONS)


def parts(error: StanzaError) -> tuple[object, ...]:
    # Without a text there is no language of it either.
    lang = error.lang if error.text else None
    return (
        error.condition,
        error.type,
        error.text,
        lang,
        error.by,
        error.address,
        error.application,
    )


@pytest.mark.parametrize("condition", get_args(Condition))
def test_each_condition_has_the_type_of_the_rfc(condition: Condition) -> None:
    assert DEFAULT_TYPES[condition] == RFC[condition]
    error = again(StanzaError(condition))
    assert (error.condition, error.type) == (condition, RFC[condition])


def test_there_are_no_other_conditions() -> None:
    assert set(DEFAULT_TYPES) == set(get_args(Condition)) == set(RFC)


@given(
    conditions,
    xml_text,
    st.sampled_from(get_args(ErrorType)),
    st.sampled_from([(), (Retry(after=5),), (InvalidParam(name="a'<"), Retry(after=0))]),
    LANGUAGES,
    st.none() | xml_text,
)
def test_a_stanza_error_is_read_as_it_was_written(
    condition: Condition,
    text: str,
    kind: ErrorType,
    application: tuple[InvalidParam | Retry, ...],
    lang: str,
    by: str | None,
) -> None:
    error = StanzaError(condition, text, type=kind, application=application, lang=lang, by=by)
    assert parts(again(error)) == parts(error)


@pytest.mark.parametrize("condition", ["gone", "redirect"])
def test_where_to_go_instead(condition: Condition) -> None:
    error = StanzaError(condition, address="xmpp:a@b.test?x&y")
    assert again(error).address == "xmpp:a@b.test?x&y"


def test_a_text_that_xml_cannot_carry_still_makes_an_error() -> None:
    assert again(StanzaError("bad-request", "a\x00b\ud800")).text == "a\ufffdb\ufffd"


@given(elements(InvalidParam))
def test_any_element_gives_an_error(element: ET.Element) -> None:
    error = StanzaError.of(element, CONDITIONS)
    assert error.condition in DEFAULT_TYPES
    error.encode()


@pytest.mark.parametrize(
    "xml",
    [
        "<error/>",
        "<error type='nonsense'/>",
        "<error><unheard-of xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>",
        "<error><bad-request/></error>",
    ],
)
def test_what_is_not_understood_is_undefined(xml: str) -> None:
    error = StanzaError.of(parse(xml))
    assert (error.condition, error.type, error.application) == ("undefined-condition", "cancel", ())


def test_an_error_stanza_without_an_error() -> None:
    assert StanzaError.of(None).condition == "undefined-condition"


def test_application_conditions_that_are_unknown_or_malformed_are_left_out() -> None:
    error = StanzaError.of(
        parse(
            "<error type='wait'><resource-constraint xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
            "<retry xmlns='urn:fluux:agent:0#errors' after='soon'/>"
            "<retry xmlns='urn:fluux:agent:0#errors' after='3'/><other xmlns='urn:x'/></error>"
        ),
        CONDITIONS,
    )
    assert error.condition == "resource-constraint"
    assert error.application == (Retry(after=3),)
