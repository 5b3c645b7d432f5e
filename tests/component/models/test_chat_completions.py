"""Requests to providers, and parameters that are left out after a refusal."""

import json
from typing import Any

import msgspec
import pytest

from component.models.hosted import HostedModel
from component.models.messages import ToolCall, call_message, result_message, text_message
from component.models.protocol import ModelRefusedError, ModelRequest
from tests.component.models.asking import KEY, SCHEMA, Make, Slept, asking, tool
from tests.component.models.endpoint import Endpoint, Refuse, Text

pytestmark = pytest.mark.anyio


async def test_a_chat_completions_request_holds_settings_and_tools(
    endpoint: Endpoint, make: Make
) -> None:
    endpoint.answers(Text("Noon."))
    model = make(temperature=0.3, max_tokens_per_request=500)
    messages = (
        text_message("system", "Be kind."),
        text_message("user", "Time?"),
        call_message("", (ToolCall("c1", "clock.read", '{"zone": "UTC"}'),)),
        result_message("c1", "12:00"),
    )
    await model.complete(ModelRequest(messages=messages, tools=(tool("clock.read"),)))
    (request,) = endpoint.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Time?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "clock_read", "arguments": '{"zone": "UTC"}'},
                    }
                ],
            },
            {"role": "tool", "content": "12:00", "tool_call_id": "c1"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 500,
        "temperature": 0.3,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "clock_read",
                    "description": "What clock.read does.",
                    "parameters": SCHEMA,
                },
            }
        ],
    }


async def test_only_the_first_message_is_a_system_message(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Text("Noon."))
    call = ToolCall("c1", "clock", "{}")
    said = [
        ("system", "Be kind."),
        ("system", "Earlier they spoke of tea."),
        ("user", "Time?"),
        ("system", "They stopped you."),
        ("assistant", "It is"),
        ("system", "Go on."),
    ]
    messages = (
        *(text_message(role, text) for role, text in said),  # type: ignore[arg-type]
        call_message("", (call,)),
        result_message("c1", "12:00"),
        text_message("system", "You go in circles."),
    )
    await model.complete(ModelRequest(messages=messages))
    note = "[A note from the system, which nobody else sees: {}]".format
    assert [(m["role"], m["content"]) for m in endpoint.requests[0].messages] == [
        ("system", "Be kind.\n\nEarlier they spoke of tea."),
        ("user", "Time?\n\n" + note("They stopped you.")),
        ("assistant", "It is"),
        ("user", note("Go on.")),
        ("assistant", None),
        ("tool", "12:00"),
        ("user", note("You go in circles.")),
    ]


async def test_chat_completions_wrap_arguments_that_are_not_an_object(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Text("Sorry."))
    call = ToolCall("c1", "clock", '{"zone": ')
    await model.complete(ModelRequest(messages=(call_message("", (call,)),)))
    (sent,) = endpoint.requests[0].messages[0]["tool_calls"]
    assert json.loads(sent["function"]["arguments"]) == {"malformed": '{"zone": '}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (SCHEMA, False),
        (SCHEMA | {"required": ["zone"], "additionalProperties": False}, True),
        ({"anyOf": [SCHEMA]}, False),
    ],
)
async def test_chat_completions_send_a_schema_as_the_response_format(
    endpoint: Endpoint, model: HostedModel, schema: Any, strict: bool
) -> None:
    endpoint.answers(Text('{"zone": "UTC"}'))
    completion = await model.complete(asking(schema=msgspec.Raw(json.dumps(schema).encode())))
    assert completion.text == '{"zone": "UTC"}'
    assert endpoint.requests[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": strict},
    }


async def test_a_provider_without_constrained_output_gets_the_schema_in_the_prompt(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Refuse(400, "response_format is not supported"), Text("{}"))
    request = asking(schema=msgspec.Raw(json.dumps(SCHEMA).encode()))
    await model.complete(request)
    assert "response_format" not in endpoint.requests[1].body
    assert json.dumps(SCHEMA) in endpoint.requests[1].messages[0]["content"]


@pytest.mark.parametrize(
    ("said", "parameter"),
    [
        ("Unrecognized request argument supplied: stream_options", "stream_options"),
        ("Unsupported value: 'temperature' does not support 0.5 with this model.", "temperature"),
        ("This response_format type is unsupported", "response_format"),
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "max_tokens",
        ),
    ],
)
async def test_chat_completions_omit_each_parameter_once_it_is_rejected(
    endpoint: Endpoint, make: Make, slept: Slept, said: str, parameter: str
) -> None:
    model = make(temperature=0.5)
    endpoint.answers(Refuse(400, said), Text("{}"), Text("{}"))
    for _ in range(2):
        await model.complete(asking(schema=msgspec.Raw(b'{"type": "object"}')))
    first, *later = (request.body for request in endpoint.requests)
    assert parameter in first
    assert len(later) == 2
    for body in later:
        assert body.keys() - first.keys() <= {"max_completion_tokens"}
        assert first.keys() - body.keys() == {parameter}
    if parameter == "max_tokens":
        assert later[0]["max_completion_tokens"] == 1024
    assert slept.pauses == []


async def test_the_error_of_a_model_without_tools_names_the_setting(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Refuse(400, "gemma:2b does not support tools"))
    with pytest.raises(ModelRefusedError, match=r"llm\.native_tools = false"):
        await model.complete(asking(tools=(tool("clock"),)))
