"""The models of agents, built from the settings, with circuit breakers and with fallbacks."""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import anyio
import msgspec
import structlog

from component import system
from component.breaker import Breaker
from component.config.llm import LLM, ModelChoice, Tier
from component.models.catalog import ModelTarget, facts_of, load_facts, resolve
from component.models.constrained import Constrained
from component.models.hosted import HostedModel
from component.models.offered_tools import RefusedTool
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    MakeModel,
    Model,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    OnText,
    Void,
    Wrapped,
)

_log = structlog.get_logger("component.models")
_FIELDS = tuple(ModelChoice.model_fields)


class Guarded(Wrapped):
    """A model with a breaker. Attributes and methods are those of Model, and `aclose`.

    A refusal does not count as a failure, because the model is available.

    Attributes:
        calls: the number of calls in progress.
    """

    def __init__(
        self, model: Model, breaker: Breaker, clock: Callable[[], float] = system.monotonic
    ) -> None:
        super().__init__(model)
        self._breaker = breaker
        self._clock = clock
        self.calls = 0

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """See Model.complete. Raises ModelUnavailableError while the breaker is open."""
        self.calls += 1
        try:
            return await self._complete(request, on_text)
        finally:
            self.calls -= 1

    async def _complete(self, request: ModelRequest, on_text: OnText | None) -> Completion:
        left = self._breaker.enter(self._clock())
        if left is not None:
            raise ModelUnavailableError(
                f"{self.name} has failed and is not used for {left:.0f} more seconds", left
            )
        try:
            completion = await self._model.complete(request, on_text)
        except ModelUnavailableError as error:
            self._breaker.failed(self._clock(), error.retry_after_s)
            if self._breaker.state == "open":
                _log.warning(
                    "a failing model is not used for a while", model=self.name, reason=str(error)
                )
            raise
        except (ContextOverflowError, ModelRefusedError):
            self._breaker.succeeded()
            raise
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return completion


class Fallback(Wrapped):
    """Several models as one. Name and context are those of the first model, prices those of the
    most expensive one, because the maximum cost is reserved before it is known which model answers.

    The next model is asked when a model is unavailable or refuses, and one with a larger context
    also when the question is too long. Once a person has seen a piece of an answer, no other model
    is asked.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__(models[0])
        self.models = tuple(models)

    @property
    def usd_per_token_in(self) -> float:
        """See Model.usd_per_token_in."""
        return max(model.usd_per_token_in for model in self.models)

    @property
    def usd_per_token_out(self) -> float:
        """See Model.usd_per_token_out."""
        return max(model.usd_per_token_out for model in self.models)

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the models; see Model.complete.

        If all fail, the error is that the question is too long if it was too long for any model,
        because a shorter one may be answered. Otherwise it is that the models are unavailable if
        any is, because a later request may succeed.
        """
        told = shown = False

        def on_piece(piece: str | Void) -> bool:
            nonlocal told, shown
            assert on_text is not None
            told = piece is not Void.BROKEN_OFF
            shown = bool(on_text(piece)) or shown
            return shown

        errors: list[ModelError] = []
        too_small = 0
        for model in self.models:
            if model.context_tokens <= too_small:
                continue
            try:
                return await model.complete(request, on_piece if on_text else None)
            except (ContextOverflowError, ModelUnavailableError, ModelRefusedError) as error:
                errors.append(error)
                if isinstance(error, ContextOverflowError):
                    too_small = model.context_tokens
            if shown:
                raise errors[-1]
            if told:
                on_piece(Void.BROKEN_OFF)
            _log.warning("a model has not answered", model=model.name, reason=str(errors[-1]))
        raise _of_all(errors)


def only(model: Model, name: str) -> Model | None:
    """Return the model with a name: this one, or one of its chain; None if there is none."""
    models = model.models if isinstance(model, Fallback) else (model,)
    return next((one for one in models if one.name == name), None)


def _of_all(errors: Sequence[ModelError]) -> ModelError:
    for error in errors:
        if isinstance(error, ContextOverflowError):
            return error
    away = [error for error in errors if isinstance(error, ModelUnavailableError)]
    if not away:
        return errors[0]
    waits = [error.retry_after_s for error in away if error.retry_after_s is not None]
    sentence = "; ".join(str(error) for error in errors)
    return ModelUnavailableError(sentence, min(waits) if len(waits) == len(away) else None)


def choices(llm: LLM, own: Mapping[str, ModelChoice] = {}) -> dict[str, ModelChoice]:
    """Return all models by their sections, with inherited values: the main one first, then the
    others of `[llm]`, then the agents' `own`, by name.
    """
    others = {f"llm.tiers.{tier}": choice for tier, choice in llm.tiers.items()}
    others |= {f"llm.fallback[{i}]": choice for i, choice in enumerate(llm.fallback)}
    others |= {_section(agent): choice for agent, choice in own.items()}
    return {"llm": llm} | {name: _inheriting(choice, llm) for name, choice in others.items()}


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
        own: the models of agents that have one of their own, by name.
        in_usd: whether there are budgets in US dollars, for which prices have to be known.
        refused: called with each tool that a model refuses.
        make: makes each model from its settings; None for the clients of their providers.
        before: the models in whose place these are used: those of the same settings are taken
            from it.
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
        before: "Models | None" = None,
    ) -> None:
        self._llm = llm
        self._in_usd = in_usd
        self._refused = refused
        self._make = make
        self._sleep = sleep
        self._choices = choices(llm, own)
        self._targets: Mapping[str, ModelTarget] = {
            section: resolve(choice, section) for section, choice in self._choices.items()
        }
        self._built: list[_Built] = []
        self._chains: dict[str, Model] = {}
        known = () if before is None else before.built_for(llm, self._choices.values())
        for section, choice in self._choices.items():
            if choice.provider == "local" and not any(each.is_of(choice) for each in known):
                try:
                    self._model(section)
                except ModelRefusedError as error:
                    raise ModelRefusedError(f"{section}: {error}") from error
        if before is not None:
            self._built += known
            before.hand_over(known)

    def get(self, tier: Tier = "standard", of: str = "") -> Model:
        """Return the model of a tier, or `of` an agent: always the same object. Does no I/O."""
        first = _section(of) if of else f"llm.tiers.{tier}"
        if first not in self._chains:
            fallbacks = [f"llm.fallback[{i}]" for i in range(len(self._llm.fallback))]
            chain = [first] if first in self._choices else []
            models = list(dict.fromkeys(map(self._model, (*chain, "llm", *fallbacks))))
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
        built, self._built = self._built, []
        self._chains.clear()
        await _close(built)

    async def close_idle(self) -> None:
        """Close what no call uses. A model that is used later is connected again."""
        await _close([each for each in self._built if not each.model.calls])

    def built_for(self, llm: LLM, wanted: Collection[ModelChoice]) -> "Sequence[_Built]":
        """Return the models that were built, and that `wanted` has too, with these breakers."""
        if _breaker_of(llm) != _breaker_of(self._llm):
            return ()
        return [each for each in self._built if any(map(each.is_of, wanted))]

    def hand_over(self, built: "Sequence[_Built]") -> None:
        """Give these models up: their new owner closes them."""
        self._built = [each for each in self._built if each not in built]

    def _model(self, section: str) -> Model:
        choice = self._choices[section]
        for known in self._built:
            if known.is_of(choice):
                return known.model
        client = None
        if self._make is None:
            built: Model = (client := self._client(section))
        else:
            built = self._make(choice)
        is_local = choice.provider == "local"
        if not (choice.native_tools if choice.native_tools is not None else not is_local):
            built = Constrained(built, very_small=is_local and not choice.model)
        model = Guarded(built, Breaker(*_breaker_of(self._llm)))
        self._built.append(_Built(choice, model, client))
        return model

    def _client(self, section: str) -> HostedModel:
        choice = self._choices[section]
        if choice.provider == "local":
            from component.models.local import build_local  # noqa: PLC0415 - where it is used

            return build_local(choice, section)
        return HostedModel(self._targets[section], refused=self._refused, sleep=self._sleep)


class _Built(msgspec.Struct, frozen=True, eq=False):
    """A model, and the client that has connections of its own."""

    choice: ModelChoice
    model: Guarded
    client: HostedModel | None

    def is_of(self, choice: ModelChoice) -> bool:
        """Return whether it is the model of these settings."""
        # A section of `[llm]` has more fields than the model that it describes.
        return all(getattr(self.choice, field) == getattr(choice, field) for field in _FIELDS)


async def _close(built: Sequence[_Built]) -> None:
    async with anyio.create_task_group() as group:
        for each in built:
            if each.client is not None:
                group.start_soon(each.client.aclose)


def _breaker_of(llm: LLM) -> tuple[int, float]:
    return llm.breaker_failures, llm.breaker_s


def unpriced(llm: LLM, own: Mapping[str, ModelChoice] = {}) -> list[str]:
    """The sections with a key of the models whose price is not known. Blocks for a second."""
    targets: dict[str, ModelTarget] = {}
    for section, choice in choices(llm, own).items():
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
