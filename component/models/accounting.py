"""What an answer has cost: as the provider reports it, or else estimated."""

from collections.abc import Callable

from component.models.catalog import Prices
from component.models.messages import AnswerPart, text_of
from component.models.protocol import Completion, ModelRequest, Usage
from component.models.token_estimate import PER_MESSAGE, estimate
from component.models.usage import Reported


def usage_of(
    request: ModelRequest,
    parts: tuple[AnswerPart, ...],
    reported: Reported,
    prices: Callable[[], Prices],
) -> Usage:
    """The tokens and the cost of an answer of these parts.

    `prices` is called if the provider does not report the cost; it may block.
    """
    # Some servers report zero tokens for requests and answers that are not empty.
    tokens_in, tokens_out = reported.tokens_in, reported.tokens_out
    own_in = 0 if tokens_in else _tokens_of(request)
    own_out = 0 if tokens_out else _tokens_of_answer(parts)
    estimated = tokens_in is None or tokens_out is None or own_in + own_out > 0
    tokens_in, tokens_out = tokens_in or own_in, tokens_out or own_out
    cost = reported.usd
    if cost is None:
        cost = prices().cost(tokens_in, tokens_out, reported.cache_read, reported.cache_write)
    return Usage(
        tokens_in,
        tokens_out,
        cost,
        estimated,
        reported.cache_read,
        reported.cache_write,
        reported.reasoning,
    )


def _tokens_of(request: ModelRequest) -> int:
    tokens = 0
    for message in request.messages:
        tokens += PER_MESSAGE + estimate(message.text)
        tokens += sum(estimate(call.name) + estimate(call.arguments) for call in message.tool_calls)
    for tool in request.tools:
        tokens += PER_MESSAGE + estimate(tool.name + tool.description)
        tokens += estimate(bytes(tool.parameters).decode())
    return tokens


def _tokens_of_answer(parts: tuple[AnswerPart, ...]) -> int:
    calls = Completion(parts=parts).tool_calls
    return estimate(text_of(parts)) + sum(
        estimate(call.name) + estimate(call.arguments) for call in calls
    )
