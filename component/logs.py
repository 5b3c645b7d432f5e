"""Logs: one line an event, on stderr, for people on a terminal and as JSON otherwise.

Rooms log through structlog: `log = structlog.get_logger("component.connection")`, then
`log.info("connected", host=host)`. What libraries send to the standard `logging` leaves by the
same way. No line is longer than `component.log_lines` allows, and none can be forged.
"""

import logging
import os
import sys
from typing import Literal, TextIO

from pydantic import SecretStr

from component.imports import without

# structlog imports these where they are installed, and Pygments with rich, for thread-local
# contexts and for tracebacks that are not used here: 6 MB, and a tenth of the time to start.
with without("rich", "greenlet"):
    import structlog

from structlog.typing import EventDict, Processor, WrappedLogger

from component.log_lines import bound, render_exception, visible

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "human", "json"]

_MASK = "**********"
_CHATTY = (
    "httpx2",
    "procrastinate",
)  # log every request and job at level info; callers log outcomes
_SECRET_KEYS = ("secret", "password", "token", "api_key", "authorization")


def configure(
    level: Level = "info",
    format: Format = "auto",  # noqa: A002 named like the key in [log]
    stream: TextIO | None = None,
) -> None:
    """Send the logs of the whole process to `stream` (stderr unless given).

    `format` "auto" is "human" on a terminal, "json" otherwise. Colours appear on a terminal only,
    and not under NO_COLOR. Can be called again; the last call counts.
    """
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    human = format == "human" or (format == "auto" and terminal)
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    number = logging.getLevelNamesMapping()[level.upper()]

    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(
            fmt="%Y-%m-%d %H:%M:%S" if human else "iso", utc=not human
        ),
        structlog.processors.StackInfoRenderer(),
        _hide_secrets,
    ]
    last = _human(colours=colours) if human else _json()
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


def _printable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["event"] = visible(str(event.get("event", "")))
    return event


def _hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, SecretStr) or key.lower().endswith(_SECRET_KEYS):
            event[key] = _MASK
    return event
