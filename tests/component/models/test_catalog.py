"""Sizes and prices of models: from the settings, the price list, or the provider."""

import subprocess
from datetime import UTC, datetime
from typing import Any

import pytest

from component.config.llm import ModelChoice
from component.models import catalog
from component.models.catalog import Prices, facts_of, load_facts, resolve
from component.models.price_list import Listed, PriceQuestion, find_prices, look_up_prices

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)  # DeepSeek has other prices at night


def choice(**fields: Any) -> ModelChoice:
    return ModelChoice.model_validate({"provider": "openai", "model": "m", "api_key": "k"} | fields)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[PriceQuestion]:
    """The questions that were looked up, in this process."""
    asked: list[PriceQuestion] = []

    def look_up_prices(questions: list[PriceQuestion]) -> list[Listed | None]:
        asked.extend(questions)
        return [find_prices(question, NOW) for question in questions]

    monkeypatch.setattr(catalog, "look_up_prices", look_up_prices)
    monkeypatch.setattr(catalog, "_listed", {})
    return asked


@pytest.mark.parametrize(
    ("fields", "context", "usd_in", "usd_out"),
    [
        ({"model": "gpt-4.1-mini"}, 1_000_000, 0.4, 1.6),
        ({"model": "gpt-4.1-mini-2025-04-14"}, 1_000_000, 0.4, 1.6),
        ({"model": "gpt-4.1-mini-latest"}, 1_000_000, 0.4, 1.6),
        ({"model": "of-our-own"}, 128_000, 0, 0),
        # Longer prompts cost more: the context ends where they begin to.
        ({"model": "gpt-5.6-sol"}, 272_000, 4, 20),
        ({"provider": "anthropic", "model": "claude-sonnet-4-5-20250929"}, 200_000, 3, 15),
        ({"provider": "anthropic", "model": "claude-haiku-4-5-latest"}, 200_000, 1, 5),
        ({"provider": "openrouter", "model": "openai/gpt-4.1"}, 1_047_576, 2, 8),
        ({"provider": "openrouter", "model": "openai/gpt-4.1:free"}, 32_768, 0, 0),
        ({"model": "gpt-4.1", "base_url": "http://mine/v1"}, 128_000, 0, 0),
        ({"model": "deepseek-chat", "base_url": "https://api.deepseek.com/v1"}, 64_000, 0.27, 1.1),
        ({"model": "gpt-4.1", "context_tokens": 9000, "usd_per_million_in": 1}, 9000, 1, 8),
        ({"provider": "ollama", "model": "gpt-4.1"}, 4096, 0, 0),
    ],
)
def test_size_and_price(
    listed: list[PriceQuestion], fields: dict[str, Any], context: int, usd_in: float, usd_out: float
) -> None:
    facts = facts_of(resolve(choice(**fields), "llm"))
    assert facts.context_tokens == context
    assert facts.prices.usd_in == pytest.approx(usd_in / 1e6)
    assert facts.prices.usd_out == pytest.approx(usd_out / 1e6)


def test_prices_of_cached_tokens(listed: list[PriceQuestion]) -> None:
    known = facts_of(resolve(choice(model="claude-opus-4-5", provider="anthropic"), "llm")).prices
    assert known.usd_cache_read == pytest.approx(0.5e-6)
    assert known.usd_cache_write == pytest.approx(6.25e-6)
    # One's own price is that of cached tokens too, unless there is one for them.
    own = {"usd_per_million_in": 2, "usd_per_million_cache_write": 3}
    prices = facts_of(resolve(choice(model="gpt-4.1", **own), "llm")).prices
    assert prices.usd_cache_read == pytest.approx(2e-6)
    assert prices.usd_cache_write == pytest.approx(3e-6)


def test_the_cost_of_a_call_counts_each_token_once() -> None:
    prices = Prices(usd_in=10, usd_out=100, usd_cache_read=1, usd_cache_write=20)
    assert prices.cost(10, 1) == 200
    assert prices.cost(10, 1, cache_read=4, cache_write=5) == 10 + 4 + 100 + 100
    assert prices.cost(10, 0, cache_read=99, cache_write=99) == 10, "no more than there are"


def test_models_with_complete_settings_and_local_ones_are_not_looked_up(
    listed: list[PriceQuestion],
) -> None:
    settled = {"context_tokens": 9000, "usd_per_million_in": 1, "usd_per_million_out": 2}
    for fields in (settled, {"provider": "vllm"}, {"base_url": "http://127.0.0.1:1/v1"}):
        facts_of(resolve(choice(**fields), "llm"))
    assert listed == []


def test_each_model_is_looked_up_once(listed: list[PriceQuestion]) -> None:
    targets = [resolve(choice(model=model), "llm") for model in ("gpt-4.1", "gpt-5", "gpt-4.1")]
    load_facts(targets)
    load_facts(targets)
    assert facts_of(targets[0]).context_tokens == 1_000_000
    assert sorted(question.model for question in listed) == ["gpt-4.1", "gpt-5"]


def test_the_list_is_read_by_a_child_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = look_up_prices(
        [PriceQuestion("gpt-4.1", "openai"), PriceQuestion("of-our-own", "openai")]
    )
    assert found == [find_prices(PriceQuestion("gpt-4.1", "openai"), datetime.now(UTC)), None]
    assert look_up_prices([]) == []

    def broken(*_: Any, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(subprocess, "run", broken)
    assert look_up_prices([PriceQuestion("gpt-4.1", "openai")]) == [None]


@pytest.mark.parametrize(
    ("model", "sees"),
    [
        ("gpt-4.1-mini", True),
        ("gpt-6-sol", True),
        ("claude-opus-5-5", True),
        ("anthropic/claude-sonnet-4.5", True),
        ("google/gemini-3-pro", True),
        ("qwen2.5vl:7b", True),
        ("Qwen/Qwen3-VL-8B-Instruct", True),
        ("llama3.2-vision", True),
        ("llava", True),
        ("gemma3:4b", True),
        ("pixtral-12b", True),
        ("gpt-3.5-turbo", False),
        ("deepseek-chat", False),
        ("qwen3:8b", False),
        ("llama3.1", False),
        ("o3-mini", False),
        ("mistral-small-24b-instruct-2501", False),
    ],
)
def test_which_models_support_images(model: str, sees: bool) -> None:
    assert resolve(choice(model=model), "llm").vision == sees
    for own in (True, False):
        assert resolve(choice(model=model, vision=own), "llm").vision == own


@pytest.mark.parametrize(
    ("fields", "dialect"),
    [
        ({}, "responses"),
        ({"base_url": "https://api.deepseek.com/v1"}, "chat"),
        ({"provider": "anthropic"}, "messages"),
        ({"provider": "anthropic", "base_url": "https://gateway.example/v1"}, "messages"),
        ({"provider": "openrouter"}, "chat"),
        ({"provider": "ollama"}, "chat"),
        ({"dialect": "chat"}, "chat"),
        ({"provider": "vllm", "dialect": "messages"}, "messages"),
    ],
)
def test_the_dialect_of_a_provider(fields: dict[str, Any], dialect: str) -> None:
    assert resolve(choice(**fields), "llm").dialect == dialect


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [({}, 180), ({"provider": "ollama"}, 600), ({"first_token_timeout_s": 5}, 5)],
)
def test_a_local_model_has_time_to_read(fields: dict[str, Any], seconds: float) -> None:
    assert resolve(choice(**fields), "llm").first_token_timeout_s == seconds
