"""Resolves the provider of a model, its address, and values that the settings do not have."""

import re
import threading
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from component.config.llm import Dialect, ModelChoice, Provider
from component.http.targets import is_loopback
from component.models.faults import Where
from component.models.price_list import Listed, PriceQuestion, look_up_prices
from component.models.protocol import ModelRefusedError


class Preset(msgspec.Struct, frozen=True):
    """A provider. `context_tokens` is for models that are not known. One that is `local` usually
    runs on a machine of the operator: calls are free, and the model may have to be loaded first.
    """

    base_url: str
    context_tokens: int
    needs_key: bool = False
    local: bool = False
    tells_cost: bool = False


PRESETS: Mapping[Provider, Preset] = {
    "openai": Preset("https://api.openai.com/v1", 128_000, needs_key=True),
    "anthropic": Preset("https://api.anthropic.com/v1", 200_000, needs_key=True),
    "openrouter": Preset("https://openrouter.ai/api/v1", 32_768, needs_key=True, tells_cost=True),
    # Ollama silently truncates prompts beyond its num_ctx; 4096 is the smallest default.
    "ollama": Preset("http://localhost:11434/v1", 4096, local=True),
    "vllm": Preset("http://localhost:8000/v1", 8192, local=True),
    "llamacpp": Preset("http://localhost:8080/v1", 8192, local=True),
    # On a Unix socket, with the context that the file of the model has.
    "local": Preset("http://localhost/v1", 8192, local=True),
}

_FIRST_TOKEN_S: Final = 180.0
_FIRST_TOKEN_LOCAL_S: Final = 600.0

# Families of models that support images, by their names in the catalogs of providers and Ollama.
_VISION = re.compile(
    r"gpt-4o|gpt-4\.1|gpt-4\.5|gpt-4-turbo|gpt-[5-9]|chatgpt-|\bo[13]\b(?!-(mini|preview))|\bo4-mini"
    r"|claude|gemini|gemma-?3|gemma-?4|pixtral|llava|vision|\bvl\b|[0-9.]vl|-vl\b|minicpm-?v|moondream"
    r"|llama-?4|mistral-(small-?3\.[1-9]|medium-?3)|grok-[4-9]|internvl|molmo|glm-[4-9][.0-9]*v",
    re.IGNORECASE,
)


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for one token."""

    usd_in: float = 0.0
    usd_out: float = 0.0
    usd_cache_read: float = 0.0
    usd_cache_write: float = 0.0

    def cost(
        self, tokens_in: int, tokens_out: int, cache_read: int = 0, cache_write: int = 0
    ) -> float:
        """The price of a call; `tokens_in` includes those read from and written to the cache."""
        cached = min(cache_read, tokens_in)
        written = min(cache_write, tokens_in - cached)
        return (
            (tokens_in - cached - written) * self.usd_in
            + cached * self.usd_cache_read
            + written * self.usd_cache_write
            + tokens_out * self.usd_out
        )


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Size and prices of a model. `priced` says whether the prices are known."""

    context_tokens: int
    prices: Prices
    priced: bool


class ModelTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is reached over HTTP. `socket` is the path of the Unix socket to connect to,
    instead of the host of `base_url`.
    """

    choice: ModelChoice
    preset: Preset
    dialect: Dialect
    where: Where
    base_url: str
    official: bool
    vision: bool
    first_token_timeout_s: float
    socket: str | None = None

    def __repr__(self) -> str:
        """Say which model it is, without the key."""
        return f"ModelTarget({self.where.section}: {self.where.model} at {self.where.url})"

    @property
    def headers(self) -> dict[str, str]:
        """The header fields of the settings, which may be secret."""
        return {name: value.get_secret_value() for name, value in self.choice.headers.items()}

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine."""
        return is_loopback(self.base_url)

    @property
    def question(self) -> PriceQuestion | None:
        """The entry of the price list to look up; None if the list cannot have the model."""
        if self.preset.local or self.is_loopback:
            return None
        if self.official:
            return PriceQuestion(self.choice.model, provider=self.choice.provider)
        return PriceQuestion(self.choice.model, url=self.base_url)


_listed: dict[PriceQuestion, Listed | None] = {}
_loading = threading.Lock()


def load_facts(targets: Iterable[ModelTarget]) -> None:
    """Look up what the settings of these models do not have, once. Blocks for about a second."""
    with _loading:
        questions = {
            question
            for target in targets
            if (question := target.question) is not None
            and question not in _listed
            and not _settled(target.choice)
        }
        ordered = sorted(questions, key=lambda each: (each.provider, each.url, each.model))
        _listed.update(zip(ordered, look_up_prices(ordered), strict=True))


def facts_of(target: ModelTarget) -> ModelFacts:
    """Return size and prices of a model: from the settings, the price list, or the provider's
    preset.

    Blocks for about a second if `load_facts` has not looked the model up before.
    """
    choice, known = target.choice, Listed()
    if target.question is not None and not _settled(choice):
        load_facts([target])
        known = _listed[target.question] or known
    own = choice.usd_per_million_in
    usd_in = known.usd_in if own is None else own
    # A price in the settings also applies to cached tokens, unless these have their own price.
    prices = Prices(
        usd_in=_per_token(usd_in),
        usd_out=_per_token(choice.usd_per_million_out, known.usd_out),
        usd_cache_read=_per_token(
            choice.usd_per_million_cache_read, own, known.usd_cache_read, usd_in
        ),
        usd_cache_write=_per_token(
            choice.usd_per_million_cache_write, own, known.usd_cache_write, usd_in
        ),
    )
    is_set = usd_in is not None or choice.usd_per_million_out is not None
    return ModelFacts(
        context_tokens=choice.context_tokens
        or known.context_tokens
        or target.preset.context_tokens,
        prices=prices,
        priced=is_set or target.preset.local,
    )


def _per_token(*per_million: float | None) -> float:
    """The first price that is known, for one token; 0 if none is."""
    return next((price for price in per_million if price is not None), 0.0) / 1e6


def _settled(choice: ModelChoice) -> bool:
    """Whether the settings leave nothing open that the price list could know."""
    prices = (choice.usd_per_million_in, choice.usd_per_million_out)
    return None not in (choice.context_tokens, *prices)


def resolve(choice: ModelChoice, section: str) -> ModelTarget:
    """Settle how the model is reached that `choice`, in `section` of the settings, describes.

    Raises ModelRefusedError: the key is missing that the provider needs.
    """
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
    vision = choice.vision
    return ModelTarget(
        choice=choice,
        preset=preset,
        dialect=choice.dialect or _dialect(choice.provider, official=official),
        where=Where(choice.model, _shown(base_url), section, key),
        base_url=base_url,
        official=official,
        vision=_VISION.search(choice.model) is not None if vision is None else vision,
        first_token_timeout_s=choice.first_token_timeout_s
        or (_FIRST_TOKEN_LOCAL_S if preset.local else _FIRST_TOKEN_S),
    )


def _dialect(provider: Provider, *, official: bool) -> Dialect:
    if provider == "anthropic":
        return "messages"
    return "responses" if provider == "openai" and official else "chat"


def _shown(url: str) -> str:
    """Give the URL without user, password and query, which may be secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
