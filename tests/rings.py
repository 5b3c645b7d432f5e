"""The ring of each test, and what a ring repeats it on. CONTRIBUTING.md says which test goes where.

A test is in one ring:

- `pure`: no event loop and no clock.
- `in_process`: on trio and SQLite.
- `ports`: on both event loops and both databases. Modules that touch sockets, threads, processes or
  rows have this marker.
- `servers`: real servers and processes. Tests whose subject differs between XMPP servers also have
  the marker `both_servers`; all others run on Prosody.
- `thorough`: campaigns and figures, which only `make thorough` runs.

The first two need no marker. A thorough run repeats every test on everything.
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.profiles import THOROUGH

RINGS: Final = ("pure", "in_process", "ports", "servers", "thorough")
_PAIRS: Final = (("trio", "sqlite"), ("asyncio", "postgresql"))
_ALL_PAIRS: Final = tuple(
    (loop, data) for loop in ("trio", "asyncio") for data in ("sqlite", "postgresql")
)


def repeat(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with the event loops, databases and XMPP servers of its ring."""
    test = metafunc.definition
    if THOROUGH or test.get_closest_marker("ports"):
        loops = "anyio_backend" in metafunc.fixturenames and not _has_own_loop(metafunc)
        databases = "database_kind" in metafunc.fixturenames
        if loops and databases:
            pairs = _ALL_PAIRS if THOROUGH else _PAIRS
            _parametrize(metafunc, ("anyio_backend", "database_kind"), pairs)
        elif loops:
            _parametrize(metafunc, "anyio_backend", ("trio", "asyncio"))
        elif databases:
            _parametrize(metafunc, "database_kind", ("sqlite", "postgresql"))
    both = THOROUGH or test.get_closest_marker("both_servers")
    if both and "server_kind" in metafunc.fixturenames:
        _parametrize(metafunc, "server_kind", ("ejabberd", "prosody"), "session")


def mark(items: list[pytest.Item]) -> None:
    """Mark each test with its ring. Raises UsageError if a test is in two."""
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        marked = [name for name in RINGS if name in markers]
        if "thorough" in marked:
            continue
        if len(marked) > 1:
            raise pytest.UsageError(f"{item.nodeid} is in the rings {' and '.join(marked)}")
        if not marked:
            waits = "anyio_backend" in getattr(item, "fixturenames", ())
            item.add_marker("in_process" if waits else "pure")


def without_thorough(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect thorough tests, unless this is a thorough run or the command names the test."""
    if THOROUGH:
        return
    named = tuple(
        Path(os.path.relpath(config.invocation_params.dir / file, config.rootpath)).as_posix()
        + "::"
        + test
        for file, _, test in (argument.partition("::") for argument in config.args)
        if test
    )
    left_out = [
        item
        for item in items
        if item.get_closest_marker("thorough") and not item.nodeid.startswith(named)
    ]
    config.hook.pytest_deselected(items=left_out)
    thorough = set(left_out)
    items[:] = [item for item in items if item not in thorough]


def _has_own_loop(metafunc: pytest.Metafunc) -> bool:
    """Whether a test or its module names the event loop it runs on."""
    named = (mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    return "anyio_backend" in named or hasattr(metafunc.module, "anyio_backend")


def _parametrize(
    metafunc: pytest.Metafunc,
    names: str | tuple[str, ...],
    values: tuple[object, ...],
    scope: str = "module",
) -> None:
    metafunc.parametrize(names, values, indirect=True, scope=scope)  # type: ignore[arg-type]
