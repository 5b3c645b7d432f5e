"""Sizes and prices of known models, from the package genai-prices, which has them offline.

Its data takes 0.3 seconds of processor time and 75 MB of memory, so it is loaded by a child process
that ends afterwards: `python -m component.models.price_list` reads questions on standard input and
writes the results.
"""

import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from component import system

_log = structlog.get_logger("component.models")
_TIMEOUT_S: Final = 60.0


class PriceQuestion(msgspec.Struct, frozen=True):
    """A model by its name, and its provider: by name, or by the URL of its API."""

    model: str
    provider: str = ""
    url: str = ""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Size and prices of a model. Prices are US dollars per million tokens; None if unknown.

    If long prompts cost more, `context_tokens` is the length up to which they do not.
    """

    context_tokens: int | None = None
    usd_in: float | None = None
    usd_out: float | None = None
    usd_cache_read: float | None = None
    usd_cache_write: float | None = None


def look_up_prices(questions: Sequence[PriceQuestion]) -> list[Listed | None]:
    """Look the models up, in a child process. Blocks; if the process fails, nothing is known."""
    if not questions:
        return []
    try:
        child = subprocess.run(  # noqa: S603 - this module
            [sys.executable, "-m", __name__],
            input=msgspec.json.encode(questions),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        return msgspec.json.decode(child.stdout, type=list[Listed | None])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        _log.warning("prices and sizes of models cannot be looked up", reason=str(error))
        return [None] * len(questions)


def find_prices(question: PriceQuestion, now: datetime) -> Listed | None:
    """Look a model up in this process; `now` decides between prices that change over time."""
    from genai_prices import data_snapshot  # noqa: PLC0415 - see above

    try:
        _, model = data_snapshot.get_snapshot().find_provider_model(
            question.model.removesuffix("-latest"),
            None,
            question.provider or None,
            question.url or None,
        )
    except LookupError:
        return None
    prices = model.get_prices(now)
    sizes = [
        tier.start
        for price in (prices.input_mtok, prices.output_mtok)
        for tier in getattr(price, "tiers", ())
    ]
    sizes += [model.context_window] if model.context_window else []
    return Listed(
        context_tokens=min(sizes, default=None),
        usd_in=_usd(prices.input_mtok),
        usd_out=_usd(prices.output_mtok),
        usd_cache_read=_usd(prices.cache_read_mtok),
        usd_cache_write=_usd(prices.cache_write_mtok),
    )


def _usd(price: Any) -> float | None:
    base = getattr(price, "base", price)
    return None if base is None else float(base)


def _main() -> None:
    now = system.now()
    questions = msgspec.json.decode(sys.stdin.buffer.read(), type=list[PriceQuestion])
    sys.stdout.buffer.write(msgspec.json.encode([find_prices(each, now) for each in questions]))


if __name__ == "__main__":
    _main()
