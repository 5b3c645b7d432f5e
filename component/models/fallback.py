"""A chain of models: the next is asked when one cannot be had."""

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
)

_log = structlog.get_logger("component.models")


class Fallback:
    """Several models as one. Name and context are those of the first, prices those of the dearest:
    what a call can cost at most is set aside before it is known who answers.

    The next one is asked when a model is unavailable or refuses; one with a larger context too when
    the question is too long. Once a piece of an answer was passed on, it is that one or none.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        first = models[0]
        self.name = first.name
        self.context_tokens = first.context_tokens
        self.usd_per_token_in = max(model.usd_per_token_in for model in models)
        self.usd_per_token_out = max(model.usd_per_token_out for model in models)
        self._models = tuple(models)

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the models; see Model.complete.

        When all fail, the error is that the question is too long, if it was for any: a shorter one
        may be answered. Else that they are unavailable, if any is: later may help.
        """
        told = False

        def on_piece(piece: str) -> None:
            nonlocal told
            told = True
            assert on_text is not None
            on_text(piece)

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
            if told:
                raise errors[-1]
            _log.warning("a model has not answered", model=model.name, reason=str(errors[-1]))
        raise _of_all(errors)

    def tokens(self, text: str) -> int:
        """See Model.tokens; as the first one counts."""
        return self._models[0].tokens(text)


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
