"""A chain of models: if one is unavailable, the next one is asked."""

from collections.abc import Sequence

import structlog

from component.models.protocol import (
    Completion,
    ContextOverflowError,
    Model,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    OnText,
    Void,
)
from component.models.wrapped import Wrapped

_log = structlog.get_logger("component.models")


class Fallback(Wrapped):
    """Several models as one. Name and context are those of the first model, prices those of the
    most expensive one, because the maximum cost is reserved before it is known which model answers.

    The next model is asked when a model is unavailable or refuses, and one with a larger context
    also when the question is too long. Once a person has seen a piece of an answer, no other model
    is asked.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__(models[0])
        self._models = tuple(models)

    def named(self, name: str) -> Model | None:
        """Return the model of the chain with a name, or None."""
        return next((one for one in self._models if one.name == name), None)

    @property
    def usd_per_token_in(self) -> float:
        """See Model.usd_per_token_in."""
        return max(model.usd_per_token_in for model in self._models)

    @property
    def usd_per_token_out(self) -> float:
        """See Model.usd_per_token_out."""
        return max(model.usd_per_token_out for model in self._models)

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
        for model in self._models:
            if model.context_tokens <= too_small:
                continue
            try:
                return await model.complete(request, on_piece if on_text else None)
            except ContextOverflowError as error:
                too_small = max(too_small, model.context_tokens)
                errors.append(error)
            except (ModelUnavailableError, ModelRefusedError) as error:
                errors.append(error)
            if shown:
                raise errors[-1]
            if told:
                on_piece(Void.BROKEN_OFF)
            _log.warning("a model has not answered", model=model.name, reason=str(errors[-1]))
        raise _of_all(errors)


def only(model: Model, name: str) -> Model | None:
    """Return the model with a name: this one, or one of its chain; None if there is none."""
    if isinstance(model, Fallback):
        return model.named(name)
    return model if model.name == name else None


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
