"""Ad-hoc commands (XEP-0050): skills and commands for every client that supports forms."""

from collections.abc import Awaitable

import msgspec

from component.commands.adhoc import Asked, Offers
from component.features.adhoc.disco_nodes import CommandNodes
from component.features.adhoc.handlers import CommandsHandler
from component.features.adhoc.offers import CommandOffers, SkillOffers
from component.features.adhoc.sessions import Sessions
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel
from component.kernel.options import page_bytes
from component.tasks.admission import Answer
from component.tasks.request import Request


class AdHocFeature(Feature):
    """Serves skills and commands as forms."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the handler, and the nodes for service discovery."""
        catalog, tasks = kernel.environment.catalog, kernel.tasks.service

        def run(asked: Asked, skill: str, json: bytes) -> Answer | Awaitable[Answer]:
            return tasks.execute(_request(asked, skill, json))

        offers: tuple[Offers, ...] = (
            SkillOffers(catalog.view, run, self.settings.limits.retry_after_s),
            CommandOffers(kernel.commands),
            *kernel.pubsub.offers(),
        )
        return Opened(
            handlers=(CommandsHandler(offers, Sessions(admins=catalog.admins)),),
            disco_nodes=(CommandNodes(offers, page_bytes(self.settings)),),
        )


def _request(asked: Asked, skill: str, json: bytes) -> Request:
    """Return the request to run a skill with the parameters of a form (FAC-005)."""
    return Request(
        skill=skill,
        requester=asked.requester,
        principal=asked.principal,
        target=asked.target,
        json=msgspec.Raw(json),
        session=asked.session,
        origin="command",
        lang=asked.lang,
    )


FEATURE = AdHocFeature
