"""The skills of the user in `xmpp-agent demo --skills`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from component.cli.frame import Fault

if TYPE_CHECKING:
    from component.settings import Settings


def names_of(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of the skills of Python files and directories. Raises Fault."""
    from component.skill_directories.content import read_content  # noqa: PLC0415
    from component.skills import SkillLoadError, load_module, skills_of  # noqa: PLC0415
    from component.skills.manifest import ManifestError  # noqa: PLC0415

    found: list[str] = []
    try:
        for path in paths:
            if path.is_dir():
                found.append(read_content(path.absolute()).manifest.skill.name)
            else:
                found += [skill.name for skill in skills_of(load_module(path))]
    except (SkillLoadError, ManifestError) as error:
        raise Fault(str(error)) from error
    return tuple(found)


def with_skills(settings: "Settings", paths: Sequence[Path], names: Sequence[str]) -> "Settings":
    """Return the settings of a demonstration that offers these skills, too: those of Python files
    are trusted, and those of directories confined.
    """
    skills = settings.skills.model_copy(
        update={
            "modules": (*settings.skills.modules, *(str(one) for one in paths if one.is_file())),
            "directories": tuple(one for one in paths if one.is_dir()),
            "auto_approve": "confined",
        }
    )
    agents = tuple(
        one.model_copy(update={"skills": (*one.skills, *names)}) for one in settings.agents
    )
    return settings.model_copy(update={"skills": skills, "agents": agents})
