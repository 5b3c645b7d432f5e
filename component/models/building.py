"""Builds the models of agents from the settings."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import anyio
import structlog

from component import system
from component.models.breaker import Breaker, Guarded
from component.models.catalog import Target, facts_of, load_facts, resolve
from component.models.constrained import Constrained
from component.models.fallback import Fallback
from component.models.hosted import HostedModel
from component.models.local_examples import WithExamples
from component.models.offered_tools import RefusedTool
from component.models.protocol import MakeModel, Model, ModelRefusedError
from component.settings.llm import LLM, ModelChoice, Tier

_log = structlog.get_logger("component.models")


class _Closing(Protocol):
    async def aclose(self) -> None: ...


def choices(llm: LLM, own: Mapping[str, ModelChoice] = {}) -> dict[str, ModelChoice]:
    """Return all models by their sections, with inherited values: the main one first, then the
    others of `[llm]`, then the agents' `own`, by name.
    """
    found: dict[str, ModelChoice] = {"llm": llm}
    found |= {f"llm.tiers.{tier}": _inheriting(choice, llm) for tier, choice in llm.tiers.items()}
    found |= {
        f"llm.fallback[{i}]": _inheriting(choice, llm) for i, choice in enumerate(llm.fallback)
    }
    found |= {_section(agent): _inheriting(choice, llm) for agent, choice in own.items()}
    return found


def _section(agent: str) -> str:
    return f"agents.{agent}.llm"


class Models:
    """The models of `[llm]` and of agents: `get(tier)`, `get(of=name)`.

    Models of providers are built when first used. Local models are built immediately, which reads
    the heads of their files, so that mistakes are reported at the start.

    A model with the provider of the main model inherits its address and key, unless it has its own.
    If the model of a tier or of an agent fails, the main model is asked, and then the fallbacks.

    Raises ModelRefusedError: a key is missing, or the extra that a model needs, or the file of a
    local one.

    Args:
        llm: the section.
        own: the models of agents that have one of their own, by name.
        in_usd: whether there are budgets in US dollars, for which prices have to be known.
        refused: called with each tool that a model refuses.
        make: makes each model from its settings; None for the clients of their providers.
        sleep, clock: replaced by tests.
    """

    def __init__(
        self,
        llm: LLM,
        own: Mapping[str, ModelChoice] = {},
        *,
        in_usd: bool = False,
        refused: Callable[[RefusedTool], None] = lambda _refused: None,
        make: MakeModel | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = system.monotonic,
    ) -> None:
        self._llm = llm
        self._in_usd = in_usd
        self._refused = refused
        self._make = make
        self._sleep, self._clock = sleep, clock
        self._choices = choices(llm, own)
        self._targets: Mapping[str, Target] = {
            section: resolve(choice, section)
            for section, choice in self._choices.items()
            if choice.provider != "local" and make is None
        }
        self._models: dict[str, Model] = {}
        self._chains: dict[str, Model] = {}
        self._closing: list[_Closing] = []
        for section, choice in self._choices.items():
            if choice.provider == "local":
                try:
                    self._model(section)
                except ModelRefusedError as error:
                    raise ModelRefusedError(f"{section}: {error}") from error

    def get(self, tier: Tier = "standard", of: str = "") -> Model:
        """Return the model of a tier, or that `of` an agent with its own; always the same object.
        This does no I/O.
        """
        first = _section(of) if of else f"llm.tiers.{tier}"
        if first not in self._chains:
            sections = [f"llm.fallback[{i}]" for i in range(len(self._llm.fallback))]
            sections = ["llm", *sections]
            if first in self._choices:
                sections.insert(0, first)
            models = list(dict.fromkeys(self._model(section) for section in sections))
            self._chains[first] = models[0] if len(models) == 1 else Fallback(models)
        return self._chains[first]

    async def prepare(self) -> None:
        """Look up sizes and prices of the models, in a thread. Without this, the first use of a
        model does so and blocks the event loop for a second.
        """
        await system.in_thread(load_facts, self._targets.values(), abandon_on_cancel=True)
        if not self._in_usd:
            return
        for section, target in self._targets.items():
            if not facts_of(target).priced:
                _log.warning(
                    "the price of a model is unknown: budgets in US dollars do not limit it",
                    model=target.choice.model,
                    set=f"{section}.usd_per_million_in and usd_per_million_out",
                )

    async def aclose(self) -> None:
        """Close all that was built."""
        closing, self._closing = self._closing, []
        self._models.clear()
        self._chains.clear()
        async with anyio.create_task_group() as group:
            for model in closing:
                group.start_soon(model.aclose)

    def _model(self, section: str) -> Model:
        choice = self._choices[section]
        for other, model in self._models.items():
            if _same(self._choices[other], choice):
                return model
        built = self._built(section, choice)
        native = choice.native_tools
        if not (choice.provider != "local" if native is None else native):
            very_small = choice.provider == "local" and not choice.model
            built = Constrained(built, one_round=very_small)
            if very_small:
                built = WithExamples(built)
        breaker = Breaker(self._llm.breaker_failures, self._llm.breaker_s)
        model = self._models[section] = Guarded(built, breaker, self._clock)
        return model

    def _built(self, section: str, choice: ModelChoice) -> Model:
        if self._make is not None:
            return self._make(choice)
        if choice.provider == "local":
            # Imported only where it is used.
            from component.models.local import build_local  # noqa: PLC0415

            local = build_local(choice, section)
            self._closing.append(local)
            return local
        model = HostedModel(self._targets[section], refused=self._refused, sleep=self._sleep)
        self._closing.append(model)
        return model


def unpriced(llm: LLM, own: Mapping[str, ModelChoice] = {}) -> list[str]:
    """The sections of the models whose price is not known, without those that lack a key. Blocks
    for a second.
    """
    targets: dict[str, Target] = {}
    for section, choice in choices(llm, own).items():
        if choice.provider != "local":
            with contextlib.suppress(ModelRefusedError):
                targets[section] = resolve(choice, section)
    load_facts(targets.values())
    return [section for section, target in targets.items() if not facts_of(target).priced]


def _inheriting(choice: ModelChoice, llm: LLM) -> ModelChoice:
    if choice.provider != llm.provider or choice.provider == "local":
        return choice
    more: dict[str, object] = {}
    if not choice.base_url and not choice.host:
        more |= {"base_url": llm.base_url, "host": llm.host}
    elif (choice.base_url, choice.host) != (llm.base_url, llm.host):
        return choice  # the key is for the other address
    if not choice.api_key.get_secret_value():
        more["api_key"] = llm.api_key
    return choice.model_copy(update=more)


def _same(one: ModelChoice, other: ModelChoice) -> bool:
    fields = ModelChoice.model_fields
    return all(getattr(one, field) == getattr(other, field) for field in fields)
