"""Imports of libraries without what they import only if it is installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Make packages look as if they were not installed, to what is imported within the context.

    A package that is imported already stays. No other thread may import one of them meanwhile.
    """
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # the import system knows it (§5.3.1)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
