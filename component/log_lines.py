"""Log lines that nobody outside can lengthen or forge.

Values and exceptions quote what others sent. Each is cut to a length, a line as a whole too, and no
text of an exception can begin a new line.
"""

import sys
import traceback
from typing import Any, Final

from structlog.typing import EventDict, WrappedLogger

MAX_VALUE: Final = 2_000
"""Characters of one value."""
MAX_EXCEPTION: Final = 8_000
"""Characters of an exception with its traceback."""
MAX_LINE: Final = 16_000
"""Characters of all values of one line."""
_FRAMES: Final = 40
"""Frames of a traceback that are shown, the innermost ones: a RecursionError has a thousand."""
_UNSHOWN: Final = "<no repr() of "
_CHAIN: Final = 100
"""Exceptions of one chain or group whose texts are looked at."""
_NESTED: Final = 64
"""Brackets in a value that is passed on as a structure; one with more becomes text."""
_LINES: Final = ("exception", "stack")
"""Keys whose values have several lines."""


def bound(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Processor: cut every value, and the values together, to what a line may hold.

    What a key holds stays of its type unless it has to be cut.
    """
    left = MAX_LINE
    for key, value in event.items():
        text = value if isinstance(value, str) else _repr(value)
        most = min(left, MAX_EXCEPTION if key in _LINES else MAX_VALUE)
        if len(text) > most:
            text = event[key] = shortened(text, most)
        elif text is not value and (not text.isprintable() or _is_odd(text)):
            event[key] = visible(text)
        left = max(0, left - len(text))
    return event


def render_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Processor: write the exception of an event as text, without the values of variables."""
    found = event.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    if isinstance(found, tuple):
        found = found[1]
    if isinstance(found, BaseException):
        event["exception"] = told(found)
    for key in _LINES:
        if key in event:
            event[key] = _lines(str(event[key]))
    return event


def told(error: BaseException) -> str:
    """An exception with its traceback and what caused it; texts of exceptions are one line each."""
    try:
        found = traceback.TracebackException(
            type(error), error, error.__traceback__, limit=-_FRAMES, compact=True
        )
        _flatten(found)
        return "".join(found.format()).rstrip("\n")
    except Exception as fault:  # noqa: BLE001 - a text that cannot be made must not end the service
        return f"{type(error).__qualname__} (it cannot be shown: {type(fault).__qualname__})"


def _flatten(found: traceback.TracebackException) -> None:
    waiting = [found]
    for _ in range(_CHAIN):
        if not waiting:
            return
        one: Any = waiting.pop()
        # It has no public name, and how it is written is no option; `_lines` holds without it too.
        one._str = shortened(visible(one._str or ""), MAX_VALUE)  # noqa: SLF001 - see above
        one.__notes__ = [
            shortened(visible(str(note)), MAX_VALUE) for note in one.__notes__ or ()
        ] or None
        waiting += [each for each in (one.__cause__, one.__context__) if each is not None]
        waiting += one.exceptions or ()


def _lines(text: str) -> str:
    """Several lines, all but the first indented: none of them looks like a line of the log."""
    first, *more = text.split("\n")
    return "\n".join([visible(first), *(f"  {visible(line)}" for line in more)])


def visible(text: str) -> str:
    """``text`` with everything that is not printable written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, most: int) -> str:
    """``text`` of at most `most` characters: the middle is left out, and the whole length said."""
    if len(text) <= most:
        return text
    mark = f" …[{len(text)} characters]… "
    keep = most - len(mark)
    if keep <= 0:
        return "…"[:most]
    tail = keep // 3
    return text[: keep - tail] + mark + text[len(text) - tail :]


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as fault:  # noqa: BLE001 - its class may raise anything, or nest too deeply
        return f"{_UNSHOWN}{type(value).__qualname__}: {type(fault).__qualname__}>"


def _is_odd(text: str) -> bool:
    """Whether what has this `repr` could be more than JSON can be made of."""
    return text.startswith(_UNSHOWN) or sum(map(text.count, "[{(")) > _NESTED
