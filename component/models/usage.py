"""What a call took: the provider's figures where they can be true, an estimate where not."""

import math
from typing import Any, Final

import structlog

from component.models.answer_limits import CALL_TOKENS, CALL_USD

_log = structlog.get_logger("component.models")
_SHOWN: Final = 80


class Figures:
    """Reads the figures that a provider gives for one call.

    Whatever cannot be a count or a price (negative, not finite, beyond `CALL_TOKENS` or `CALL_USD`,
    a text, an object) is left out and logged: an estimate stands in for it.

    Args:
        model: names the model in the log.
        said: the object `usage` of the answer, decoded; None if there was none.
    """

    def __init__(self, model: str, said: Any) -> None:
        self._model = model
        self._said = said if isinstance(said, dict) else {}
        if said is not None and not isinstance(said, dict):
            self._doubt("usage", said)

    def tokens(self, key: str) -> int | None:
        """A count of tokens, or None if it is not told or cannot be true."""
        said = self._said.get(key)
        if said is None:
            return None
        if _is_number(said) and 0 <= said <= CALL_TOKENS and said == int(said):
            return int(said)
        self._doubt(key, said)
        return None

    def usd(self, key: str) -> float | None:
        """A price in US dollars, or None if it is not told or cannot be true."""
        said = self._said.get(key)
        if said is None:
            return None
        if _is_number(said) and 0 <= said <= CALL_USD:
            return float(said)
        self._doubt(key, said)
        return None

    def _doubt(self, key: str, said: Any) -> None:
        shown = ascii(said)[:_SHOWN] if _is_scalar(said) else type(said).__name__
        _log.warning(
            "a provider's figure cannot be true and is replaced by an estimate",
            model=self._model,
            figure=key,
            said=shown,
        )


def _is_number(said: Any) -> bool:
    if isinstance(said, bool):
        return False
    return isinstance(said, int) or (isinstance(said, float) and math.isfinite(said))


def _is_scalar(said: Any) -> bool:
    # The digits of a huge integer take quadratic time, and Python refuses to write them.
    if isinstance(said, int):
        return said.bit_length() < 1000
    return isinstance(said, str | float)
