"""What the local model gives: output that satisfies schemas, tools in its prompt, estimates."""

from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import msgspec
import pytest

from component.config.llm import ModelChoice
from component.models.http_client import ModelClient
from component.models.local import LocalModel, build_local
from component.models.messages import text_message
from component.models.protocol import ModelRefusedError, ModelRequest
from tests.component.models.llama import one_thread
from tests.profiles import SEED

__all__ = ["one_thread"]
pytestmark = pytest.mark.anyio

_CONTEXT = 2048


@pytest.fixture(scope="module")
async def model(anyio_backend: str) -> AsyncIterator[LocalModel]:
    choice = ModelChoice(provider="local", context_tokens=_CONTEXT, extra_body={"seed": SEED})
    model = build_local(choice, "llm")
    yield model
    await model.aclose()


def asking(text: str, **changes: Any) -> ModelRequest:
    return ModelRequest(messages=(text_message("user", text),), **{"max_tokens": 16, **changes})


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
    with pytest.raises(ModelRefusedError, match=r"does not take the request.*nonsense"):
        await model.complete(asking("What?", schema=msgspec.Raw(b'{"type": "nonsense"}')))


async def test_the_estimate_is_rather_too_high(model: LocalModel) -> None:
    await model.complete(asking("Hello.", max_tokens=1))
    assert model.process is not None
    client = ModelClient(socket=model.process.socket)

    async def counted(text: str) -> int:
        body = {"content": text, "add_special": False}
        response = await client.post("http://localhost/tokenize", json=body, timeout=120)
        return len(response.json()["tokens"])

    for text in (
        "The ship left the harbour in the morning, and nobody waved. ",
        '{"tool": "clock", "arguments": {"zone": "Europe/Berlin", "format": null}}\n',
        '<iq type="get" id="a1"><query xmlns="jabber:iq:version"/></iq>\n',
        "2026-11-22T04:05:06Z 192.168.17.254 +49 30 901820 ",
        "def main() -> None:\n    for i in range(10):\n        print(i ** 2)\n",
        "Das Schiff verließ den Hafen am frühen Morgen über die Außenmole. ",
        "今日は天気がいいから散歩しましょう。",
        "Корабль вышел из гавани рано утром. ",
    ):
        real = await counted(text * 8)
        assert 0 < real <= model.tokens(text * 8) <= 2 * real, text
    await client.aclose()
