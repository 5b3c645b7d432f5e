"""Builds the request to a model: instructions, history and tools within its context."""

from collections.abc import Sequence
from typing import Final

import msgspec

from component.agent import history, overflow
from component.agent.history import Block
from component.agent.run import Run
from component.models.messages import text_message
from component.models.protocol import Model, ModelRequest, Tool

_LEAST_ANSWER: Final = 64
_LEAST_RESULT: Final = 50
_MUCH: Final = 2000
"""Tokens of instructions and tools below which a model never refuses them alone as too long."""


class TokenBudget(msgspec.Struct, frozen=True):
    """The maximum number of tokens of earlier messages, of an answer, and of a tool's result."""

    history_tokens: int
    max_tokens: int
    result_tokens: int

    def read(self, model: Model) -> int:
        """For reading a session: everything that the prompt could have of it."""
        return max(2 * self.history_tokens, model.context_tokens)

    def answer(self, model: Model) -> int:
        """For an answer of this model; half of a small context is reserved for the question."""
        return min(self.max_tokens, max(_LEAST_ANSWER, model.context_tokens // 2))

    def earlier(self, model: Model) -> int:
        """For messages of earlier turns."""
        return min(self.history_tokens, (model.context_tokens - self.answer(model)) // 2)

    def result(self, model: Model, calls: int = 1) -> int:
        """For each result of so many calls, which together take half of the context."""
        fitting = (model.context_tokens - self.answer(model)) // 2 // calls
        return max(_LEAST_RESULT, min(self.result_tokens, fitting))


class BuiltPrompt(msgspec.Struct, frozen=True):
    """A request to a model, and its approximate number of tokens; `fixed` are those of the
    instructions and the tools.
    """

    request: ModelRequest
    tokens: int
    fixed: int

    @property
    def is_mostly_fixed(self) -> bool:
        """Whether a shorter conversation would not make it noticeably shorter."""
        return self.fixed > _MUCH and (self.tokens - self.fixed) * 10 < self.tokens


class _Frame(msgspec.Struct, frozen=True):
    """The parts of a prompt around the conversation, and the tokens left for the conversation."""

    tools: tuple[Tool, ...]
    answer: int
    fixed: int
    left: int


def conversation(run: Run, budget: TokenBudget) -> tuple[list[Block], int]:
    """Return the blocks of the conversation, and how many tokens of them fit into the prompt."""
    view = run.view(budget.result(run.model))
    blocks = history.blocks(run.journal.shown(), view, run.journal.summary)
    return blocks, _frame(run, budget).left


def build_prompt(run: Run, budget: TokenBudget) -> BuiltPrompt:
    """Make the request for the next call of the model.

    It begins with the previous request, unless lines were summarised in the meantime.
    """
    frame = _frame(run, budget)
    blocks, _ = conversation(run, budget)
    shown = overflow.fitted(blocks, frame.left, run.journal.left_out, run.model.tokens)
    for block in shown:
        run.taints |= block.taints
    messages = (
        text_message("system", run.instructions()),
        *(one for block in shown for one in block.messages),
        *run.notes(),
    )
    return BuiltPrompt(
        ModelRequest(
            messages=messages,
            tools=frame.tools,
            tool_choice="none" if run.closing else "auto",
            max_tokens=frame.answer,
            temperature=run.ask.profile.temperature,
        ),
        frame.fixed + sum(block.tokens for block in shown),
        frame.fixed,
    )


def _frame(run: Run, budget: TokenBudget) -> _Frame:
    model = run.model
    answer = min(budget.answer(model), run.ask.profile.max_tokens or budget.max_tokens)
    tools = _fitting(run.toolbox.tools, model.context_tokens - answer)
    around = (text_message("system", run.instructions()), *run.notes())
    fixed = sum(history.tokens_of(one, model.tokens) for one in around) + _tokens_of(tools)
    left = max(0, model.context_tokens - answer - fixed)
    return _Frame(tools, answer, fixed, left if run.most is None else min(left, run.most))


def _fitting(tools: tuple[Tool, ...], tokens: int) -> tuple[Tool, ...]:
    """Return the tools; without the optional ones if all take more than half of the tokens."""
    if _tokens_of(tools) <= tokens // 2:
        return tools
    return tuple([tool for tool in tools if not tool.optional])


def _tokens_of(tools: Sequence[Tool]) -> int:
    # Schemas are mostly punctuation, so three characters per token is a cautious estimate.
    return sum(len(t.name) + len(t.description) + len(t.parameters) for t in tools) // 3
