"""Ad-hoc commands (XEP-0050): skills and commands for every client that supports forms."""

from collections.abc import Awaitable

import msgspec

from component.features.adhoc.handlers import (
    CommandNodes,
    CommandOffers,
    CommandsHandler,
    SkillOffers,
)
from component.features.adhoc.sessions import CommandSessions
from component.features.feature import Feature, Opened
from component.kernel.adhoc import AdHocRequest
from component.kernel.kernel import Kernel
from component.kernel.options import page_bytes
from component.tasks.admission import Answer
from component.tasks.request import Request


class AdHocFeature(Feature):
    """Serves skills and commands as forms."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the handler, and the nodes for service discovery."""
        retry_after_s = self.settings.limits.retry_after_s
        catalog, tasks = kernel.environment.catalog, kernel.tasks.service

        def run(asked: AdHocRequest, skill: str, json: bytes) -> Answer | Awaitable[Answer]:
            return tasks.execute(_request(asked, skill, json))

        return Opened(
            handlers=(
                CommandsHandler(
                    kernel.offers,
                    CommandSessions(admins=catalog.admins, tag=kernel.stream.tag),
                    retry_after_s,
                ),
            ),
            offers=(SkillOffers(catalog.view, run, retry_after_s), CommandOffers(kernel.commands)),
            disco_nodes=(CommandNodes(kernel.offers, page_bytes(self.settings)),),
        )


def _request(asked: AdHocRequest, skill: str, json: bytes) -> Request:
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
