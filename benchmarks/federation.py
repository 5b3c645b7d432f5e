"""Measures work with agents on other servers: calls over real links, and a thousand peers."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import federation_calls, federation_peers
from benchmarks.report import Line


def measure(runs: int) -> Iterator[Line]:
    """Yield the lines of both."""
    yield from federation_calls.measure(runs)
    yield from federation_peers.measure(runs)
