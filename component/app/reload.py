"""Reloads the configuration: what has changed, and what of it a running service can apply."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from pydantic_core import PydanticCustomError

from component import logs, system
from component.app.faults import config_errors, sentences
from component.app.features import FEATURES, make_features, sections_of, unfinished
from component.app.subsystems import OpenedFeature, Subsystems
from component.audit.protocol import AuditEvent
from component.config import Settings
from component.config.kinds import EMPTY, Section, defaults
from component.features.feature import Feature
from component.kernel.environment import read_rights
from component.kernel.kernel import RELOADED, Reloaded
from component.kernel.options import SOFTWARE
from component.skills.sources import SkillSources
from component.store import StorageError


class ReloadError(Exception):
    """The configuration was not applied, and nothing has changed. `sentences` say why."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


async def reload(
    read: Callable[[], Settings] | None, subsystems: Subsystems, sources: Sequence[SkillSources]
) -> Reloaded:
    """Apply what has changed in the settings; return that, and what needs a restart.

    `sources` are those of this machine, and remote ones. Raises ReloadError: nothing has changed.
    """
    if read is None:
        raise ReloadError("The service was started without a configuration file.")
    settings = subsystems.kernel.settings
    try:
        left = await unfinished(subsystems.kernel.storage)
        change = change_of(settings, await system.in_thread(read), left)
        features = _apply(change, subsystems)
    except config_errors() as error:
        raise ReloadError(*sentences(error)) from None
    except StorageError as error:
        raise ReloadError(f"The database cannot be read: {error}") from None
    if any(key.startswith("log.") for key in change.keys):
        logs.configure(change.settings.log.level, change.settings.log.format)
    await subsystems.replace(features)
    for each, remote in zip(sources, (False, True), strict=True):
        await each.replace(subsystems.sources(remote=remote))
    subsystems.kernel.environment.monitoring.recorder.record(
        AuditEvent(
            kind="start", outcome="reloaded", subject=SOFTWARE, detail=_sections(change.keys)
        )
    )
    return Reloaded(_shown(change.keys), _shown(change.restart))


def _apply(change: "Change", subsystems: Subsystems) -> Mapping[str, OpenedFeature]:
    """Apply the settings to the kernel, and return the features with them. Never waits.

    Raises the errors of a configuration; nothing has changed then.
    """
    kernel, known = subsystems.kernel, subsystems.features
    catalog = kernel.environment.catalog
    rights, before = read_rights(change.settings), catalog.rights
    new = {
        name: each
        for name, each in change.features.items()
        if name in change.again or name not in known
    }
    offered = {name: tuple(each.skills()) for name, each in new.items()}
    for name, skills in offered.items():
        for refused in catalog.registry.refused(name, skills):
            raise refused
        new[name].prepare(catalog.registry)
    kernel.replace(rights)
    try:
        features = {
            name: _opened(each, subsystems, known.get(name)) if name in new else known[name]
            for name, each in change.features.items()
        }
    except BaseException:
        kernel.replace(before)
        raise
    for name in (*offered, *known.keys() - features.keys()):
        catalog.registry.offer(name, offered.get(name, ()))
    return features


def _opened(
    feature: Feature, subsystems: Subsystems, before: OpenedFeature | None
) -> OpenedFeature:
    kernel = subsystems.kernel
    if before is None:
        return OpenedFeature(feature, feature.open(kernel))
    return OpenedFeature(feature, feature.reopen(kernel, before.feature))


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Other settings, and the features with them.

    Attributes:
        settings: the settings to apply: those of the file, but where a restart is needed the old
            ones.
        keys: what is applied: sections, or `section.key`.
        restart: what has changed too, but needs a restart.
        features: the features that are used from now on, in their order.
        again: the names of those that have to be opened, although they may be open.
    """

    settings: Settings
    keys: Sequence[str]
    restart: Sequence[str]
    features: Mapping[str, Feature]
    again: Collection[str]


def change_of(old: Settings, new: Settings, left: Collection[str] = ()) -> Change:
    """Return how the service changes with other settings. The features `left` have work to end.

    Raises ReloadError: what can be applied does not go together with what needs a restart;
    FeatureError: the settings of a feature cannot be used.
    """
    keys = tuple(_changed(old, new))
    reloaded = frozenset(_reloaded(old, new))
    restart = [key for key in keys if key not in reloaded and _section(key) not in reloaded]
    settings = _with_values(new, old, restart)
    applied = [key for key in keys if key not in restart]
    features = make_features(settings, left)
    touched = {*applied, *map(_section, applied)}
    again = {name for name, each in features.items() if touched.intersection(each.reloads)}
    return Change(settings=settings, keys=applied, restart=restart, features=features, again=again)


def _changed(old: Settings, new: Settings) -> Iterator[str]:
    """Yield the sections that differ, as `section.key` where both have it."""
    for name in dict.fromkeys((*type(old).model_fields, *type(new).model_fields)):
        before, after = _value(old, name, new), _value(new, name, old)
        if before == after:
            continue
        if isinstance(before, Section) and isinstance(after, Section):
            for key in type(after).model_fields:
                if getattr(before, key) != getattr(after, key):
                    yield f"{name}.{key}"
        else:
            yield name


def _value(settings: Settings, name: str, other: Settings) -> Any:
    """Return a section, or its default where only `other` has the feature that declares it."""
    if name in type(settings).model_fields:
        return getattr(settings, name)
    there, default = getattr(other, name), type(other).model_fields[name].default
    return defaults(type(there)) if default is EMPTY and isinstance(there, Section) else default


def _reloaded(old: Settings, new: Settings) -> Iterator[str]:
    """Yield what can be applied to a running service: sections, and `section.key`."""
    for key in RELOADED:
        if key == "agents" and old.agent_names != new.agent_names:
            continue
        if key == "llm" and (old.llm is None) != (new.llm is None):
            continue
        yield key
    used = {**make_features(old), **make_features(new)}
    for name in FEATURES:
        if name in used:
            yield from used[name].reloads
        else:
            yield from sections_of(name)  # of no effect, before and after


def _with_values(new: Settings, old: Settings, keys: Collection[str]) -> Settings:
    """Return the new settings with these keys as they were. Raises ReloadError."""
    if not keys:
        return new
    values: dict[str, Any] = {name: getattr(new, name) for name in type(new).model_fields}
    for key in keys:
        section, _, inner = key.partition(".")
        before = getattr(old, section, None)
        if inner:
            values[section] = values[section].model_copy(update={inner: getattr(before, inner)})
        else:
            values[section] = before
    mixed = new.model_copy(update=values)
    mixed._digest = old.digest  # noqa: SLF001 - the service does not use all of the new file
    try:
        for check in type(mixed).checks:
            check(mixed)
    except PydanticCustomError as error:
        raise ReloadError(
            f"{_sections(keys)} {_has(keys)} changed, which needs a restart, and the other changes"
            f" cannot be used without it: a setting {error.message()}. Restart to use all of them."
        ) from None
    return mixed


def _section(key: str) -> str:
    return key.partition(".")[0]


def _shown(keys: Collection[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"[{_section(key)}]" for key in keys))


def _sections(keys: Collection[str]) -> str:
    return ", ".join(_shown(keys))


def _has(keys: Collection[str]) -> str:
    return "has" if len(_shown(keys)) == 1 else "have"
