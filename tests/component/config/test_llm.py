"""A model for each tier, others to fall back on, and one of an agent's own."""

from typing import Any

import pytest
from pydantic import ValidationError

from component.config.llm import LLM
from tests.component.smallest_settings import SMALLEST


def test_models_for_tiers_and_fallbacks(read: Any, problems: Any) -> None:
    llm = '[llm]\nprovider = "openai"\nmodel = "big"\napi_key = "k"\n'
    more = (
        '[llm.tiers.light]\nprovider = "ollama"\nmodel = "small"\n'
        '[[llm.fallback]]\nprovider = "local"\n'
    )
    settings = read(SMALLEST + llm + more)
    assert settings.llm.tiers["light"].model == "small"
    assert settings.llm.fallback[0].provider == "local"
    own = '[[agents]]\nname = "a"\n[agents.llm]\nprovider = "ollama"\nmodel = "small"\n'
    (agent,) = read(SMALLEST + llm + own).agents
    assert agent.llm.model == "small"
    (problem,) = problems(SMALLEST + llm + '[[agents]]\nname = "a"\nllm = "small"\n')
    assert "llm" in problem
    (problem,) = problems(SMALLEST + llm + '[llm.tiers.tiny]\nprovider = "local"\n')
    assert "tiny" in problem or "tiers" in problem
    (problem,) = problems(SMALLEST + '[llm]\nprovider = "ollama"\n')
    assert "llm.model is needed" in problem
    (problem,) = problems(
        SMALLEST + llm + '[llm.tiers.light]\nprovider = "local"\ntemprature = 1\n'
    )
    assert "temperature" in problem


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("dialect", "completions", "dialect"),
        ("extra_body", {"messages": []}, "must not contain messages"),
        ("extra_body", {"stream": False}, "must not contain stream"),
        ("headers", {"X Team": "a"}, "is not the name of a header field"),
        ("headers", {"X-Team": "a\r\nX-Other: b"}, "has a value for X-Team"),
        ("reasoning_effort", "very high", "reasoning_effort"),
        ("first_token_timeout_s", 0, "first_token_timeout_s"),
        ("usd_per_million_cache_read", -1, "usd_per_million_cache_read"),
    ],
)
def test_options_that_cannot_be_sent(key: str, value: Any, says: str) -> None:
    with pytest.raises(ValidationError) as error:
        LLM.model_validate({"provider": "vllm", "model": "m", key: value})
    assert says in str(error.value)


def test_headers_are_secret() -> None:
    llm = LLM.model_validate(
        {"provider": "vllm", "model": "m", "headers": {"X-Token": "sk-secret", "X-Empty": ""}}
    )
    assert "sk-secret" not in repr(llm)
    assert llm.headers["X-Token"].get_secret_value() == "sk-secret"
