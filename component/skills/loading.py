"""Finds skills in modules, by name or path. Importing a module alone offers nothing."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from component.skills.declare import FunctionSkill
from component.skills.errors import SkillLoadError
from component.skills.registry import Registry
from component.skills.skill import Skill

_FILE = "skill_file_"


def load_module(where: str | Path) -> ModuleType:
    """Import a module by its dotted name, or from a `.py` file.

    A file is loaded once under a unique module name, so that it can have any name.

    Raises SkillLoadError when the module does not exist or its own code fails.
    """
    text = str(where)
    if isinstance(where, Path) or text.endswith(".py") or "/" in text:
        return _load_file(Path(where))
    try:
        return importlib.import_module(text)
    except ModuleNotFoundError as exc:
        if exc.name is None or not (text == exc.name or text.startswith(f"{exc.name}.")):
            raise _failed(f"module {text}", exc) from exc
        raise SkillLoadError(
            f"There is no module {text}: install it into the service's environment, or give the "
            f"path of its file, such as ./{text.rpartition('.')[2]}.py."
        ) from exc
    except (Exception, SystemExit) as exc:
        raise _failed(f"module {text}", exc) from exc


def skills_of(module: ModuleType) -> tuple[Skill, ...]:
    """Return the skills that a module or its submodules declare and that it names, in its order.

    Skills that it imported from elsewhere are not included. Raises SkillLoadError when there are
    none, which is always a mistake.
    """
    own = module.__name__
    found: dict[int, Skill] = {}
    for value in vars(module).values():
        if isinstance(value, FunctionSkill):
            home = value.function.__module__
            if home == own or home.startswith(f"{own}."):
                found[id(value)] = value
    if not found:
        raise SkillLoadError(
            f"{_module_text(module)} declares no skills: decorate its functions with @skill from "
            f"xmpp_agent, at the top level of the module."
        )
    return tuple(found.values())


def add_modules(registry: Registry, modules: Iterable[str | Path]) -> None:
    """Add the skills of modules to a registry.

    Raises:
        SkillLoadError: a module cannot be loaded, or declares no skill.
        DuplicateSkillError: two skills have one name.
    """
    for module in modules:
        for skill in skills_of(load_module(module)):
            registry.add(skill)


def skill_named(module: ModuleType, name: str) -> FunctionSkill[Any, Any]:
    """Return the skill of a module that a manifest names. Raises SkillLoadError."""
    found = [each for each in skills_of(module) if isinstance(each, FunctionSkill)]
    for each in found:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in found)
    raise SkillLoadError(
        f"{_module_text(module)} declares no skill called {name}, but {names}: call one of them"
        " like the manifest."
    )


def _load_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise SkillLoadError(f"There is no file {path}: give the path of a Python file.")
    mark = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    name = f"{_FILE}{mark}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SkillLoadError(f"{path} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    # Type hints are resolved through sys.modules, so the module must be there while its code runs.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as exc:
        del sys.modules[name]
        if isinstance(exc, Exception | SystemExit):
            raise _failed(f"file {path}", exc) from exc
        raise
    return module


def _module_text(module: ModuleType) -> str:
    file = module.__name__.startswith(_FILE)
    return f"The file {module.__file__}" if file else f"The module {module.__name__}"


def _failed(what: str, exc: BaseException) -> SkillLoadError:
    return SkillLoadError(f"The {what} cannot be loaded: {type(exc).__name__}: {exc}")
