"""Logs: one line for each event, on stderr, for people on a terminal and in the journal of systemd,
and as JSON otherwise.

Packages log through structlog: `log = structlog.get_logger("component.connection")`, then
`log.info("connected", host=host)`. What libraries send to the standard `logging` is written in the
same way.

Values and exceptions quote what others have sent, so nobody outside can lengthen or forge a line:
each value is cut to a length, a line as a whole too, and no text of an exception begins a new line.
"""

import logging
import os
import sys
import traceback
from typing import Any, Final, Literal, TextIO

from pydantic import SecretStr

from component.imports import later, without
from component.journal import is_journal

# structlog imports these where they are installed, and Pygments with rich, for thread-local
# contexts and for tracebacks that are not used here: 6 MB, and a tenth of the time to start. Its
# coroutines, which use asyncio, are not called here.
with without("rich", "greenlet"), later("asyncio"):
    import structlog

from structlog.typing import EventDict, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "human", "json"]

_MASK = "**********"
_CHATTY = (
    "httpx2",
    "procrastinate",
)  # log every request and job at level info; callers log outcomes
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
_PRIORITIES: Final = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
"""The priorities of syslog (syslog(3)), by levels."""
_SECRET_KEYS = ("secret", "password", "token", "api_key", "authorization")


def configure(
    level: Level = "info",
    format: Format = "auto",  # noqa: A002 named like the key in [log]
    stream: TextIO | None = None,
) -> None:
    """Send the logs of the whole process to `stream` (stderr unless given).

    `format` "auto" is "human" on a terminal and in the journal, "json" otherwise. Colours appear on
    a terminal only, and not under NO_COLOR. The journal gets each event as one line that begins
    with its priority (sd-daemon(3)), without a time, because it records one itself. Can be called
    again; the last call counts.
    """
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    journal = is_journal(stream)
    human = format == "human" or (format == "auto" and (terminal or journal))
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    number = logging.getLevelNamesMapping()[level.upper()]

    stamp = "%Y-%m-%d %H:%M:%S" if human else "iso"
    time = [] if journal else [structlog.processors.TimeStamper(fmt=stamp, utc=not human)]
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        *time,
        structlog.processors.StackInfoRenderer(),
        _hide_secrets,
    ]
    *last, render = _human(colours=colours) if human else _json()
    last.append(_for_journal(render) if journal else render)
    structlog.configure(
        processors=[*before, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda name="component": _NamedLogger(stream, name),
        # A cached logger would continue to write to the stream of an earlier call.
        cache_logger_on_first_use=False,
    )

    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(
            number if level == "debug" else max(number, logging.WARNING)
        )


class _NamedLogger(structlog.WriteLogger):
    """Writes each event as a line to the stream; has a name like loggers of the standard
    library.
    """

    def __init__(self, stream: TextIO, name: str) -> None:
        super().__init__(stream)
        self.name = name


def _human(*, colours: bool) -> list[Processor]:
    renderer = structlog.dev.ConsoleRenderer(
        0,  # columns between event and logger: padding would make most lines too long
        colors=colours,
        # Quoted, because values come from the network: no line breaks, no terminal escapes.
        repr_native_str=True,
        # Exceptions are already text. The default would show local variables, including secrets.
        exception_formatter=structlog.dev.plain_traceback,
    )
    return [render_exception, bound, _printable, renderer]


def _json() -> list[Processor]:
    return [render_exception, bound, structlog.processors.JSONRenderer()]


def _for_journal(render: Any) -> Processor:
    """Return a renderer of one line with the priority of the event before it."""

    def rendered(logger: WrappedLogger, method: str, event: EventDict) -> str:
        priority = _PRIORITIES.get(str(event.get("level")), _PRIORITIES["info"])
        lines = str(render(logger, method, event)).split("\n")
        return f"<{priority}>{' | '.join(map(str.strip, lines))}"

    return rendered


def _printable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["event"] = visible(str(event.get("event", "")))
    return event


def _hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, SecretStr) or key.lower().endswith(_SECRET_KEYS):
            event[key] = _MASK
    return event


def bound(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut every value, and all values together, to what a line may have; a structlog processor.

    A value keeps its type unless it has to be cut.
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
    """Write the exception of an event as text, without values; a structlog processor."""
    found = event.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    if isinstance(found, tuple):
        found = found[1]
    if isinstance(found, BaseException):
        event["exception"] = exception_text(found)
    for key in _LINES:
        if key in event:
            event[key] = _lines(str(event[key]))
    return event


def exception_text(error: BaseException) -> str:
    """Return an exception with its traceback and cause; its texts are one line each."""
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
    """Indent all lines but the first, so that none of them looks like a line of the log."""
    first, *more = text.split("\n")
    return "\n".join([visible(first), *(f"  {visible(line)}" for line in more)])


def visible(text: str) -> str:
    """Return a text with everything that is not printable written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text: the middle is replaced by the length of all."""
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
    """Whether a value with this `repr` may be one that JSON cannot represent."""
    return text.startswith(_UNSHOWN) or sum(map(text.count, "[{(")) > _NESTED
