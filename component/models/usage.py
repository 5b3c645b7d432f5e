"""The usage of a call: the provider's figures if they are plausible, otherwise an estimate."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import structlog

from component.models.answer_limits import CALL_TOKENS, CALL_USD
from component.models.catalog import Prices
from component.models.messages import AnswerPart, Part, ToolCall, text_of
from component.models.protocol import ModelRequest, Usage

_log = structlog.get_logger("component.models")
_SHOWN: Final = 80


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that a provider reports for one call, as in `Usage`; None if it does not report
    them. `usd` is the cost according to the provider.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    usd: float | None = None


class UsageFigures:
    """Reads the figures that a provider gives for one call.

    Values that cannot be a count or a price (negative, not finite, beyond `CALL_TOKENS` or
    `CALL_USD`, a string, an object) are ignored and logged, and an estimate is used.

    `said` is the object `usage` of the answer, decoded; None if there was none.
    """

    def __init__(self, model: str, said: Any) -> None:
        self._model = model
        self._said = said if isinstance(said, dict) else {}
        if said is not None and not isinstance(said, dict):
            self._doubt("usage", said)

    def inside(self, key: str) -> "UsageFigures":
        """The figures of an object inside of this one."""
        return UsageFigures(self._model, self._said.get(key))

    def tokens(self, key: str) -> int | None:
        """Return a count of tokens; None if it is missing or implausible."""
        said = self._figure(key, CALL_TOKENS)
        if said is not None and said != int(said):
            self._doubt(key, said)
            return None
        return None if said is None else int(said)

    def usd(self, key: str) -> float | None:
        """Return a price in US dollars; None if it is missing or implausible."""
        return self._figure(key, CALL_USD)

    def _figure(self, key: str, most: float) -> float | None:
        said = self._said.get(key)
        if said is None or (_is_number(said) and 0 <= said <= most):
            return None if said is None else float(said)
        self._doubt(key, said)
        return None

    def _doubt(self, key: str, said: Any) -> None:
        shown = ascii(said)[:_SHOWN] if _is_scalar(said) else type(said).__name__
        _log.warning(
            "a provider reported an impossible number of tokens; it is replaced by an estimate",
            model=self._model,
            figure=key,
            said=shown,
        )


def later_usage(before: Any, said: Any) -> Any:
    """Return the report of usage after another event of an answer has `said` one.

    All figures are totals, so the largest one counts: some servers end with a report of zeros.
    """
    if said is None:
        return before
    if isinstance(before, dict) and isinstance(said, dict):
        return before | {key: later_usage(before.get(key), one) for key, one in said.items()}
    if _is_number(before) and _is_number(said):
        return max(before, said)
    return said


def with_reasoning(reported: Reported, figures: UsageFigures) -> Reported:
    """Return the report with the reasoning in the tokens of the answer, where some providers do not
    count it: `total_tokens` has it, or there is more reasoning than answer.
    """
    said, total = reported.tokens_out, figures.tokens("total_tokens")
    if said is None:
        return reported
    if reported.reasoning > said:
        said += reported.reasoning
    if total is not None and reported.tokens_in is not None:
        said = max(said, total - reported.tokens_in)
    return msgspec.structs.replace(reported, tokens_out=said)


def _is_number(said: Any) -> bool:
    if isinstance(said, bool):
        return False
    return isinstance(said, int) or (isinstance(said, float) and math.isfinite(said))


def _is_scalar(said: Any) -> bool:
    # The digits of a huge integer take quadratic time, and Python refuses to write them.
    if isinstance(said, int):
        return said.bit_length() < 1000
    return isinstance(said, str | float)


PER_MESSAGE = 8
"""What a message takes beside its text: its role, and where it begins and ends."""


def estimate(text: str) -> int:
    """Rather too many than too few: three letters to a token, each digit one.

    Outside ASCII a token is two bytes, which is one letter of Cyrillic or most of a Chinese one.
    """
    size, data = len(text), text.encode(errors="replace")
    others = len(data) - size
    digits = len(data) - len(data.translate(None, b"0123456789"))
    return digits + math.ceil((size - digits) / 3) + math.ceil(others / 2)


def usage_of(
    request: ModelRequest,
    parts: tuple[AnswerPart, ...],
    reported: Reported,
    prices: Callable[[], Prices],
) -> Usage:
    """The tokens and the cost of an answer of these parts: as the provider reports them, or else
    estimated.

    `prices` is called if the provider does not report the cost; it may block.
    """
    # Some servers report zero tokens for requests and answers that are not empty.
    tokens_in, tokens_out = reported.tokens_in, reported.tokens_out
    own_in = 0 if tokens_in else _tokens_of(request)
    own_out = 0 if tokens_out else estimate(text_of(parts)) + _tokens_of_calls(parts)
    estimated = tokens_in is None or tokens_out is None or own_in + own_out > 0
    tokens_in, tokens_out = tokens_in or own_in, tokens_out or own_out
    read, write = reported.cache_read, reported.cache_write
    cost = reported.usd
    if cost is None:
        cost = prices().cost(tokens_in, tokens_out, read, write)
    return Usage(tokens_in, tokens_out, cost, estimated, read, write, reported.reasoning)


def _tokens_of(request: ModelRequest) -> int:
    messages = [estimate(one.text) + _tokens_of_calls(one.parts) for one in request.messages]
    tools = [
        estimate(tool.name + tool.description) + estimate(bytes(tool.parameters).decode())
        for tool in request.tools
    ]
    counts = messages + tools
    return PER_MESSAGE * len(counts) + sum(counts)


def _tokens_of_calls(parts: Iterable[Part]) -> int:
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return sum(estimate(call.name) + estimate(call.arguments) for call in calls)
