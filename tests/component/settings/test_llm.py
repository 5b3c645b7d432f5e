"""A model for each tier, others to fall back on, and one of an agent's own."""

from typing import Any

from tests.component.settings.smallest import SMALLEST


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
