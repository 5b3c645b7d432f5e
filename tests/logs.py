"""How the tests log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


def plain_logs() -> None:
    """Log with plain tracebacks: the default ones of structlog take nearly a second each."""
    renderer = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.reset_defaults()
    structlog.configure(processors=[structlog.processors.add_log_level, renderer])


@contextmanager
def restored_logs() -> Iterator[None]:
    """Give the root logger back its handlers and its level at the end, and log plainly again.

    Commands send the logs of the process to their own stderr, which is gone when they end.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:], root.level = handlers, level
        plain_logs()
