"""The sections about language models: which, where, for what price."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator

from component.settings.kinds import Count, Seconds, Section, http_address, refusal

Provider = Literal["local", "openai", "anthropic", "ollama", "vllm", "llamacpp", "openrouter"]
Tier = Literal["light", "standard", "heavy", "vision"]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _address(value: str) -> str:
    return http_address(value, "http://localhost:11434")


Address = Annotated[str, AfterValidator(_address)]


class ModelChoice(Section):
    """One model, and how it is reached."""

    provider: Provider = Field(
        examples=["ollama"],
        description="Who runs the model: local (on this machine, with the `local` extra), or one of"
        " the services that speak the interface of OpenAI: openai, anthropic, ollama, vllm,"
        " llamacpp, openrouter. For any other use openai with its base_url.",
    )
    model: str = Field(
        default="",
        examples=["gpt-4.1-mini"],
        description="The model, as the provider calls it. For local: the path of a GGUF file, or"
        " empty for the small one that comes along.",
    )
    base_url: Address = Field(
        default="",
        examples=["https://llm.example.com/v1"],
        description="Where the provider listens, if not at its usual place.",
    )
    host: Address = Field(
        default="",
        examples=["http://localhost:11434"],
        description="Where Ollama listens, without the path. The same as base_url with `/v1`.",
    )
    api_key: SecretStr = Field(
        default=SecretStr(""),
        examples=["${OPENAI_API_KEY}"],
        description="The key for the provider. Keep it out of this file. Fallbacks and tiers of the"
        " same provider have that of llm, and its base_url, unless they name their own.",
    )
    max_tokens_per_request: Count = Field(
        default=4096, description="Most tokens that one answer of the model may have."
    )
    context_tokens: Count | None = Field(
        default=None,
        ge=512,
        examples=[32768],
        description="How many tokens question and answer may have together; what is known of the"
        " model unless set.",
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None,
        examples=[0.7],
        description="How freely the model chooses its words; its default unless set.",
    )
    usd_per_million_in: Usd | None = Field(
        default=None,
        examples=[0.4],
        description="Price in US dollars of a million tokens of question; what is known of the"
        " model, or 0, unless set.",
    )
    usd_per_million_out: Usd | None = Field(
        default=None,
        examples=[1.6],
        description="Price in US dollars of a million tokens of answer.",
    )
    native_tools: bool | None = Field(
        default=None,
        examples=[False],
        description="Whether the model calls tools by itself. If not, its output is held to a"
        " schema in which it can ask for them. Unless set: true, but false for local.",
    )
    timeout_s: Seconds = Field(
        default=120,
        description="Seconds for one answer; half of it for its first word, and between any two. A"
        " provider that wants to be left alone for longer than that half is not waited for.",
    )
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        default=2,
        description="How often a call is tried again that failed for a passing reason, with longer"
        " and longer waits, or as long as the provider says.",
    )

    @field_validator("model")
    @classmethod
    def _named(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.data.get("provider", "local") != "local":
            raise refusal("is needed: which model of the provider")
        return value

    @field_validator("host")
    @classmethod
    def _one_place(cls, value: str, info: ValidationInfo) -> str:
        if value and info.data.get("base_url"):
            raise refusal("and base_url say the same: leave one out")
        return value


class LLM(ModelChoice):
    """The language model behind the agents. Without this section they answer commands only."""

    fallback: tuple[ModelChoice, ...] = Field(
        default=(), description="Models to ask, in this order, when the first cannot be had."
    )
    tiers: dict[Tier, ModelChoice] = Field(
        default_factory=dict,
        description="Other models for agents and personas that name a tier: light, standard, heavy"
        " or vision. A tier that is not named here is served by the model above, which also stands"
        " in, before the fallbacks, for one that cannot be had.",
    )
    breaker_failures: Count = Field(
        default=5,
        description="Failures in a row after which a model is left alone for a while.",
    )
    breaker_s: Seconds = Field(
        default=30, description="Seconds for which such a model is left alone."
    )
