"""Ollama and vLLM, by the responses that their documentation shows, on a socket."""

import json
from typing import Any

import pytest

from component.config.llm import LLM
from component.models.availability import ModelCheck, check_models
from component.models.protocol import ModelRefusedError
from tests.component.models.asking import Make, asking, tool
from tests.component.models.endpoint import Chunks, Endpoint, Garbage, Refuse, Text

pytestmark = pytest.mark.anyio
CLOCK = (tool("clock"),)


def ollama(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of https://docs.ollama.com/api/openai-compatibility."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""} | delta}
    frame = {
        "id": "chatcmpl-640",
        "object": "chat.completion.chunk",
        "created": 1735000000,
        "model": "llama3.2",
        "system_fingerprint": "fp_ollama",
    }
    return frame | {"choices": [choice | {"finish_reason": finish}]} | more


def vllm(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """A chunk of https://docs.vllm.ai/en/stable/serving/online_serving/."""
    choice = {
        "index": 0,
        "delta": delta,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": None,
        "token_ids": None,
    }
    return {
        "id": "chatcmpl-e1",
        "object": "chat.completion.chunk",
        "created": 1735000000,
        "model": "m",
        "choices": [choice],
        "prompt_token_ids": None,
    }


USAGE = {"prompt_tokens": 26, "completion_tokens": 8, "total_tokens": 34}
CALL = {
    "id": "call_b1",
    "index": 0,
    "type": "function",
    "function": {"name": "clock", "arguments": '{"zone":"UTC"}'},
}
STREAMS = {
    "ollama, text": (
        "ollama",
        [
            ollama({"reasoning": "The user asks"}),
            ollama({"reasoning": " for the time."}),
            ollama({"content": "No"}),
            ollama({"content": "on."}),
            ollama({}, "stop"),
            ollama({}) | {"choices": [], "usage": USAGE},
        ],
    ),
    "ollama, call": (
        "ollama",
        [
            ollama({"tool_calls": [CALL]}),
            ollama({}, "tool_calls"),
            ollama({}) | {"choices": [], "usage": USAGE},
        ],
    ),
    "vllm, text": (
        "vllm",
        [
            vllm({"role": "assistant", "content": ""}),
            vllm({"reasoning": "The user asks"}),
            vllm({"content": "\n\nNo"}),
            vllm({"content": "on."}),
            vllm({"content": ""}, "stop"),
            vllm({}) | {"choices": [], "usage": USAGE},
        ],
    ),
    "vllm, call": (
        "vllm",
        [
            vllm({"role": "assistant", "content": ""}),
            vllm({"tool_calls": [CALL | {"function": {"name": "clock"}}]}),
            *(
                vllm({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
                for piece in ("", '{"zone": ', '"UTC"}')
            ),
            vllm({"content": ""}, "tool_calls"),
            vllm({}) | {"choices": [], "usage": USAGE},
        ],
    ),
}


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_of_the_documentation(endpoint: Endpoint, make: Make, name: str) -> None:
    provider, chunks = STREAMS[name]
    endpoint.answers(Chunks(chunks))
    completion = await make(provider=provider, api_key="").complete(asking(tools=CLOCK))
    if "call" in name:
        (call,) = completion.tool_calls
        assert (call.id, call.name) == ("call_b1", "clock")
        assert json.loads(call.arguments) == {"zone": "UTC"}
    else:
        assert completion.text.strip() == "Noon."
        assert len(completion.parts) == 2
    usage = completion.usage
    assert (usage.tokens_in, usage.tokens_out, usage.estimated) == (26, 8, False)
    assert usage.cost_usd == 0


async def test_a_document_of_ollama(endpoint: Endpoint, make: Make) -> None:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Noon.", "reasoning": "Hm."},
        "finish_reason": "stop",
    }
    whole = ollama({}) | {"object": "chat.completion", "choices": [choice], "usage": USAGE}
    endpoint.answers(Garbage(json.dumps(whole).encode(), "application/json"))
    assert (await make(provider="ollama").complete(asking())).text == "Noon."


async def test_vllm_without_a_parser_of_calls(endpoint: Endpoint, make: Make) -> None:
    why = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    endpoint.answers(Refuse(400, why))
    with pytest.raises(ModelRefusedError, match=r"--enable-auto-tool-choice.* or set llm\.native"):
        await make(provider="vllm").complete(asking(tools=CLOCK))


# -- the context of Ollama ------------------------------------------------------------------------


async def looked(endpoint: Endpoint, **choice: Any) -> ModelCheck:
    endpoint.models = ["llama3.2:latest"]
    llm = LLM(provider="ollama", model="llama3.2", base_url=endpoint.url, **choice)
    (found,) = [each async for each in check_models(llm)]
    return found


def loaded(context: int) -> dict[str, Any]:
    model = {"name": "llama3.2:latest", "model": "llama3.2:latest", "context_length": context}
    return {"models": [{"model": "other", "context_length": 9}, model]}


def shown(parameters: str) -> dict[str, Any]:
    return {"parameters": parameters, "model_info": {"llama.context_length": 131072}}


@pytest.mark.parametrize(
    ("documents", "wanted", "verdict", "text"),
    [
        ({"/api/ps": loaded(4096)}, 4096, "ok", "with a context of 4,096 tokens"),
        ({"/api/ps": loaded(4096)}, 32768, "warning", "OLLAMA_CONTEXT_LENGTH=32768"),
        ({"/api/ps": loaded(32768)}, None, "ok", "set llm.context_tokens = 32768 to use all"),
        (
            {"/api/ps": {"models": []}, "/api/show": shown('stop  "x"\nnum_ctx     16384\n')},
            32768,
            "warning",
            "a context of 16,384 tokens, but llm.context_tokens is 32,768",
        ),
        (
            {"/api/ps": {"models": None}, "/api/show": shown("")},
            4096,
            "ok",
            "with a context of 4,096 tokens",
        ),
        ({"/api/ps": {}, "/api/show": shown("")}, 8192, "warning", "before it is loaded"),
        ({}, 4096, "ok", "has llama3.2"),
    ],
)
async def test_doctor_says_whether_the_context_is_large_enough(
    endpoint: Endpoint, documents: dict[str, Any], wanted: int | None, verdict: str, text: str
) -> None:
    endpoint.documents = documents
    found = await looked(endpoint, context_tokens=wanted)
    assert found.verdict == verdict
    assert text in found.text


async def test_other_providers_are_not_asked_for_it(endpoint: Endpoint) -> None:
    endpoint.models = ["m"]
    llm = LLM(provider="vllm", model="m", base_url=endpoint.url)
    (found,) = [each async for each in check_models(llm)]
    assert (found.verdict, [request.path for request in endpoint.requests]) == (
        "ok",
        ["/v1/models"],
    )


async def test_parameters_of_ollama_pass_through(endpoint: Endpoint, make: Make) -> None:
    endpoint.answers(Text("Noon."))
    await make(provider="ollama", extra_body={"top_p": 0.9}).complete(asking())
    assert endpoint.requests[0].body["top_p"] == 0.9
