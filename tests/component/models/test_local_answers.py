"""What the local model gives: output that satisfies schemas, tools in its prompt, estimates."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from component.models import local
from component.models.local import LocalModel, build_local
from component.models.protocol import (
    ChatMessage,
    ContextOverflowError,
    ModelRefusedError,
    ModelRequest,
    Tool,
)
from component.settings.llm import ModelChoice

pytestmark = pytest.mark.anyio

_CONTEXT = 2048


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """What is said does not depend on who waits for it: one event loop is enough."""
    return "trio"


@pytest.fixture(scope="module")
async def model(anyio_backend: str) -> AsyncIterator[LocalModel]:
    model = build_local(ModelChoice(provider="local", context_tokens=_CONTEXT))
    yield model
    await model.aclose()


def asking(text: str, **changes: Any) -> ModelRequest:
    return ModelRequest(messages=(ChatMessage("user", text),), **{"max_tokens": 16, **changes})


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["yes", "no"]},
        {
            "type": "object",
            "properties": {
                "tool": {"const": "clock"},
                "arguments": {
                    "type": "object",
                    "properties": {"hour": {"type": "integer", "minimum": 3, "maximum": 7}},
                    "required": ["hour"],
                    "additionalProperties": False,
                },
            },
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        },
        {"anyOf": [{"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, {"const": 7}]},
    ],
)
async def test_output_satisfies_its_schema(model: LocalModel, schema: dict[str, Any]) -> None:
    raw = msgspec.Raw(msgspec.json.encode(schema))
    done = await model.complete(asking("What?", schema=raw, temperature=1.5, max_tokens=60))
    if done.finish != "length":
        jsonschema.validate(msgspec.json.decode(done.text), schema)
    else:
        assert done.usage.tokens_out == 60


async def test_a_schema_that_cannot_be_held_to_is_refused(model: LocalModel) -> None:
    with pytest.raises(ModelRefusedError, match=r"refuses: .*nonsense"):
        await model.complete(asking("What?", schema=msgspec.Raw(b'{"type": "nonsense"}')))


@pytest.mark.parametrize(
    "text",
    [
        "The ship left the harbour in the morning, and nobody waved. ",
        '{"tool": "clock", "arguments": {"zone": "Europe/Berlin", "format": null}}\n',
        '<iq type="get" id="a1"><query xmlns="jabber:iq:version"/></iq>\n',
        "2026-11-22T04:05:06Z 192.168.17.254 +49 30 901820 ",
        "def main() -> None:\n    for i in range(10):\n        print(i ** 2)\n",
        "Das Schiff verließ den Hafen am frühen Morgen über die Außenmole. ",
        "今日は天気がいいから散歩しましょう。",
        "Корабль вышел из гавани рано утром. ",
    ],
)
async def test_the_estimate_is_rather_too_high(model: LocalModel, text: str) -> None:
    async def counted(text: str) -> int:
        # A question is counted before it is read, and this one is not read at all.
        with pytest.raises(ContextOverflowError) as caught:
            await model.complete(asking(text, max_tokens=_CONTEXT))
        (number,) = re.findall(r"question has (\d+) tokens", str(caught.value))
        return int(number)

    real = await counted(text * 8) - await counted("")
    assert real <= model.tokens(text * 8) <= 2 * real


_TOOLS_TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }} Call one by"
    ' <tool_call>{"name": , "arguments": }</tool_call><|im_end|>\n{% endif %}'
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


async def test_a_model_that_knows_tools_is_told_them(tmp_path: Path) -> None:
    """The real one, with a template that has tools in the place of its own."""
    whole = local._bundled().read_bytes()
    start = whole.index(b"{% for message in messages %}")
    end = whole.index(b"{% endif %}", whole.index(b"add_generation_prompt")) + len("{% endif %}")
    path = tmp_path / "tools.gguf"
    template = _TOOLS_TEMPLATE.encode().ljust(end - start)
    assert len(template) == end - start
    path.write_bytes(whole[:start] + template + whole[end:])
    parameters = msgspec.Raw(
        b'{"type": "object", "properties": {"zone": {"enum": ["UTC"]}}, "required": ["zone"]}'
    )
    tool = Tool("clock", "Tells the time.", parameters)
    asked = asking("What time is it?", max_tokens=2)
    model = build_local(ModelChoice(provider="local", model=str(path), context_tokens=_CONTEXT))
    alone = await model.complete(asked)
    told = await model.complete(msgspec.structs.replace(asked, tools=(tool,)))
    assert told.usage.tokens_in > alone.usage.tokens_in + 40
    await model.aclose()
