"""What is known of providers and models, and what the settings make of it.

Prices and sizes are those that OpenAI and Anthropic published by 22 November 2026. Where long
questions cost more, the context ends where they begin to. The settings go before all of it.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from component.models.faults import Where
from component.models.protocol import ModelRefusedError
from component.settings.llm import ModelChoice, Provider


class Preset(msgspec.Struct, frozen=True):
    """A provider. `context_tokens` is for models that are not known."""

    base_url: str
    context_tokens: int
    needs_key: bool = False
    holds_schema: bool = True
    tells_cost: bool = False


PRESETS: Mapping[Provider, Preset] = {
    "openai": Preset("https://api.openai.com/v1", 128_000, needs_key=True),
    # Its compatible interface passes over response_format.
    "anthropic": Preset(
        "https://api.anthropic.com/v1", 200_000, needs_key=True, holds_schema=False
    ),
    "openrouter": Preset("https://openrouter.ai/api/v1", 32_768, needs_key=True, tells_cost=True),
    # Ollama cuts what is longer than its num_ctx, in silence; 4096 is the least that it comes with.
    "ollama": Preset("http://localhost:11434/v1", 4096),
    "vllm": Preset("http://localhost:8000/v1", 8192),
    "llamacpp": Preset("http://localhost:8080/v1", 8192),
}


class Known(msgspec.Struct, frozen=True):
    """A model: its context in tokens, and US dollars for a million tokens in and out."""

    context_tokens: int
    usd_in: float
    usd_out: float


_KNOWN: Mapping[str, Known] = {
    "gpt-4o": Known(128_000, 2.5, 10),
    "gpt-4o-mini": Known(128_000, 0.15, 0.6),
    "gpt-4.1": Known(1_047_576, 2, 8),
    "gpt-4.1-mini": Known(1_047_576, 0.4, 1.6),
    "gpt-4.1-nano": Known(1_047_576, 0.1, 0.4),
    "gpt-5": Known(400_000, 1.25, 10),
    "gpt-5-mini": Known(400_000, 0.25, 2),
    "gpt-5-nano": Known(400_000, 0.05, 0.4),
    "gpt-5.6": Known(272_000, 4, 20),
    "gpt-5.6-sol": Known(272_000, 4, 20),
    "gpt-5.6-terra": Known(272_000, 2, 12),
    "gpt-5.6-luna": Known(272_000, 0.2, 1.2),
    "gpt-6-astra": Known(272_000, 10, 50),
    "gpt-6-sol": Known(272_000, 2, 10),
    "gpt-6-luna": Known(272_000, 0.1, 0.5),
    "claude-haiku-4-5": Known(200_000, 1, 5),
    "claude-sonnet-4-5": Known(200_000, 3, 15),
    "claude-opus-4-5": Known(200_000, 5, 25),
    "claude-sonnet-5": Known(1_000_000, 2, 10),
    "claude-opus-5": Known(1_000_000, 5, 25),
    "claude-haiku-5-5": Known(100_000, 0.1, 0.5),
    "claude-sonnet-5-5": Known(1_000_000, 2, 10),
    "claude-opus-5-5": Known(1_000_000, 4, 20),
    "claude-fable-5-1": Known(1_000_000, 10, 50),
}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is reached over HTTP, all settled. Prices are for one token."""

    choice: ModelChoice
    preset: Preset
    where: Where
    base_url: str
    official: bool
    context_tokens: int
    usd_in: float
    usd_out: float
    priced: bool

    def __repr__(self) -> str:
        """Say which model it is, without the key."""
        return f"Target({self.where.section}: {self.where.model} at {self.where.url})"


def resolve(choice: ModelChoice, section: str) -> Target:
    """Settle what `choice`, which stands in `section` of the settings, leaves open.

    Raises ModelRefusedError: the key is missing that the provider needs.
    """
    if choice.provider == "local":
        raise ValueError("the local model is not reached over HTTP")
    preset = PRESETS[choice.provider]
    base_url = choice.base_url or (choice.host and f"{choice.host.rstrip('/')}/v1")
    base_url = (base_url or preset.base_url).rstrip("/")
    official = base_url == preset.base_url
    key = choice.api_key.get_secret_value()
    if preset.needs_key and official and not key:
        raise ModelRefusedError(
            f"{section}.api_key is missing, which {choice.provider} needs: write"
            f' api_key = "${{{choice.provider.upper()}_API_KEY}}", and export that variable or set'
            " it in the file that ends in .env"
        )
    known = _known(choice) if official and preset.needs_key else None
    priced = choice.usd_per_million_in is not None or choice.usd_per_million_out is not None
    usd_in, usd_out = choice.usd_per_million_in, choice.usd_per_million_out
    if known is not None:
        usd_in = known.usd_in if usd_in is None else usd_in
        usd_out = known.usd_out if usd_out is None else usd_out
    return Target(
        choice=choice,
        preset=preset,
        where=Where(choice.model, _shown(base_url), section, key),
        base_url=base_url,
        official=official,
        context_tokens=choice.context_tokens
        or (known.context_tokens if known else preset.context_tokens),
        usd_in=(usd_in or 0.0) / 1e6,
        usd_out=(usd_out or 0.0) / 1e6,
        priced=priced or known is not None or not preset.needs_key,
    )


def _known(choice: ModelChoice) -> Known | None:
    name = choice.model
    if choice.provider == "openrouter":
        # `openai/gpt-4.1`, `anthropic/claude-sonnet-4.5`; `:free` and the like are other offers.
        name = name.partition("/")[2].replace(".", "-" if "claude" in name else ".")
    while name and name not in _KNOWN:
        name, _, version = name.rpartition("-")
        # Only what names a day: `gpt-5-pro` is not `gpt-5`.
        if not (version == "latest" or (version.isdigit() and len(version) in (2, 4, 8))):
            return None
    return _KNOWN.get(name)


def _shown(url: str) -> str:
    """Give the URL without user, password and query, which may be secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
