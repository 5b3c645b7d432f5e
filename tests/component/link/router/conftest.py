"""Logs of handlers that fail on purpose are dropped; who tests logs captures them."""

from collections.abc import Iterator

import pytest
import structlog
from structlog.typing import EventDict, WrappedLogger


def _drop(_logger: WrappedLogger, _name: str, _event: EventDict) -> EventDict:
    raise structlog.DropEvent


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[_drop])
    yield
    structlog.configure(processors=before)
