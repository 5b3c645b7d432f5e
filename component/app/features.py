"""The features of the service. Each has a folder in `component/features/`, and a line here."""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from component.settings.model import Settings, with_sections
from component.settings.sections import Top

if TYPE_CHECKING:
    from component.features.feature import Feature

FEATURES: Final = ("schedules", "watches")
"""The names of the folders, in the order in which the features are opened."""


@cache
def settings_model() -> type[Settings]:
    """Return the class of the settings, with the sections of all features."""
    modules = [_module(name, "settings") for name in FEATURES]
    sections: Iterator[Top[Any]] = (section for module in modules for section in module.SECTIONS)
    return with_sections(sections, [module.check for module in modules])


def make_features(settings: Settings) -> "Sequence[Feature]":
    """Return the features of a service with these settings."""
    return [_module(name, "feature").FEATURE(settings) for name in FEATURES]


def _module(feature: str, name: str) -> ModuleType:
    return import_module(f"component.features.{feature}.{name}")
