"""The sections about language models: which, where, and their prices."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator

from component.config.kinds import (
    Count,
    Headers,
    Seconds,
    Section,
    http_address,
    located,
    refusal,
)

Provider = Literal["local", "openai", "anthropic", "ollama", "vllm", "llamacpp", "openrouter"]
Dialect = Literal["chat", "responses", "messages"]
Tier = Literal["light", "standard", "heavy", "vision"]
_OURS = ("model", "messages", "input", "system", "tools", "stream")
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _address(value: str) -> str:
    return http_address(value, "http://localhost:11434")


Address = Annotated[str, AfterValidator(_address)]


class ModelChoice(Section):
    """One model, and how to reach it."""

    provider: Provider = Field(examples=["ollama"])
    """Provider of the model: local (on this machine, with the `local` extra), or a service with an
    HTTP API: openai, anthropic, ollama, vllm, llamacpp, openrouter. For any other service use
    openai with its base_url.
    """
    dialect: Dialect | None = Field(default=None, examples=["responses"])
    """API that the model is called by: chat (OpenAI's chat completions), responses (OpenAI's
    Responses API) or messages (Anthropic's Messages API). Default: responses for OpenAI itself,
    messages for anthropic, otherwise chat.
    """
    model: str = Field(default="", examples=["gpt-4.1-mini"])
    """Name of the model at the provider. For local: path of a GGUF file, or empty for the small
    bundled model.
    """
    base_url: Address = Field(default="", examples=["https://llm.example.com/v1"])
    """URL of the provider's API. Default: the provider's public URL."""
    host: Address = Field(default="", examples=["http://localhost:11434"])
    """URL of Ollama without a path; the same as base_url with `/v1` added."""
    api_key: SecretStr = Field(default=SecretStr(""), examples=["${OPENAI_API_KEY}"])
    """API key of the provider. Keep it out of this file. Fallbacks and tiers with the same provider
    use the api_key and base_url of llm unless they set their own.
    """
    max_tokens_per_request: Count = 4096
    """Maximum number of tokens in one answer of the model."""
    context_tokens: Count | None = Field(default=None, ge=512, examples=[32768])
    """Size of the model's context window in tokens. Default: the known size of the model."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(default=None, examples=[0.7])
    """Sampling temperature. Default: that of the model."""
    reasoning_effort: Annotated[str, Field(pattern="^[a-z]+$")] | None = Field(
        default=None, examples=["low"]
    )
    """How much the model reasons before it answers, in the provider's words, such as none, low,
    medium or high. Default: that of the model.
    """
    vision: bool | None = Field(default=None, examples=[True])
    """Whether the model can see images. If not, a sentence in the prompt replaces each image.
    Default: known by the name of the model.
    """
    headers: Headers = Field(default_factory=dict, examples=[{"X-Team": "agents"}])
    """HTTP header fields to add to each request, such as those that a gateway needs. They replace
    fields of the same name.
    """
    extra_body: dict[str, Any] = Field(default_factory=dict, examples=[{"top_p": 0.9}])
    """Parameters to add to the JSON of each request. Objects are merged, other values replace those
    of the same name.
    """
    cache: bool = True
    """Whether requests mark the parts of the prompt that the provider should keep in its cache.
    Only the dialect messages has such marks; other APIs cache by themselves.
    """
    usd_per_million_in: Usd | None = Field(default=None, examples=[0.4])
    """Price in US dollars per million input tokens. Default: the known price of the model, or 0."""
    usd_per_million_out: Usd | None = Field(default=None, examples=[1.6])
    """Price in US dollars per million output tokens."""
    usd_per_million_cache_read: Usd | None = Field(default=None, examples=[0.1])
    """Price in US dollars per million input tokens that the provider reads from its cache. Default:
    the known price of the model, or usd_per_million_in.
    """
    usd_per_million_cache_write: Usd | None = Field(default=None, examples=[0.5])
    """Price in US dollars per million input tokens that the provider writes to its cache. Default:
    the known price of the model, or usd_per_million_in.
    """
    native_tools: bool | None = Field(default=None, examples=[False])
    """Whether the model has native tool calls. If false, its output is constrained to a schema in
    which it can request tools. Default: true, but false for local.
    """
    first_token_timeout_s: Seconds | None = Field(default=None, examples=[300])
    """Timeout in seconds for the first token of an answer. Default: 180, but 600 for ollama, vllm,
    llamacpp and local, which may have to load the model and read a long prompt.
    """
    token_timeout_s: Seconds = 60
    """Timeout in seconds between two tokens of an answer, reasoning included."""
    timeout_s: Seconds = 900
    """Timeout in seconds for one answer. A text that is still being written then is treated like
    one that has reached max_tokens_per_request.
    """
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Number of retries after a temporary failure, with exponential backoff or after the time that
    the provider gives.
    """

    @field_validator("model")
    @classmethod
    def _named(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.data.get("provider", "local") != "local":
            raise refusal("is needed: the name of a model of the provider")
        is_file = value and info.data.get("provider") == "local"
        return str(located(Path(value))) if is_file else value

    @field_validator("extra_body")
    @classmethod
    def _ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key in _OURS:
            if key in value:
                raise refusal(f"must not contain {key}, which is set by the service")
        return value

    @field_validator("host")
    @classmethod
    def _one_place(cls, value: str, info: ValidationInfo) -> str:
        if value and info.data.get("base_url"):
            raise refusal("and base_url have the same meaning: remove one")
        return value


class LLM(ModelChoice):
    """The language model behind the agents. Without this section they answer commands only."""

    fallback: tuple[ModelChoice, ...] = ()
    """Models to use, in this order, when the first one is not available."""
    tiers: dict[Tier, ModelChoice] = Field(default_factory=dict)
    """Other models for agents and personas that name a tier: light, standard, heavy or vision. A
    tier that is not listed uses the model above. If a tier's model is not available, the model
    above is used, then the fallbacks.
    """
    breaker_failures: Count = 5
    """Number of failures in a row after which a model is not used for a while."""
    breaker_s: Seconds = 30
    """Seconds for which such a model is not used."""
