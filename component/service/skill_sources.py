"""The sources of skills that the settings name."""

from collections.abc import Sequence

from component.service.environment import Environment
from component.service.subsystems import Subsystems
from component.skills.sources import SkillSource


def skill_sources(environment: Environment, subsystems: Subsystems) -> Sequence[SkillSource]:
    """Return the sources of the settings. Each is imported only where it is used."""
    found: list[SkillSource] = []
    if environment.settings.mcp:
        from component.sources.mcp.source import McpSource  # noqa: PLC0415

        found += [McpSource(name, entry) for name, entry in environment.settings.mcp.items()]
    if environment.settings.rest:
        from component.sources.rest.source import RestSource  # noqa: PLC0415

        found.append(RestSource(environment.settings.rest))
    if environment.settings.openapi:
        from component.sources.openapi.source import OpenApiSource  # noqa: PLC0415

        found += [OpenApiSource(*each) for each in environment.settings.openapi.items()]
    if environment.settings.workers:
        from component.sources.workers.source import WorkersSource  # noqa: PLC0415

        found += [WorkersSource(entry) for entry in environment.settings.workers]
    descriptions = subsystems.installed.descriptions
    if descriptions is not None:
        from component.sources.descriptions.source import PinnedSource  # noqa: PLC0415

        found = [
            PinnedSource(one, descriptions) if one.name in descriptions.sources else one
            for one in found
        ]
    if environment.settings.xmpp_send is not None:
        from component.builtins.xmpp_send import XmppSendSource  # noqa: PLC0415

        found.append(XmppSendSource(environment.settings.xmpp_send, subsystems.messages()))
    where = environment.settings.proposals_path
    proposals = environment.settings.skills.proposals
    if where is not None and proposals is not None:
        from component.service.proposals import ProposalService  # noqa: PLC0415
        from component.sources.proposals.folder import ProposalFolder  # noqa: PLC0415
        from component.sources.proposals.source import ProposalSource  # noqa: PLC0415

        directories = subsystems.installed.directories
        assert directories is not None, "the directory of the proposals is one of them"
        found.append(
            ProposalSource(
                proposals,
                ProposalFolder(where),
                ProposalService(environment, subsystems.contacts, directories),
                environment.monitoring.recorder,
            )
        )
    return found
