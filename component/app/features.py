"""The features of the service. Each has a folder in `component/features/`, and a line here."""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from component.settings.model import Settings, with_sections
from component.settings.sections import Top

if TYPE_CHECKING:
    from component.features.feature import Feature

FEATURES: Final = (
    "service_commands",
    "announcements",
    "apis",
    "builtins",
    "installed_skills",
    "mcp",
    "proposals",
    "workers",
    "task_commands",
    "conversation_commands",
    "personas",
    "agents_admin",
    "memory_commands",
    "discovery",
    "memory_nodes",
    "notifications",
    "presence",
    "schedules",
    "tasks_iq",
    "watches",
    "webhooks",
    "metrics",
    "audit_log",
    "adhoc",
    "questions",
    "chat",
    "command_line",
    "pubsub",  # the last: it answers for every node that no other one has
)
"""The names of the folders, in the order in which the features are opened."""


@cache
def settings_model() -> type[Settings]:
    """Return the class of the settings, with the sections of all features."""
    modules = [module for name in FEATURES if (module := _settings_of(name)) is not None]
    sections: Iterator[Top[Any]] = (
        section for module in modules for section in getattr(module, "SECTIONS", ())
    )
    checks, described = (
        [getattr(module, name) for module in modules if hasattr(module, name)]
        for name in ("check", "described_sources")
    )
    return with_sections(sections, checks, described)


def make_features(settings: Settings) -> "Sequence[Feature]":
    """Return the features that a service with these settings uses."""
    return [
        import_module(f"component.features.{name}.feature").FEATURE(settings)
        for name in FEATURES
        if _is_used(name, settings)
    ]


def _is_used(feature: str, settings: Settings) -> bool:
    """Whether the settings turn a feature on; its code is not imported otherwise."""
    is_used = getattr(_settings_of(feature), "is_used", None)
    return is_used is None or bool(is_used(settings))


@cache
def _settings_of(feature: str) -> ModuleType | None:
    """Return the module `settings` of a feature; None if it has none."""
    name = f"component.features.{feature}.settings"
    return None if find_spec(name) is None else import_module(name)
