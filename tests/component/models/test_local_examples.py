"""The examples that a very small model gets before a question."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from component.models.constrained import examples, fitting_tool, with_examples
from component.models.messages import text_message
from component.models.protocol import ModelRequest, Tool


def a_tool(name: str, description: str, **properties: object) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name, description, msgspec.Raw(msgspec.json.encode(schema)))


_CLOCK = a_tool("time", "Tell the time.", zone={"type": "string", "examples": ["Europe/Paris"]})
_EMPTY = a_tool("empty-folder", "Delete all notes.", folder={"enum": ["Drafts", "Archive"]})


def test_the_tool_with_the_words_of_the_question_is_shown_with_two_values() -> None:
    shown = examples((_CLOCK, _EMPTY), "Please empty the folder Archive!")
    assert [message.text for message in shown] == [
        "Empty folder Drafts.",
        "",
        "Please empty folder Archive.",
        "",
    ]
    calls = [call for message in shown for call in message.tool_calls]
    assert [(call.name, call.arguments) for call in calls] == [
        ("empty-folder", '{"folder": "Drafts"}'),
        ("empty-folder", '{"folder": "Archive"}'),
    ]


def test_a_question_for_no_tool_is_shown_answers() -> None:
    shown = examples((_CLOCK, _EMPTY), "Hello, how are you?")
    assert shown
    assert all(message.text and not message.tool_calls for message in shown)


def test_examples_follow_the_conversation() -> None:
    before = (
        text_message("system", "Be kind."),
        text_message("user", "Hello!"),
        text_message("assistant", "Hi."),
    )
    question = text_message("user", "Empty the folder Archive.")
    request = with_examples(ModelRequest(messages=(*before, question), tools=(_EMPTY,)))
    shown = tuple(examples((_EMPTY,), question.text))
    assert shown
    assert request.messages == (*before, *shown, question)


@given(
    question=st.text(),
    schema=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "properties", "required", "examples", "enum", "minimum", "a"]
                ),
                inner,
                max_size=4,
            )
        ),
    ),
)
def test_no_question_and_no_schema_breaks_it(question: str, schema: object) -> None:
    tool = Tool("time", "Tell the time.", msgspec.Raw(msgspec.json.encode(schema)))
    shown = examples((tool,), f"time {question}")
    assert {message.role for message in shown} == {"user", "assistant"}
    assert fitting_tool((tool,), "time") is tool
