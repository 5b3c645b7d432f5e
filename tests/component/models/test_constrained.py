"""Tools for models that do not support them: prompt, schema, and answers."""

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_limits import NAME_CHARACTERS
from component.models.constrained import AnswerText, Constrained, constrain, parse
from component.models.messages import (
    ModelMessage,
    ToolCall,
    call_message,
    result_message,
    text_message,
)
from component.models.protocol import Completion, ModelRequest, Tool, Usage
from tests.component.models.scripted import Scripted

pytestmark = pytest.mark.anyio


def tool(name: str, schema: Any) -> Tool:
    return Tool(name, f"What {name} does.", msgspec.Raw(json.dumps(schema).encode()))


CLOCK = tool(
    "clock", {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
)
PING = tool("ping", {"type": "object"})
TREE = tool(
    "tree",
    {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node"}},
        "required": ["root"],
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
                "additionalProperties": False,
            }
        },
    },
)
TOOLS = (CLOCK, PING, TREE)


def asking(
    *messages: ModelMessage, tools: Sequence[Tool] = TOOLS, schema: Any = None
) -> ModelRequest:
    return ModelRequest(
        messages=messages or (text_message("user", "What time is it?"),),
        tools=tuple(tools),
        schema=None if schema is None else msgspec.Raw(json.dumps(schema).encode()),
    )


def held(request: ModelRequest) -> jsonschema.protocols.Validator:
    constrained = constrain(request)
    assert constrained.schema is not None
    schema = json.loads(bytes(constrained.schema))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


# -- the schema ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"answer": "It is noon."},
        {"tool": "clock", "arguments": {"zone": "UTC"}},
        {"tool": "ping", "arguments": {}},
        {"tool": "tree", "arguments": {"root": {"kids": [{"kids": []}, {}]}}},
    ],
)
def test_the_schema_accepts_an_answer_or_a_call(said: Any) -> None:
    assert held(asking()).is_valid(said)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"answer": 5},
        {"answer": "a", "tool": "ping", "arguments": {}},
        {"tool": "invented", "arguments": {}},
        {"tool": "clock", "arguments": {}},
        {"tool": "ping", "arguments": {"rambling": 1}},
        {"tool": "tree", "arguments": {"root": {"kids": [{"kids": 1}]}}},
        "It is noon.",
    ],
)
def test_the_schema_accepts_nothing_else(said: Any) -> None:
    assert not held(asking()).is_valid(said)


def test_the_answer_has_the_schema_of_the_request() -> None:
    validator = held(asking(schema={"type": "object", "required": ["hour"]}))
    assert validator.is_valid({"answer": {"hour": 12}})
    assert not validator.is_valid({"answer": "noon"})
    assert validator.is_valid({"tool": "ping", "arguments": {}})


def test_without_tools_the_schema_of_the_request_is_kept() -> None:
    request = asking(tools=(), schema={"type": "object"})
    assert constrain(request) == request


# -- the prompt ---------------------------------------------------------------------------------


def test_the_tools_precede_the_instructions() -> None:
    constrained = constrain(asking(text_message("system", "Be kind."), text_message("user", "Hi")))
    assert constrained.tools == ()
    system, user = constrained.messages
    assert system.role == "system"
    assert system.text.endswith("\n\nBe kind.")
    assert user == text_message("user", "Hi")
    for each in TOOLS:
        assert f'- {each.description} {{"tool": "{each.name}", "arguments": ' in system.text


def test_the_parameters_have_their_descriptions() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "zone": {"type": "string", "description": "As IANA names it."},
            "style": {"enum": ["short", "long"]},
            "count": {"type": "integer"},
        },
    }
    constrained = constrain(asking(tools=[tool("clock", parameters), tool("any", True)]))
    *_, first, second = constrained.messages[0].text.splitlines()
    assert first == (
        '- What clock does. {"tool": "clock", "arguments": {"zone": "...", "style": "...",'
        ' "count": "..."}} (zone: As IANA names it.; style: one of ["short", "long"])'
    )
    assert second == '- What any does. {"tool": "any", "arguments": {}}'


def test_calls_and_results_become_text_and_roles_alternate() -> None:
    constrained = constrain(
        asking(
            text_message("user", "Time here and there?"),
            call_message(
                "Let me see.",
                (ToolCall("1", "clock", '{"zone": "UTC"}'), ToolCall("2", "ping", "")),
            ),
            result_message("1", "12:00"),
            result_message("2", "pong"),
            text_message("user", "And?"),
            text_message("assistant", "Noon."),
        )
    )
    assert [m.role for m in constrained.messages] == [
        "system", "user", "assistant", "user", "assistant"
    ]  # fmt: skip
    assert constrained.messages[2].text.splitlines() == [
        '{"answer": "Let me see."}',
        '{"tool": "clock", "arguments": {"zone": "UTC"}}',
        '{"tool": "ping", "arguments": {}}',
    ]
    assert constrained.messages[3].text == (
        "[result of clock]\n12:00\n\n[result of ping]\npong\n\nAnd?"
    )
    assert constrained.messages[4].text == '{"answer": "Noon."}'
    assert not any(m.tool_calls or m.results for m in constrained.messages)


# -- what comes back ----------------------------------------------------------------------------


def parsed(text: str, finish: Any = "stop", request: ModelRequest | None = None) -> Completion:
    return parse(Completion.of(text=text, finish=finish), request or asking())


def call_in(completion: Completion) -> tuple[str, str]:
    (call,) = completion.tool_calls
    assert call.id
    return call.name, call.arguments


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "clock", "arguments": {"zone": "UTC"}}',
        '\n {"tool":"clock","arguments":{"zone": "UTC"}} and so on',
        '```json\n{"tool": "clock", "arguments": {"zone": "UTC"}}\n```',
        '{"tool": "clock", "arguments": "{\\"zone\\": \\"UTC\\"}"}',
    ],
)
def test_a_call_written_as_json_is_read(text: str) -> None:
    completion = parsed(text)
    assert call_in(completion) == ("clock", '{"zone": "UTC"}')
    assert completion.text == ""
    assert completion.finish == "tool_calls"


def test_a_call_without_arguments() -> None:
    assert call_in(parsed('{"tool": "ping"}')) == ("ping", "{}")


def test_an_unknown_tool_is_passed_to_the_caller() -> None:
    assert call_in(parsed('{"tool": "invented", "arguments": {}}')) == ("invented", "{}")


def test_two_calls_of_one_conversation_never_have_the_same_id() -> None:
    text = '{"tool": "ping", "arguments": {}}'
    first, second = parsed(text), parsed(text)
    assert first.tool_calls[0].id != second.tool_calls[0].id


@pytest.mark.parametrize("text", ["It is noon.", '{"hour": 12}', "[1]", "", "{", "``` code", "{]"])
def test_output_that_does_not_fit_the_schema_is_the_answer(text: str) -> None:
    assert parsed(text) == Completion.of(text=text)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"answer": "a\\u0000b\\ud800"}', "a\ufffdb\ufffd"),
        ('```json\n{"answer": "yes"}```', "yes"),
    ],
)
def test_an_answer_can_be_stored(text: str, answer: str) -> None:
    assert parsed(text).text == answer


def test_a_call_can_be_stored() -> None:
    said = {"tool": "a\x00\ud800" + "b" * 100_000, "arguments": '{"c":"\x01"}'}
    name, arguments = call_in(parsed(json.dumps(said)))
    assert name.startswith("a\ufffd\ufffdb")
    assert len(name) == NAME_CHARACTERS
    assert arguments == '{"c":"\ufffd"}'


@pytest.mark.parametrize("cut", ["stop", "length"])
@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"answer": ' + "[" * 200_000,
        '{"tool": "clock", "arguments": ' + "[" * 200_000,
        '{"tool": "clock", "arguments": ' + '{"a":' * 900 + "1" + "}" * 901,
        "```" + "\n " * 300_000 + "x",
        "```json" + "\n" * 500_000,
        '{"answer": "' + "\\n" * 300_000,
        '{"tool": "' + "\\n" * 300_000,
        '{"tool": "x" ' + " " * 500_000,
        "{" + " " * 500_000,
    ],
)
def test_malicious_output_is_read_in_linear_time(text: str, cut: Any) -> None:
    """In quadratic time, each would take minutes; none raises."""
    parsed(text, cut)


def test_a_beginning_without_an_end_is_searched_up_to_a_limit() -> None:
    reader = AnswerText()
    told = [reader.feed(piece) for piece in ("{", *[" "] * 300_000, '"answer": "late"}')]
    assert "".join(told) == ""


def test_a_cut_answer_keeps_its_text() -> None:
    completion = parsed('{"answer": "It is n', "length")
    assert (completion.text, completion.finish) == ("It is n", "length")


def test_a_cut_call_keeps_its_partial_arguments() -> None:
    completion = parsed('{"tool": "clock", "arguments": {"zone": "U', "length")
    assert call_in(completion) == ("clock", '{"zone": "U')
    assert completion.finish == "length"


@pytest.mark.parametrize("text", ["{", '{"ans', '{"tool": "clo'])
def test_output_that_was_cut_before_its_text_is_empty(text: str) -> None:
    assert parsed(text, "length") == Completion.of(text="", finish="length")


def test_an_answer_by_a_schema_is_its_json() -> None:
    request = asking(schema={"type": "object"})
    assert parsed('{"answer": {"hour": 12}}', request=request).text == '{"hour": 12}'


@given(st.text(), st.sampled_from(["stop", "length"]))
def test_any_output_is_read(text: str, finish: Any) -> None:
    parsed(text, finish)


@given(st.text(alphabet='{}[]"\\:, \nu0danswertolgum1', max_size=60))
def test_output_like_json_is_read(text: str) -> None:
    for head in ("", '{"answer": "', '{"tool": "x", "arguments": '):
        parsed(head + text, "length")


# -- streaming ----------------------------------------------------------------------------------


def cuts(text: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.integers(0, len(text))).map(
        lambda at: [
            text[a:b] for a, b in zip([0, *sorted(at)], [*sorted(at), len(text)], strict=True)
        ]
    )


@given(st.text(), st.booleans(), st.sampled_from(["", " ", "\n  "]), st.data())
def test_the_text_is_streamed_for_any_pieces_of_the_json(
    text: str, ascii_: bool, space: str, data: st.DataObject
) -> None:
    said = f'{space}{{{space}"answer"{space}:{space}{json.dumps(text, ensure_ascii=ascii_)}}}'
    reader = AnswerText()
    assert "".join(reader.feed(piece) for piece in data.draw(cuts(said))) == text


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('{"answer": "It is \\ud83d\\ude00', "It is 😀"),
        ('{"answer": "half \\ud83d!"}', "half \ufffd!"),
        ('{"answer": "bad \\x"}', "bad "),
        ('{"answer": "bad \\u12G4"}', "bad "),
        ('{"tool": "answer"', ""),
        ("It is noon.", "It is noon."),
        ("  noon", "  noon"),
        ('```json\n{"answer": "x"}', ""),
    ],
)
def test_text_is_streamed_while_it_arrives(said: str, text: str) -> None:
    reader = AnswerText()
    assert "".join(reader.feed(char) for char in said) == text


@pytest.mark.parametrize(
    "said",
    [
        '{"answer": "It is\\nnoon \\ud83d\\ude00."}',
        "It is noon.",
        '```json\n{"answer": "It is noon."}\n```',
        '{"hour": 12}',
        '{"answer": {"hour": 12}}',
        '{"answer": "half \\ud83d"}',
        '{"answer": "It is n',
    ],
)
async def test_the_streamed_text_is_the_answer(said: str) -> None:
    model = Constrained(Scripted(Completion.of(text=said, finish="length"), pieces=list(said)))
    told: list[str] = []
    completion = await model.complete(asking(), told.append)
    assert "".join(told) == completion.text
    assert completion.text


async def test_a_call_streams_no_text() -> None:
    said = '{"tool": "ping", "arguments": {}}'
    model = Constrained(Scripted(Completion.of(text=said), pieces=list(said)))
    told: list[str] = []
    completion = await model.complete(asking(), told.append)
    assert told == []
    assert call_in(completion) == ("ping", "{}")


def test_calls_of_this_turn_are_added_to_the_question() -> None:
    constrained = constrain(
        asking(
            text_message("user", "Time here and there?"),
            call_message(
                "Let me see.",
                (ToolCall("1", "clock", '{"zone": "UTC"}'), ToolCall("2", "ping", "")),
            ),
            result_message("1", "12:00"),
            result_message("2", "pong"),
            call_message("", (ToolCall("3", "clock", '{"zone": "CET"}'),)),
            result_message("3", "13:00"),
        )
    )
    _, user = constrained.messages
    assert user.role == "user"
    assert user.text == (
        "Time here and there?\n\nYou said: Let me see.\n"
        'clock with {"zone": "UTC"} has been used and gave:\n12:00\n'
        "ping has been used and gave:\npong\n"
        'clock with {"zone": "CET"} has been used and gave:\n13:00\n'
        "Say it to me, or use another tool."
    )


DONE = (
    text_message("user", "Ping!"),
    call_message("", (ToolCall("1", "ping", "{}"),)),
    result_message("1", "pong"),
)


async def test_a_very_small_model_answers_as_soon_as_it_has_a_result() -> None:
    inner = Scripted(Completion.of(text='{"answer": "Pong."}'))
    completion = await Constrained(inner, very_small=True).complete(asking(*DONE))
    assert completion.text == "Pong."
    (asked,) = inner.asked
    assert asked.schema is not None
    validator = jsonschema.Draft202012Validator(json.loads(bytes(asked.schema)))
    assert validator.is_valid({"answer": "Pong."})
    assert not validator.is_valid({"tool": "clock", "arguments": {"zone": "UTC"}})
    assert asked.messages[-1].text.endswith("gave:\npong\nSay it to me.")


async def test_a_model_without_calls_has_the_tools_in_the_prompt_and_can_only_answer() -> None:
    """So that the beginning of the prompt does not change."""
    inner = Scripted(
        Completion.of(text='{"answer": "Pong."}'), Completion.of(text='{"answer": ""}')
    )
    request = msgspec.structs.replace(asking(*DONE), tool_choice="none")
    await Constrained(inner).complete(request)
    await Constrained(inner).complete(asking(*DONE))
    closed, open_ = inner.asked
    assert closed.messages[:-1] == open_.messages[:-1]
    assert closed.schema is not None
    validator = jsonschema.Draft202012Validator(json.loads(bytes(closed.schema)))
    assert not validator.is_valid({"tool": "clock", "arguments": {"zone": "UTC"}})


async def test_a_model_that_repeats_a_call_has_to_answer() -> None:
    repeated = Completion.of(
        text='{"tool": "ping", "arguments": { }}', usage=Usage(10, 5, 0.1, estimated=True)
    )
    inner = Scripted(repeated, Completion.of(text='{"answer": "Pong."}', usage=Usage(11, 6, 0.2)))
    told: list[str] = []
    completion = await Constrained(inner).complete(asking(*DONE), told.append)
    assert (completion.text, told) == ("Pong.", ["Pong."])
    assert completion.usage == Usage(21, 11, pytest.approx(0.3), estimated=True)
    assert inner.asked[1].schema is not None
    validator = jsonschema.Draft202012Validator(json.loads(bytes(inner.asked[1].schema)))
    assert validator.is_valid({"answer": "Pong."})
    assert not validator.is_valid({"tool": "ping", "arguments": {}})


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (DONE, '{"tool": "clock", "arguments": {"zone": "UTC"}}'),
        (DONE[:2], '{"tool": "ping", "arguments": {}}'),
        ((*DONE, text_message("assistant", "Pong."), DONE[0]), '{"tool": "ping", "arguments": {}}'),
    ],
)
async def test_any_other_call_is_made(messages: Sequence[ModelMessage], said: str) -> None:
    inner = Scripted(Completion.of(text=said))
    assert (await Constrained(inner).complete(asking(*messages))).tool_calls
    assert len(inner.asked) == 1


async def test_it_has_the_attributes_of_its_model() -> None:
    inner = Scripted(
        Completion.of(text="Hi"), Completion.of(text='{"answer": "Hello"}'), name="tiny"
    )
    model = Constrained(inner)
    assert (model.name, model.context_tokens, model.tokens("four")) == ("tiny", 8192, 4)
    assert (await model.complete(asking(tools=()))).text == "Hi"
    assert (await model.complete(asking())).text == "Hello"
    assert inner.asked[1] == constrain(asking())


@given(st.integers(900, 1100))
def test_arguments_that_are_nested_deeply(depth: int) -> None:
    said = '{"tool": "clock", "arguments": ' + '{"x":' * depth + "1" + "}" * depth + "}"
    completion = parse(Completion.of(text=said), asking(*DONE))
    assert completion.text == said or [call.name for call in completion.tool_calls] == ["clock"]
