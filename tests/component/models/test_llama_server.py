"""A real server that speaks all three dialects: llama.cpp's, with the small model."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast, get_args

import msgspec
import pytest

from component.config.llm import Dialect
from component.models import local
from component.models.hosted import HostedModel
from component.models.local import ServerProcess
from component.models.messages import (
    ImagePart,
    ModelMessage,
    TextPart,
    ToolCall,
    call_message,
    result_message,
    text_message,
)
from component.models.protocol import ContextOverflowError, ModelRequest
from tests.component.models.asking import tool
from tests.component.models.llama import serving_llama, target_of

pytestmark = pytest.mark.anyio


_CLOCK = tool("clock")
_TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }} Call one by"
    ' <tool_call>{"name": , "arguments": }</tool_call><|im_end|>\n{% endif %}'
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content | string + '<|im_end|>\n'"
    " }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
async def server(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServerProcess]:
    path = tmp_path_factory.mktemp("models") / "tools.gguf"
    with_template(path, _TEMPLATE)
    async with serving_llama(path) as server:
        yield server


each_dialect = pytest.mark.parametrize(
    "dialect",
    [
        "chat",
        pytest.param("responses", marks=pytest.mark.thorough),
        pytest.param("messages", marks=pytest.mark.thorough),
    ],
    indirect=True,
)
"""Of a test whose behaviour other tests show without a real server."""


@pytest.fixture(params=get_args(Dialect))
async def dialect(request: pytest.FixtureRequest, anyio_backend: str) -> Dialect:
    return cast("Dialect", request.param)


@pytest.fixture
async def model(server: ServerProcess, dialect: Dialect) -> AsyncIterator[HostedModel]:
    model = HostedModel(target_of(server, dialect))
    yield model
    await model.aclose()


SAID = (
    text_message("system", "You answer in one short sentence."),
    text_message("user", "Say hello."),
)


async def test_llama_server_streams_an_answer_and_counts_its_tokens(model: HostedModel) -> None:
    pieces: list[str | None] = []
    done = await model.complete(ModelRequest(messages=SAID, max_tokens=12), pieces.append)
    assert done.text
    assert "".join(filter(None, pieces)) == done.text
    assert len(pieces) > 1
    assert done.usage.tokens_in > 5
    assert 0 < done.usage.tokens_out <= 12
    assert not done.usage.estimated


@each_dialect
async def test_llama_server_cuts_an_answer_off_at_its_maximum_length(model: HostedModel) -> None:
    asked = (text_message("user", "Count from 1 to 100, one number in each line."),)
    done = await model.complete(ModelRequest(messages=asked, max_tokens=4))
    # In the dialect responses, this server says "completed" all the same.
    responses = model._adapter.origin.startswith("responses")
    assert done.finish == ("stop" if responses else "length")
    assert done.usage.tokens_out == 4


async def test_a_long_conversation_with_tools_and_images(model: HostedModel) -> None:
    seen = ImagePart("image/png", b"\x89PNG")
    messages = (
        *SAID,
        text_message("assistant", "Hello!"),
        ModelMessage("user", (TextPart("What time is it, and what is this?"), seen)),
        call_message("I look.", (ToolCall("call_1", "clock", '{"zone": "UTC"}'),)),
        result_message("call_1", "12:00"),
        text_message("system", "They are in a hurry."),
        text_message("user", "And now?"),
    )
    request = ModelRequest(
        messages=messages, tools=(tool("clock"),), tool_choice="none", max_tokens=2
    )
    done = await model.complete(request)
    assert done.usage.tokens_out > 0
    assert done.tool_calls == ()


@pytest.mark.parametrize("dialect", ["chat"], indirect=True)  # it ignores a schema in others
async def test_llama_server_enforces_a_schema(model: HostedModel) -> None:
    schema = b'{"type": "object", "properties": {"a": {"const": "b"}}, "required": ["a"]}'
    request = ModelRequest(messages=SAID, schema=msgspec.Raw(schema), max_tokens=64)
    done = await model.complete(request)
    assert msgspec.json.decode(done.text) == {"a": "b"}


@each_dialect
async def test_a_question_that_is_too_long(model: HostedModel) -> None:
    asked = (text_message("user", "The ship left the harbour. " * 1000),)
    with pytest.raises(ContextOverflowError):
        await model.complete(ModelRequest(messages=asked, max_tokens=4))


@each_dialect
async def test_the_second_request_reads_the_cache(model: HostedModel) -> None:
    asked = (text_message("user", f"{model._adapter.origin} asks. " * 5),)
    request = ModelRequest(messages=asked, max_tokens=4)
    await model.complete(request)
    usage = (await model.complete(request)).usage
    assert usage.cache_read > usage.tokens_in / 2


@each_dialect
async def test_tools_are_in_the_prompt(model: HostedModel) -> None:
    request = ModelRequest(messages=SAID, max_tokens=1)
    alone = await model.complete(request)
    offered = await model.complete(msgspec.structs.replace(request, tools=(_CLOCK,)))
    assert offered.usage.tokens_in > alone.usage.tokens_in + 40


async def test_calls_and_results_are_accepted(model: HostedModel) -> None:
    messages = (
        *SAID,
        call_message("", (ToolCall("call_1", "clock", '{"zone": "UTC"}'),)),
        result_message("call_1", "12:00"),
    )
    done = await model.complete(ModelRequest(messages=messages, tools=(_CLOCK,), max_tokens=1))
    assert done.usage.tokens_out


def with_template(path: Path, template: str) -> None:
    """Write the small model with a template that has tools in the place of its own."""
    whole = local.bundled_model().read_bytes()
    start = whole.index(b"{% for message in messages %}")
    end = whole.index(b"{% endif %}", whole.index(b"add_generation_prompt")) + len("{% endif %}")
    padded = template.encode().ljust(end - start)
    assert len(padded) == end - start
    path.write_bytes(whole[:start] + padded + whole[end:])
