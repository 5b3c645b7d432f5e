"""Imports of libraries without what they import and do not need here."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


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


def without_plugins_of_pydantic() -> None:
    """Let pydantic not look for plugins, none of which is for settings, in the metadata of all
    installed packages: that would take a fiftieth of the time to start.
    """
    loader = ModuleType("pydantic.plugin._loader")
    vars(loader)["get_plugins"] = tuple
    sys.modules.setdefault(loader.__name__, loader)


@contextmanager
def later(name: str) -> Iterator[None]:
    """Give what is imported within the context a module that is imported when it is first used.

    A module that is imported already stays. No other thread may import it meanwhile.
    """
    if name in sys.modules:
        yield
        return
    module = ModuleType(name)

    def used(attribute: str) -> Any:
        if sys.modules.get(name) is module:
            raise AttributeError(attribute)  # used within the context
        return getattr(import_module(name), attribute)

    vars(module)["__getattr__"] = used  # for names that the module does not have (PEP 562)
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]
