"""How the tests log."""

import structlog


def plain_logs() -> None:
    """Log with plain tracebacks: the default ones of structlog take nearly a second each."""
    renderer = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.reset_defaults()
    structlog.configure(processors=[structlog.processors.add_log_level, renderer])
