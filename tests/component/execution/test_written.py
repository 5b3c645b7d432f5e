"""A result that is written around its text is what the encoder makes of the same result."""

from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.execution import written
from component.execution.written import Written
from component.skills import AnySkill, Context, InvalidParam, SkillError, skill
from component.skills.outputs import JSON, Output, SkillResult
from component.skills.outputs import result_of as made_of
from component.tasks.outcomes import result_of
from xep.binding import Encoded, encode, read
from xep.fluux_agent.execute import Result
from xep.stanza import NAMESPACE
from xep.stanza_error import StanzaError


def giving(value: Any) -> AnySkill:
    """A skill that returns it, or raises it."""

    @skill(name="some.skill-1", inline=True, read_only=True)
    def some() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return some


def run(declared: AnySkill, context: Context | None = None) -> Encoded | Result | StanzaError:
    arguments = msgspec.convert({}, declared.inputs.struct)
    return Written(declared).run(arguments, context)


TEXTS = st.one_of(st.text(), st.text(st.sampled_from("ab&<>\"'\n\r\t\x00\ue000 é1234567890")))


@given(text=TEXTS, duration=st.floats(0, 100_000))
def test_it_is_what_the_encoder_writes(text: str, duration: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        ticks = count()
        patch.setattr(written, "perf_counter", lambda: next(ticks) * duration)
        made = run(giving(text))
    expected = result_of(giving(text), made_of(text, duration))
    if isinstance(made, Encoded):
        assert made.xml == encode(expected, NAMESPACE)
        assert read(made.xml, Result) == expected
    else:
        assert made == expected


def test_a_plain_text_is_written_and_what_is_to_be_escaped_is_not() -> None:
    for text in ("plain, with 'quotes' and a snowman \u2603", "two\nlines", "a\ue000b"):
        assert isinstance(run(giving(text)), Encoded), text
    for text in ("", "a & b", "a < b", "a > b", "a\rb", "a\x00b", "a\ud800b", "a\ufffeb"):
        assert isinstance(run(giving(text)), Result), text


@pytest.mark.parametrize("bad", ["\x00", "\x01", "\ud800", "\uffff"])
def test_what_xml_cannot_carry_is_replaced(bad: str) -> None:
    made = run(giving(f"a{bad}b"))
    assert isinstance(made, Result)
    assert read(encode(made, NAMESPACE), Result).outputs[0].text == "a\ufffdb"


@pytest.mark.parametrize(
    "value",
    [None, 1, {"a": 1}, Output("x", JSON), [Output("x"), Output("y")], SkillResult((), True)],
)
def test_everything_else_is_made_as_ever(value: Any) -> None:
    assert run(giving(value)) == result_of(giving(value), made_of(value, 0.0))


def test_a_skill_that_says_no_has_answered() -> None:
    made = run(giving(SkillError("not today")))
    assert isinstance(made, Result)
    assert (made.is_error, made.outputs[0].text) == (True, "not today")


@pytest.mark.parametrize(
    ("raised", "condition"),
    [
        (InvalidParam("text", "is odd"), "bad-request"),
        (ValueError("secret"), "internal-server-error"),
        (SystemExit(1), "internal-server-error"),
    ],
)
def test_what_it_raises_is_an_error(raised: BaseException, condition: str) -> None:
    made = run(giving(raised))
    assert isinstance(made, StanzaError)
    assert made.condition == condition
    assert "secret" not in made.text


def test_a_value_that_no_result_can_carry_is_the_skills_failure() -> None:
    made = run(giving(b"bytes"))
    assert isinstance(made, StanzaError)
    assert made.condition == "internal-server-error"


def test_a_context_is_handed_on() -> None:
    @skill(inline=True, read_only=True)
    def who(context: Context) -> str:
        return context.principal

    context = Context(principal="ann@a.example", sender="ann@a.example/x", skill="who")
    made = run(who, context)
    assert Written(who).wants_context
    assert isinstance(made, Encoded)
    assert ">ann@a.example<" in made.xml
