"""Tools that an API does not take as they are: adapted, chosen, or left out, in every dialect."""

import json
import re
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr

from component.config.llm import ModelChoice
from component.models.catalog import resolve
from component.models.hosted import HostedModel
from component.models.messages import (
    ModelMessage,
    ToolCall,
    call_message,
    result_message,
    text_message,
)
from component.models.offered_tools import (
    RefusedTool,
    RefusedTools,
    chosen,
    read_refused,
    shortened_description,
    tool_profile_of,
)
from component.models.protocol import ModelRefusedError, Tool
from tests.component.models.asking import KEY, Make, Slept, asking, tool
from tests.component.models.endpoint import Answer, Calls, Endpoint, Refuse, Request, Text

pytestmark = pytest.mark.anyio
NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


@pytest.fixture(params=["chat", "responses", "messages"])
def api(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def with_schema(name: str, schema: Any, description: str = "It does.") -> Tool:
    return Tool(name, description, msgspec.Raw(json.dumps(schema).encode()))


def many(count: int) -> tuple[Tool, ...]:
    return tuple([tool(f"tool_{at}") for at in range(count)])


def offered(request: Request) -> dict[str, dict[str, Any]]:
    """The tools of a request by name, with `description` and `schema`."""
    out = {}
    for one in request.body.get("tools", ()):
        function = one.get("function", one)
        schema = function.get("parameters") or function.get("input_schema")
        out[function["name"]] = {"description": function["description"], "schema": schema}
    return out


def strict(request: Request) -> Answer:
    """A server that checks tools as OpenAI and Anthropic do, and names the first that is wrong."""
    for at, (name, one) in enumerate(offered(request).items()):
        schema = one["schema"]
        wrong = schema.get("type") != "object" or {"anyOf", "oneOf", "allOf"} & schema.keys()
        if wrong or not all(map(NAME.fullmatch, schema["properties"])) or len(name) > 64:
            return Refuse(400, f"tools.{at}.custom.input_schema: it is not supported")
    return Text("Noon.")


UNUSUAL = {
    "oneOf": {"oneOf": [{"properties": {"id": {"type": "string"}}}, {"properties": {"n": {}}}]},
    "anyOf": {"type": "object", "anyOf": [{"required": ["id"]}], "properties": {"id": {}}},
    "allOf": {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"properties": {"id": {}}}}},
    "names": {"type": "object", "properties": {"filter[]": {"type": "string"}}},
    "nothing": {},
    "list": {"type": ["object", "null"]},
}


@pytest.mark.parametrize("kind", UNUSUAL)
async def test_an_unusual_schema_is_adapted_and_offered(
    endpoint: Endpoint, make: Make, api: str, kind: str
) -> None:
    endpoint.otherwise = strict
    request = asking("hi", tools=(tool("look"), with_schema("search", UNUSUAL[kind])))
    assert (await make(dialect=api).complete(request)).text == "Noon."
    assert len(endpoint.requests) == 1
    assert list(offered(endpoint.requests[0])) == ["look", "search"]


async def test_the_names_of_properties_are_mapped_in_calls_both_ways(
    endpoint: Endpoint, make: Make, api: str
) -> None:
    endpoint.answers(Calls(("find_all", {"filter": ["a"], "q": 1})), Text("Done."))
    schema = {"type": "object", "properties": {"filter[]": {"type": "array"}, "q": {}}}
    request = asking(tools=(with_schema("find.all", schema),))
    model = make(dialect=api)
    first = await model.complete(request)
    [call] = first.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("find.all", {"filter[]": ["a"], "q": 1})
    answered = ModelMessage("assistant", first.parts)
    messages = (*request.messages, answered, result_message(call.id, "ok"))
    await model.complete(msgspec.structs.replace(request, messages=messages))
    sent = json.dumps(endpoint.requests[1].body)
    assert "filter[]" not in sent
    assert sent.count("filter") == 2, "in the schema and in the call"


@pytest.mark.parametrize(
    ("refusal", "by_index"),
    [
        ("Invalid schema for function 'bad_one': In context=(), it is wrong", False),
        ("tools.1.custom.input_schema: JSON schema is invalid", True),
        ("Invalid 'tools[1].function.parameters': it is wrong", True),
        ('[{"loc":["body","tools",1,"function"],"msg":"Field required"}]', True),
        ("GenerateContentRequest.tools[0].function_declarations[1].name: Invalid name", True),
        ("Tool bad_one has an unsupported keyword", False),
    ],
)
@pytest.mark.parametrize("status", [400, 422])
async def test_a_tool_that_a_refusal_names_is_left_out_once(
    endpoint: Endpoint, make: Make, slept: Slept, api: str, refusal: str, by_index: bool,
    status: int,
) -> None:  # fmt: skip
    def answer(request: Request) -> Answer:
        return Refuse(status, refusal) if "bad_one" in offered(request) else Text("Noon.")

    endpoint.otherwise = answer
    model = make(dialect=api)
    for _ in range(2):
        request = asking("hi", tools=(tool("look"), tool("bad_one"), tool("bad")))
        assert (await model.complete(request)).text == "Noon."
    assert [list(offered(each)) for each in endpoint.requests] == [
        ["look", "bad_one", "bad"], ["look", "bad"], ["look", "bad"],
    ]  # fmt: skip
    assert slept.pauses == []


async def test_a_changed_tool_is_offered_again(endpoint: Endpoint, make: Make) -> None:
    endpoint.answers(Refuse(400, "Invalid schema for function 'a_b'"), Text("1"), Text("2"))
    model = make()
    await model.complete(asking(tools=(tool("a_b"),)))
    assert "tools" not in endpoint.requests[1].body
    await model.complete(asking(tools=(with_schema("a_b", {"type": "object"}),)))
    assert list(offered(endpoint.requests[2])) == ["a_b"]


async def test_a_refusal_that_names_no_tool_leaves_simple_schemas(
    endpoint: Endpoint, make: Make
) -> None:
    endpoint.otherwise = lambda r: (
        Refuse(400, "tools.function.parameters is not a valid moonshot flavored json schema")
        if "oneOf" in json.dumps(r.body)
        else Text("Noon.")
    )
    schema = {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}}
    assert (await make().complete(asking(tools=(with_schema("x", schema),)))).text == "Noon."
    assert len(endpoint.requests) == 2
    assert list(offered(endpoint.requests[1])) == ["x"]


@pytest.mark.parametrize("provider", ["openai", "openrouter"])
async def test_no_more_tools_are_offered_than_the_api_takes(
    endpoint: Endpoint, make: Make, provider: str
) -> None:
    endpoint.otherwise = lambda r: Text(str(len(offered(r))))
    completion = await make(provider=provider).complete(asking("hi", tools=many(150)))
    assert completion.text == "128"


@pytest.mark.parametrize(
    "refusal",
    [
        Refuse(400, body={"error": {"message": "Invalid 'tools': array too long. Expected an array"
                                    " with maximum length 64, but got an array with length 128"
                                    " instead.", "param": "tools",
                                    "code": "array_above_max_length"}}),
        Refuse(400, "'tools' : maximum number of items is 64"),
        Refuse(400, "tools: List should have at most 64 items after validation, not 150"),
        Refuse(400, "The GenerateContentRequest proto is invalid: * tools[0].function_declarations:"
               " [FIELD_INVALID] At most 64 function declarations can be specified."),
        Refuse(400, "You may not include more than 64 tools in your request."),
        Refuse(429, body={"error": {"message": "Invalid 'tools': array too long. Expected an array"
                                    " with maximum length 64.",
                                    "code": "array_above_max_length"}}),
        Refuse(400, "Too many tools."),
    ],
)  # fmt: skip
async def test_the_number_of_tools_is_learned_from_a_refusal(
    endpoint: Endpoint, make: Make, api: str, refusal: Refuse
) -> None:
    endpoint.otherwise = lambda r: refusal if len(offered(r)) > 75 else Text(str(len(offered(r))))
    for _ in range(2):
        completion = await make(dialect=api).complete(asking("hi", tools=many(150)))
    assert int(completion.text) in (64, 75)


def test_tools_that_were_called_and_those_that_match_are_chosen_first() -> None:
    tools = (*many(50), tool("weather"), tool("calendar"))
    messages = (
        text_message("user", "Which dates are in the calendar?"),
        call_message("", (ToolCall("1", "tool_40", "{}"),)),
        result_message("1", "none"),
        text_message("user", "And what is the WEATHER like?"),
    )
    names = [one.name for one in chosen(tools, 3, messages)]
    assert names == ["tool_0", "tool_40", "weather"]
    required = (msgspec.structs.replace(tool("a"), optional=True), tool("b"))
    assert [one.name for one in chosen(required, 1, ())] == ["b"]


async def test_a_long_description_is_shortened(endpoint: Endpoint, make: Make) -> None:
    endpoint.answers(Text("Noon."))
    long = with_schema("x", {"type": "object"}, "word " * 400)
    await make().complete(asking(tools=(long,)))
    told = offered(endpoint.requests[0])["x"]["description"]
    assert 900 < len(told) <= 1024
    assert told.endswith("word …")
    assert shortened_description("x" * 2000, 10) == "x" * 8 + " …"


async def test_the_length_of_descriptions_is_learned_from_a_refusal(
    endpoint: Endpoint, make: Make
) -> None:
    endpoint.otherwise = lambda r: (
        Refuse(400, "tools.0.custom.description: String should have at most 500 characters")
        if len(offered(r)["x"]["description"]) > 500
        else Text("Noon.")
    )
    long = with_schema("x", {"type": "object"}, "word " * 400)
    assert (await make(dialect="messages").complete(asking(tools=(long,)))).text == "Noon."
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    "refusal",
    [
        Refuse(400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        Refuse(404, "No endpoints found that support tool use."),
        Refuse(400, "Unknown parameter: 'tools'."),
    ],
)
async def test_only_a_model_that_takes_no_tools_at_all_gets_the_advice_to_do_without(
    endpoint: Endpoint, make: Make, refusal: Refuse
) -> None:
    endpoint.otherwise = refusal
    with pytest.raises(ModelRefusedError, match="native_tools = false"):
        await make().complete(asking(tools=(tool("look"),)))
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        Refuse(400, "Invalid schema for function 'look': unsupported keyword"),
        Refuse(400, "tool_choice is not supported with this model"),
        Refuse(400, "messages.3.content: unexpected tool_use_id"),
    ],
)
async def test_a_refusal_of_one_tool_gives_no_advice_about_all(
    endpoint: Endpoint, make: Make, refusal: Refuse
) -> None:
    endpoint.otherwise = refusal
    with pytest.raises(ModelRefusedError) as error:
        await make().complete(asking(tools=(tool("look"),)))
    assert "native_tools" not in str(error.value)


@pytest.mark.parametrize(
    "message",
    [
        "The zone of search is unknown",  # a word of the language, not the tool
        "Invalid 'messages[3].tool_calls[0].function.name': 'search_all' is wrong",
        "Invalid schema for response_format 'search_all': it is wrong",
        "tools: names must have at most 1 characters",
        "tools are there, and max_tokens is 1",
        "Function call is missing a field. Additional data, function call `default_api:search_all`",
        "messages.3.content.0.tool_use.name: 'search_all' is wrong",
    ],
)
async def test_a_refusal_of_something_else_leaves_no_tool_out(
    endpoint: Endpoint, make: Make, message: str
) -> None:
    endpoint.otherwise = Refuse(400, message)
    model = make()
    with pytest.raises(ModelRefusedError):
        await model.complete(asking(tools=(tool("search"), tool("search_all"))))
    assert list(offered(endpoint.requests[-1])) == ["search", "search_all"]


async def test_an_operator_is_told_which_tool_was_refused(
    endpoint: Endpoint, tmp_path: Any
) -> None:
    endpoint.answers(Refuse(400, f"Invalid schema for function 'bad_one' of {KEY}"), Text("Noon."))
    (tmp_path / "refused-tools.json").write_text("[damaged")
    refused = RefusedTools(tmp_path)
    assert read_refused(tmp_path) == []
    choice = ModelChoice(
        provider="openai", model="m", base_url=endpoint.url, api_key=SecretStr(KEY)
    )
    model = HostedModel(resolve(choice, "llm"), refused=refused.add)
    await model.complete(asking(tools=(tool("bad_one"),)))
    await model.aclose()
    [warning] = refused.warnings()
    assert "refuses the tool bad_one" in warning
    assert KEY not in warning
    assert [one.tool for one in read_refused(tmp_path)] == ["bad_one"]
    RefusedTools(tmp_path)  # the service starts again
    assert read_refused(tmp_path) == []
    assert read_refused(tmp_path / "none") == ()


def test_the_profile_of_an_api_is_known_before_it_refuses() -> None:
    def keywords(**choice: Any) -> str:
        return tool_profile_of(
            resolve(ModelChoice(**choice, api_key=SecretStr(KEY)), "llm")
        ).keywords

    assert keywords(provider="openrouter", model="google/gemini-3-pro") == "plain"
    url = "https://generativelanguage.googleapis.com/v1beta/openai"
    assert keywords(provider="openai", model="m", base_url=url) == "plain"
    assert keywords(provider="ollama", model="m") == "plain"
    assert keywords(provider="llamacpp", model="m") == "typed"
    assert keywords(provider="openai", model="gpt-5") == "all"


def test_a_refused_tool_is_a_sentence_for_operators(tmp_path: Any) -> None:
    refused = RefusedTools(tmp_path)
    refused.add(RefusedTool("x", "m", "http://models.example", "It is wrong."))
    refused.add(RefusedTool("x", "m", "http://models.example", "It is wrong."))
    [sentence] = refused.warnings()
    assert sentence.startswith(
        "m at http://models.example refuses the tool x, so it is not offered"
    )
    assert sentence.endswith("It is wrong.")
