"""What the confined process of a skill may do, as its manifest declares."""

from component.sandbox.profile import ConfinementError, Limits, Profile
from component.skill_directories.runners import Artefact
from component.skills.errors import SkillLoadError


def profile_of(artefact: Artefact) -> Profile:
    """Return the profile of a skill. It has no network: requests go through the service, which
    alone can tell one host from another. Raises SkillLoadError.
    """
    said, runs = artefact.manifest.skill.capabilities, artefact.manifest.skill.execution
    try:
        return Profile(
            read=(str(artefact.directory), *map(str, said.filesystem_read)),
            write=tuple(map(str, said.filesystem_write)),
            processes=said.shell,
            limits=Limits(
                memory=runs.memory_bytes, output_bytes=runs.output_bytes, wall_s=runs.timeout_s
            ),
        )
    except ConfinementError as error:
        raise SkillLoadError(str(error)) from error
