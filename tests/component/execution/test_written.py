"""A result that is written around its text is what the encoder makes of the same result."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.execution.written import Written
from component.skills import skill
from component.skills.outputs import JSON, Output, SkillResult
from component.skills.outputs import result_of as made_of
from component.tasks.outcomes import result_of
from xep.binding import Encoded, EncodingError, encode, read
from xep.fluux_agent.execute import Result
from xep.stanza import NAMESPACE


@skill(name="some.skill-1", inline=True, read_only=True)
def some() -> str:
    return ""


TEXTS = st.one_of(st.text(), st.text(st.sampled_from("ab&<>\"'\n\r\t\x00\ue000 é1234567890")))


@given(text=TEXTS, duration=st.floats(0, 100_000))
def test_it_is_what_the_encoder_writes(text: str, duration: float) -> None:
    made = Written(some).made(text, duration)
    result = result_of(some, made_of(text, duration))
    if isinstance(made, Encoded):
        assert made.xml == encode(result, NAMESPACE)
        assert read(made.xml, Result) == result
    else:
        assert made == made_of(text, duration)


def test_a_plain_text_is_written_and_what_is_to_be_escaped_is_not() -> None:
    written = Written(some)
    assert isinstance(written.made("plain, with 'quotes' and a snowman \u2603", 0.0), Encoded)
    for text in ("", "a & b", "a < b", "a > b", "a\nb", "a\x00b", "a\ud800b", "a\ue000b"):
        assert isinstance(written.made(text, 0.0), SkillResult), text


def test_what_cannot_be_sent_is_left_for_whom_it_concerns() -> None:
    made = Written(some).made("\x00", 0.0)
    assert isinstance(made, SkillResult)
    with pytest.raises(EncodingError):
        encode(result_of(some, made), NAMESPACE)


@pytest.mark.parametrize(
    "value",
    [None, 1, {"a": 1}, Output("x", JSON), [Output("x"), Output("y")], SkillResult((), True)],
)
def test_everything_else_is_made_as_ever(value: Any) -> None:
    assert Written(some).made(value, 0.5) == made_of(value, 0.5)
