"""The request to a model: instructions, history and tools within the tokens there are."""

from typing import Final

import msgspec

from component.agent import history, overflow
from component.agent.run import Run
from component.models.protocol import ChatMessage, Model, ModelRequest

_LEAST_ANSWER: Final = 64
_LEAST_RESULT: Final = 50


class Room(msgspec.Struct, frozen=True):
    """How many tokens there are: for earlier messages, for an answer, for a tool's result."""

    history_tokens: int
    max_tokens: int
    result_tokens: int

    @property
    def read_tokens(self) -> int:
        """How much of a session is read: more than is shown, to notice that it is too much."""
        return 2 * self.history_tokens

    def answer(self, model: Model) -> int:
        """For an answer of this model; half of a small context is for the question."""
        return min(self.max_tokens, max(_LEAST_ANSWER, model.context_tokens // 2))

    def earlier(self, model: Model) -> int:
        """For messages of earlier turns."""
        return min(self.history_tokens, (model.context_tokens - self.answer(model)) // 2)


class Asked(msgspec.Struct, frozen=True):
    """A request, and about how many tokens it has."""

    request: ModelRequest
    tokens: int


def request(run: Run, room: Room) -> Asked:
    """Make the request for the next call of the model.

    With each time that the model said it was too long there is half of the room for the history,
    and less for the results of tools.
    """
    model, count = run.model, run.model.tokens
    tools = () if run.closing else run.toolbox.tools
    before = ChatMessage("system", run.instructions())
    after = run.notes()
    answer = min(room.answer(model), run.ask.profile.max_tokens or room.max_tokens)
    fixed = sum(history.tokens_of(one, count) for one in (before, *after))
    # A schema is mostly punctuation: three characters a token are rather too few.
    fixed += sum(len(t.name) + len(t.description) + len(t.parameters) for t in tools) // 3
    view = run.view(max(_LEAST_RESULT, room.result_tokens >> 2 * run.pressure))
    blocks = history.blocks(run.journal.shown(), view, run.journal.summary)
    there = max(0, model.context_tokens - answer - fixed) >> run.pressure
    shown = overflow.fitted(blocks, there, room.earlier(model) >> run.pressure)
    for block in shown:
        run.taints |= block.taints
    messages = (before, *(one for block in shown for one in block.messages), *after)
    return Asked(
        ModelRequest(
            messages=messages,
            tools=tools,
            max_tokens=answer,
            temperature=run.ask.profile.temperature,
        ),
        fixed + sum(block.tokens for block in shown),
    )
