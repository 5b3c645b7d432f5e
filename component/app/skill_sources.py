"""The sources of skills that the settings name.

Those outside (other processes and machines) may be late, so the start does not wait for them.
"""

from collections.abc import Mapping, Sequence

from component.app.subsystems import Subsystems
from component.kernel.environment import Environment
from component.settings.rest import OpenApi
from component.skills.sources import SkillSource


def outside_sources(environment: Environment, subsystems: Subsystems) -> Sequence[SkillSource]:
    """Return the sources whose skills others describe or run. Each is imported only where it is
    used.
    """
    found: list[SkillSource] = []
    if environment.settings.mcp:
        from component.sources.mcp.source import McpSource  # noqa: PLC0415

        found += [McpSource(name, entry) for name, entry in environment.settings.mcp.items()]
    remote = {name: one for name, one in environment.settings.openapi.items() if one.url}
    found += _openapi(remote)
    if environment.settings.workers:
        from component.sources.workers.source import WorkersSource  # noqa: PLC0415

        found += [WorkersSource(entry) for entry in environment.settings.workers]
    return _pinned(found, subsystems)


def own_sources(environment: Environment, subsystems: Subsystems) -> Sequence[SkillSource]:
    """Return the sources that need nothing but the settings and this machine's files."""
    found: list[SkillSource] = []
    if environment.settings.rest:
        from component.sources.rest.source import RestSource  # noqa: PLC0415

        found.append(RestSource(environment.settings.rest))
    local = {name: one for name, one in environment.settings.openapi.items() if not one.url}
    found += _pinned(_openapi(local), subsystems)
    where = environment.settings.proposals_path
    proposals = environment.settings.skills.proposals
    if where is not None and proposals is not None:
        from component.app.proposals import ProposalService  # noqa: PLC0415
        from component.sources.proposals.folder import ProposalFolder  # noqa: PLC0415
        from component.sources.proposals.source import ProposalSource  # noqa: PLC0415

        directories = subsystems.installed.directories
        assert directories is not None, "the directory of the proposals is one of them"
        found.append(
            ProposalSource(
                proposals,
                ProposalFolder(where),
                ProposalService(environment, subsystems.kernel.contacts, directories),
                environment.monitoring.recorder,
            )
        )
    return (*found, *subsystems.installed.sources())


def _openapi(entries: Mapping[str, OpenApi]) -> Sequence[SkillSource]:
    if not entries:
        return ()
    from component.sources.openapi.source import OpenApiSource  # noqa: PLC0415

    return [OpenApiSource(*each) for each in entries.items()]


def _pinned(found: Sequence[SkillSource], subsystems: Subsystems) -> Sequence[SkillSource]:
    """Return sources that offer the descriptions that an admin has approved, where they need to."""
    descriptions = subsystems.installed.descriptions
    if descriptions is None:
        return found
    from component.sources.descriptions.source import PinnedSource  # noqa: PLC0415

    return [
        PinnedSource(one, descriptions) if one.name in descriptions.sources else one
        for one in found
    ]
