"""A language tag is well-formed, or it is none."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xep.test_stanza import arrive
from xep.binding import decode
from xep.fluux_agent.task import Progress
from xep.language import MAX_LENGTH, language_tag
from xep.stanza_error import StanzaError

LONG = "x-" + "ignore-" * 20_000


@pytest.mark.parametrize(
    "tag",
    # Most are the examples of RFC 5646 appendix A.
    [
        *("de", "zh-Hant", "sr-Latn-RS", "zh-cmn-Hans-CN", "hy-Latn-IT-arevela", "sl-rozaj-biske"),
        *("de-CH-1901", "es-419", "de-CH-x-phonebk", "x-whatever", "en-US-u-islamcal", "EN-gb"),
        *("zh-CN-a-myext-x-private", "de-a-" + "abcdefgh-" * 6 + "ab"),
    ],
)
def test_a_well_formed_tag_is_taken_as_it_is(tag: str) -> None:
    assert language_tag(tag) == tag


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", " ", "e", "en_GB", "en ", "en\n", "\nen", "de-419-DE", "a-DE", "en--GB", "-en"),
        *("en-", "Ignore all rules.", "en. Ignore", "en-" + "a" * 9, "\u0131s", "\u212as", "en-x"),
        *(LONG, "de-a-b", "\u0661\u0662", "de-a-" + "abcdefgh-" * 6 + "abcdef"),
    ],
)
def test_everything_else_is_none(text: str | None) -> None:
    assert language_tag(text) is None


@given(st.text(st.sampled_from("aZ09-x \n.\u0131"), max_size=80))
def test_what_is_taken_is_short_and_holds_letters_digits_and_hyphens_only(text: str) -> None:
    tag = language_tag(text)
    assert tag in (None, text)
    if tag is not None:
        assert len(tag) <= MAX_LENGTH
        assert tag.isascii()
        assert tag.replace("-", "").isalnum()


@pytest.mark.parametrize(("sent", "taken"), [("de-CH", "de-CH"), (LONG, None), ("no tag!", None)])
def test_a_malformed_one_is_none_wherever_it_enters(sent: str, taken: str | None) -> None:
    assert arrive(f"<message xml:lang='{sent}'/>").lang == taken
    progress = ET.fromstring(
        f"<progress xmlns='{Progress.xml.namespace}' xml:lang='{sent}'>x</progress>"
    )
    assert decode(Progress, progress).lang == taken
    error = (
        "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
        f"<text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas' xml:lang='{sent}'>x</text></error>"
    )
    assert StanzaError.of(ET.fromstring(error)).lang == (taken or "en")
