"""The chat completions of llama.cpp, whose server reports how much of the prompt it has read."""

import msgspec

from component.models.catalog import Target
from component.models.chat_completions import ChatCompletions
from component.models.chat_text import TextReader
from component.models.chat_wire import Chunk
from component.models.gathering import Gathering
from component.models.protocol import ContextOverflowError, ModelRequest, OnText
from component.models.tool_names import ToolNames


class LlamaCompletions(ChatCompletions):
    """The chat completions of one model of llama.cpp; see Adapter.

    A request whose prompt and answer may exceed the context together is given up before the prompt
    is read; the server itself would cut the answer.
    """

    def __init__(self, target: Target) -> None:
        choice = target.choice
        body = {"return_progress": True, **choice.extra_body}
        choice = choice.model_copy(update={"extra_body": body})
        super().__init__(msgspec.structs.replace(target, choice=choice))
        assert choice.context_tokens is not None
        self._context_tokens = choice.context_tokens
        self._max_tokens_per_request = choice.max_tokens_per_request

    def reader(self, request: ModelRequest, names: ToolNames, on_text: OnText | None) -> Gathering:
        """A reader of one answer; see Adapter.reader."""
        answer_tokens = min(request.max_tokens, self._max_tokens_per_request)
        text = self.text_reader(request, names)
        return _Reader(on_text, text, self._context_tokens, answer_tokens)


class _Reader(Gathering):
    def __init__(
        self,
        on_text: OnText | None,
        text: TextReader | None,
        context_tokens: int,
        answer_tokens: int,
    ) -> None:
        super().__init__(on_text, text=text)
        self._context_tokens, self._answer_tokens = context_tokens, answer_tokens

    def take(self, chunk: Chunk) -> None:
        """Take the next chunk. Raises ContextOverflowError, and as Gathering.take does."""
        super().take(chunk)
        progress = chunk.prompt_progress
        if progress is None:
            return
        # Reading goes on: the timeout between tokens counts from here.
        self.draft.began = True
        if progress.total + self._answer_tokens > self._context_tokens:
            raise ContextOverflowError(
                f"the prompt has {progress.total} tokens and the answer may have"
                f" {self._answer_tokens}, but the context has {self._context_tokens}"
            )
