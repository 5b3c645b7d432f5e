"""Asks a model on behalf of a skill: one question, one answer that fits a JSON Schema, no tools."""

import re
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from component.agent import history
from component.agent.model_call import ModelCalls, NoInterrupts
from component.budget.protocol import BudgetExceededError, Spender
from component.models.building import only
from component.models.messages import ModelMessage, text_message
from component.models.protocol import (
    ContextOverflowError,
    Model,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
)
from component.skills.errors import printable
from component.skills.model_answers import ModelFailed, ModelQuestion
from xep.jid import JID

_log = structlog.get_logger("component.agent")

_INSTRUCTIONS: Final = "Answer with JSON that fits the schema you are given, and with nothing else."
_AGAIN: Final = "That does not fit the schema: {reason}. Answer again, with fitting JSON only."
_ATTEMPTS: Final = 2
_LONGEST_REASON: Final = 300
_MARKED: Final = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)
"""JSON in a block of Markdown, as models without constrained output write it."""


class SkillModel:
    """Asks the models of agents for skills.

    Args:
        model: returns the model that an agent uses for a principal. Raises StorageError.
        calls: calls models, charges budgets, and records calls.
    """

    def __init__(self, model: Callable[[str, JID], Awaitable[Model]], calls: ModelCalls) -> None:
        self._model = model
        self._calls = calls

    async def ask(self, spender: Spender, question: ModelQuestion) -> str:
        """Ask the model of the topmost agent of the spender, and return an answer that the check
        of the question accepts.

        If the check rejects the answer, the model is asked once more. Raises ModelFailed and
        StorageError.
        """
        model = await self._model(spender.agents[-1].partition("/")[0], spender.principal)
        if question.model:
            wanted = only(model, question.model)
            if wanted is None:
                raise ModelFailed(
                    "refused",
                    f"The skill may ask the model {question.model} only, and the agent uses"
                    f" {model.name}.",
                )
            model = wanted
        messages = [
            text_message("system", _INSTRUCTIONS),
            text_message("user", question.prompt),
        ]
        reason = ""
        for _ in range(_ATTEMPTS):
            text = await self._asked(model, spender, question, messages)
            marked = _MARKED.fullmatch(text)
            answer = marked[1] if marked else text
            try:
                question.check(answer)
            except (ValueError, RecursionError) as error:
                reason = printable(str(error), _LONGEST_REASON)
            else:
                return answer
            messages += [
                text_message("assistant", text or "{}"),
                text_message("user", _AGAIN.format(reason=reason)),
            ]
        raise ModelFailed("invalid", f"The model's answer does not fit the schema: {reason}")

    async def _asked(
        self,
        model: Model,
        spender: Spender,
        question: ModelQuestion,
        messages: list[ModelMessage],
    ) -> str:
        request = ModelRequest(
            messages=tuple(messages),
            max_tokens=min(question.max_tokens, max(1, model.context_tokens // 2)),
            schema=question.schema,
        )
        tokens_in = sum(history.tokens_of(one, model.tokens) for one in messages)
        try:
            completion = await self._calls.ask(model, request, tokens_in, spender, NoInterrupts())
        except BudgetExceededError as error:
            raise ModelFailed("budget", str(error)) from None
        except ModelUnavailableError as error:
            _log.warning("no model is available for a skill", reason=str(error))
            raise ModelFailed("unavailable", "No language model is available now.") from None
        except ContextOverflowError:
            raise ModelFailed("refused", "The question is too long for the model.") from None
        except ModelRefusedError as error:
            _log.error("the model refuses what a skill asks", reason=str(error))
            raise ModelFailed("refused", "The language model rejects the request.") from None
        return "" if completion is None else completion.text
