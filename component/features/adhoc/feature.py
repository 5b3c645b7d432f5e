"""Ad-hoc commands (XEP-0050): skills and commands for every client that supports forms."""

from collections.abc import Awaitable

import msgspec

from component.execution import SkillRequest
from component.execution.admission import ExecutionAnswer
from component.features.adhoc.handlers import CommandNodes, CommandsHandler
from component.features.adhoc.offers import CommandOffers, SkillOffers
from component.features.adhoc.sessions import CommandSessions
from component.features.feature import Feature, Opened
from component.kernel.adhoc import AdHocRequest
from component.kernel.kernel import Kernel
from component.kernel.options import page_bytes
from component.tasks.skill_call import SkillCall


class AdHocFeature(Feature):
    """Serves skills and commands as forms."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the handler, and the nodes for service discovery."""
        catalog, executor = kernel.environment.catalog, kernel.tasks.executor

        def run(
            asked: AdHocRequest, skill: str, json: bytes
        ) -> ExecutionAnswer | Awaitable[ExecutionAnswer]:
            return executor.execute(_request(asked, skill, json))

        return Opened(
            handlers=(CommandsHandler(kernel.offers, CommandSessions(admins=catalog.admins)),),
            offers=(
                SkillOffers(catalog.view, run, self.settings.limits.retry_after_s),
                CommandOffers(kernel.commands),
            ),
            disco_nodes=(CommandNodes(kernel.offers, page_bytes(self.settings)),),
        )


def _request(asked: AdHocRequest, skill: str, json: bytes) -> SkillRequest:
    """Return the request to run a skill with the parameters of a form (FAC-005)."""
    return SkillRequest(
        asked.requester,
        asked.principal,
        asked.target,
        SkillCall(skill=skill, json=msgspec.Raw(json)),
        session=asked.session,
        origin="command",
        lang=asked.lang,
    )


FEATURE = AdHocFeature
