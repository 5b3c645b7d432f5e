"""Models built from the settings: inheritance, known values, and missing ones."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from component.config.llm import LLM, ModelChoice
from component.models.building import Models
from component.models.catalog import resolve
from component.models.messages import ToolCall, call_message, result_message, text_message
from component.models.protocol import (
    Completion,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
)
from tests.component.models.endpoint import Calls, Endpoint, Refuse, Text

pytestmark = pytest.mark.anyio
REQUEST = ModelRequest(messages=(text_message("user", "Hi"),))


async def no_pause(_: float) -> None:
    await anyio.lowlevel.checkpoint()


Make = Callable[..., Models]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Models] = []

    def make(**llm: Any) -> Models:
        made.append(Models(LLM.model_validate(llm), sleep=no_pause))
        return made[-1]

    yield make
    for models in made:
        await models.aclose()


async def test_during_an_outage_of_the_first_the_second_answers(
    endpoint: Endpoint, make: Make
) -> None:
    main = {"provider": "openai", "model": "one", "base_url": endpoint.url, "api_key": "k" * 20}
    models = make(
        **main, retries=1, breaker_failures=2, fallback=[{"provider": "openai", "model": "two"}]
    )
    endpoint.otherwise = lambda r: Refuse(503) if r.body["model"] == "one" else Text("Hi")
    model = models.get()
    for _ in range(3):
        completion = await model.complete(REQUEST)
        assert (completion.text, completion.model) == ("Hi", "two")
    asked = [request.body["model"] for request in endpoint.requests]
    # Twice with a retry each; then it is left alone.
    assert asked == ["one", "one", "two", "one", "one", "two", "two"]
    assert {r.headers["authorization"] for r in endpoint.requests} == {f"Bearer {'k' * 20}"}


async def test_a_tier_uses_its_own_model_and_falls_back_to_the_main_one(
    endpoint: Endpoint, make: Make
) -> None:
    main = {"provider": "vllm", "model": "main", "base_url": endpoint.url}
    models = make(**main, tiers={"heavy": {"provider": "vllm", "model": "big"}})
    endpoint.otherwise = lambda r: Text(r.body["model"])
    assert models.get("standard") is models.get("light") is models.get("vision")
    assert (await models.get("heavy").complete(REQUEST)).text == "big"
    assert (await models.get("standard").complete(REQUEST)).text == "main"
    endpoint.answers(Refuse(404), Text("stood in"))
    assert (await models.get("heavy").complete(REQUEST)).text == "stood in"
    assert endpoint.requests[-1].body["model"] == "main"


async def test_an_agent_with_its_own_model(endpoint: Endpoint) -> None:
    main = {"provider": "openai", "model": "main", "base_url": endpoint.url, "api_key": "k" * 20}
    own = {
        "a": ModelChoice(provider="openai", model="better"),
        "b": ModelChoice(provider="openai", model="main"),
    }
    models = Models(LLM.model_validate(main), own, sleep=no_pause)
    endpoint.otherwise = lambda r: Text(r.body["model"])
    assert (await models.get("light", "a").complete(REQUEST)).text == "better"
    assert endpoint.requests[-1].headers["authorization"] == f"Bearer {'k' * 20}"
    assert models.get(of="b") is models.get()
    endpoint.answers(Refuse(404), Text("stood in"))
    assert (await models.get(of="a").complete(REQUEST)).text == "stood in"
    assert endpoint.requests[-1].body["model"] == "main"
    await models.aclose()


def test_a_missing_key_of_the_model_of_an_agent() -> None:
    llm = LLM.model_validate({"provider": "ollama", "model": "m"})
    with pytest.raises(ModelRefusedError, match=r"agents\.a\.llm\.api_key is missing"):
        Models(llm, {"a": ModelChoice(provider="anthropic", model="x")})


async def test_a_model_without_support_for_tools(endpoint: Endpoint, make: Make) -> None:
    models = make(provider="vllm", model="m", base_url=endpoint.url, native_tools=False)
    endpoint.answers(Calls(("clock", {})), Text('{"answer": "Noon."}'))
    assert (await models.get().complete(REQUEST)).tool_calls
    from tests.component.models.test_constrained import PING

    request = ModelRequest(messages=REQUEST.messages, tools=(PING,))
    assert (await models.get().complete(request)).text == "Noon."
    assert "tools" not in endpoint.requests[1].body
    assert "anyOf" in endpoint.requests[1].body["response_format"]["json_schema"]["schema"]


@pytest.mark.parametrize("own", ["", "/a/larger/one.gguf"])
async def test_only_the_very_small_model_gets_examples_and_one_round(
    make: Make, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    from tests.component.models.scripted import Scripted
    from tests.component.models.test_constrained import PING

    inner = Scripted(*[Completion.of(text='{"answer": "Done."}')] * 2)
    monkeypatch.setattr("component.models.local.build_local", lambda _choice, _section: inner)
    model = make(provider="local", model=own).get()
    call = ToolCall("c1", PING.name, "{}")
    said = (
        text_message("user", f"{PING.name}, please"),
        call_message("", (call,)),
        result_message("c1", "It is there."),
    )
    for messages in (said[:1], said):
        completion = await model.complete(ModelRequest(messages=messages, tools=(PING,)))
        assert completion.text == "Done."
    before, after = inner.asked
    assert (len(before.messages) > 2) == (not own), "samples stand before the question"
    assert before.schema is not None
    assert after.schema is not None
    assert b'"tool"' in bytes(before.schema)
    assert (b'"tool"' in bytes(after.schema)) == bool(own)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "openrouter"])
def test_a_missing_key_is_reported(provider: str) -> None:
    with pytest.raises(ModelRefusedError, match=r"llm\.tiers\.heavy\.api_key is missing"):
        Models(
            LLM.model_validate(
                {
                    "provider": "ollama",
                    "model": "m",
                    "tiers": {"heavy": {"provider": provider, "model": "x"}},
                }
            )
        )


@pytest.mark.parametrize(
    ("llm", "section"),
    [
        ({"provider": "local", "model": "/nowhere/x.gguf"}, "llm"),
        (
            {"provider": "vllm", "model": "m"}
            | {"tiers": {"light": {"provider": "local", "model": "/nowhere/x.gguf"}}},
            "llm.tiers.light",
        ),
    ],
)
def test_a_missing_local_model_is_reported_at_the_start(llm: dict[str, Any], section: str) -> None:
    with pytest.raises(ModelRefusedError) as refused:
        Models(LLM.model_validate(llm))
    assert str(refused.value) == (
        f"{section}: the model /nowhere/x.gguf cannot be opened: No such file or directory"
    )


async def test_no_key_is_sent_to_another_address(endpoint: Endpoint, make: Make) -> None:
    models = make(
        provider="openai",
        model="m",
        api_key="sk-for-openai-only",
        tiers={"light": {"provider": "openai", "model": "m", "base_url": endpoint.url}},
    )
    endpoint.answers(Text("Hi"))
    await models.get("light").complete(REQUEST)
    assert endpoint.requests[0].headers["authorization"] == "Bearer none"


@pytest.mark.parametrize("in_usd", [True, False])
async def test_an_unknown_price_is_reported_if_budgets_need_it(in_usd: bool) -> None:
    llm = LLM(provider="openai", model="new", api_key=SecretStr("k"))
    with capture_logs() as logs:
        await Models(llm, in_usd=in_usd).prepare()
    assert [log["event"].startswith("the price of a model") for log in logs] == [True] * in_usd


async def test_all_models_are_unavailable(endpoint: Endpoint, make: Make) -> None:
    models = make(provider="vllm", model="m", base_url=endpoint.url, retries=0)
    with pytest.raises(ModelUnavailableError):
        await models.get().complete(REQUEST)


def choice(**fields: Any) -> ModelChoice:
    return ModelChoice.model_validate({"provider": "openai", "model": "m", "api_key": "k"} | fields)


def test_where_ollama_listens() -> None:
    target = resolve(choice(provider="ollama", host="http://box:11434/"), "llm")
    assert target.base_url == "http://box:11434/v1"


def test_secrets_are_not_shown() -> None:
    target = resolve(choice(api_key="sk-hidden", base_url="http://me:pw@box/v1?k=sk-x"), "llm")
    for text in (repr(target), target.where.url):
        assert "sk-" not in text
        assert "pw" not in text


def test_heavy_modules_are_loaded_at_the_first_request() -> None:
    code = """
import sys
from component.models.building import Models
from component.config.llm import LLM
models = Models(LLM(provider="vllm", model="m"))
models.get()
heavy = {"openai", "anthropic", "genai_prices", "httpx2", "xllamacpp", "component.models.local"}
heavy &= set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
