"""A model inside of another one."""

from component.models.protocol import Model


class Wrapped:
    """The attributes of a model that adds something to another one."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """See Model.name."""
        return self._model.name

    @property
    def context_tokens(self) -> int:
        """See Model.context_tokens."""
        return self._model.context_tokens

    @property
    def usd_per_token_in(self) -> float:
        """See Model.usd_per_token_in."""
        return self._model.usd_per_token_in

    @property
    def usd_per_token_out(self) -> float:
        """See Model.usd_per_token_out."""
        return self._model.usd_per_token_out

    def tokens(self, text: str) -> int:
        """See Model.tokens."""
        return self._model.tokens(text)

    async def aclose(self) -> None:
        """Close the model."""
        close = getattr(self._model, "aclose", None)
        if close is not None:
            await close()
