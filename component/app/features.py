"""The features of the service: each has a folder in `component/features/`, and a line here.

The settings have the sections of all features.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from component.config import load as load_file
from component.config.model import Settings, with_sections
from component.config.sections import Top

if TYPE_CHECKING:
    from component.config.describe import Table
    from component.features.feature import Feature
    from component.skills import Registry
    from component.store import Storage

FEATURES: Final = (
    "service_commands",
    "announcements",
    "apis",
    "builtins",
    "files",
    "installed_skills",
    "mcp",
    "peers",
    "proposals",
    "workers",
    "task_commands",
    "standing_approvals",
    "conversation_commands",
    "personas",
    "agents_admin",
    "memory_commands",
    "discovery",
    "memory_nodes",
    "notifications",
    "objects",
    "inbox",
    "presence",
    "plans",
    "schedules",
    "tasks_iq",
    "watches",
    "webhooks",
    "shared_files",
    "http_listener",
    "metrics",
    "audit_log",
    "balancing",
    "adhoc",
    "questions",
    "rooms",
    "chat",
    "command_line",
    "pubsub",  # the last: it answers for every node that no other one has
)
"""The names of the folders, in the order in which the features are opened."""


def settings_model(names: Collection[str] | None = None) -> type[Settings]:
    """Return the class of the settings, with the sections of all features. With `names`, those of
    features that none of these turns on are left out.
    """
    if names is None:
        return _model_of(FEATURES)
    return _model_of(tuple(name for name in FEATURES if _needed_for(name, names)))


@cache
def _model_of(features: tuple[str, ...]) -> type[Settings]:
    modules = [module for name in features if (module := _settings_of(name)) is not None]
    sections: Iterator[Top[Any]] = (
        section for module in modules for section in getattr(module, "SECTIONS", ())
    )
    checks, described = (
        [getattr(module, name) for module in modules if hasattr(module, name)]
        for name in ("check", "described_sources")
    )
    return with_sections(sections, checks, described)


def _needed_for(feature: str, names: Collection[str]) -> bool:
    """Whether one of these sections turns a feature on, or it is on without one."""
    turned_on_by = getattr(_package(feature), "TURNED_ON_BY", None)
    return turned_on_by is None or any(name in names for name in turned_on_by)


def _package(feature: str) -> ModuleType:
    return import_module(f"component.features.{feature}")


def make_features(settings: Settings, also: Collection[str] = ()) -> "Mapping[str, Feature]":
    """Return the features that a service with these settings uses, by name and in order, and `also`
    those with these names.
    """
    return {
        name: import_module(f"component.features.{name}.feature").FEATURE(settings)
        for name in FEATURES
        if name in also or _is_used(name, settings)
    }


async def unfinished(storage: "Storage") -> Collection[str]:
    """Return the features that have work to end, although the settings may not turn them on any
    more. Raises StorageError.
    """
    known = {name: getattr(rows_of(name), "is_unfinished", None) for name in FEATURES}
    return await storage.read(
        lambda db: [name for name, check in known.items() if check is not None and check(db)]
    )


def rows_of(feature: str) -> ModuleType | None:
    """Return the module `rows` of a feature; None if it has none."""
    name = f"component.features.{feature}.rows"
    return None if find_spec(name) is None else import_module(name)


def sections_of(feature: str) -> Sequence[str]:
    """Return the names of the sections that a feature declares."""
    return [section.name for section in getattr(_settings_of(feature), "SECTIONS", ())]


def _is_used(feature: str, settings: Settings) -> bool:
    """Whether the settings turn a feature on; its code is not imported otherwise."""
    package = _package(feature)
    if hasattr(package, "is_used"):
        return bool(package.is_used(settings))
    given = [name for name in type(settings).model_fields if getattr(settings, name)]
    if not _needed_for(feature, given):
        return False
    is_used = getattr(_settings_of(feature), "is_used", None)
    return is_used is None or bool(is_used(settings))


@cache
def _settings_of(feature: str) -> ModuleType | None:
    """Return the module `settings` of a feature; None if it has none."""
    name = f"component.features.{feature}.settings"
    return None if find_spec(name) is None else import_module(name)


def load(path: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a file; see `component.config.load`. Raises SettingsError."""
    return load_file(path, settings_model, environ)


def make_settings(**sections: Any) -> Settings:
    """Return settings of given sections. Raises pydantic.ValidationError."""
    return settings_model()(**sections)


def tables() -> "Iterator[Table]":
    """Yield every section in the order of the file; keys above all sections come first."""
    from component.config import describe  # noqa: PLC0415 - the service needs none of it

    return describe.tables(settings_model())


def load_skills(settings: Settings) -> "Registry":
    """Return the skills that the settings offer. Some cannot be called, because no
    service runs.

    Raises:
        SkillLoadError: a module cannot be loaded, or declares no skill.
        DuplicateSkillError: two skills have one name.
    """
    # Imported here, because the settings are read without it.
    from component.kernel.options import make_registry  # noqa: PLC0415

    features = make_features(settings)
    return make_registry(settings, {name: each.skills() for name, each in features.items()})
