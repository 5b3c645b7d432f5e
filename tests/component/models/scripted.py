"""A model in memory with scripted answers."""

from collections.abc import Sequence

from component.models.protocol import Completion, ModelError, ModelRequest, OnText


class Scripted:
    """Answers with each of `script` in turn, an error by raising it; `asked` has the requests."""

    def __init__(
        self,
        *script: Completion | ModelError,
        pieces: Sequence[str] | None = None,
        name: str = "scripted",
        context_tokens: int = 8192,
    ) -> None:
        self.asked: list[ModelRequest] = []
        self.name = name
        self.context_tokens = context_tokens
        self.usd_per_token_in = 0.0
        self.usd_per_token_out = 0.0
        self._script = list(script)
        self._pieces = pieces

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        self.asked.append(request)
        said = self._script.pop(0)
        if isinstance(said, ModelError):
            raise said
        if on_text is not None:
            for piece in self._pieces or [said.text]:
                on_text(piece)
        return said

    def tokens(self, text: str) -> int:
        return len(text)

    async def aclose(self) -> None:
        pass
