"""Standing approvals: what people have allowed without being asked each time."""

from collections.abc import Sequence

from component.audit.protocol import NoRecord
from component.commands import AnyCommand
from component.features.feature import Feature, Opened
from component.features.standing_approvals.commands import ApprovalCommands
from component.kernel.contacts import PersonZones
from component.kernel.kernel import Kernel
from component.store import Storage
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.notifications import NotificationStore
from component.tasks import standing_rows


class StandingApprovalsFeature(Feature):
    """Lists standing approvals, and revokes them; `component.tasks.standing` uses them."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the command."""
        recorder = kernel.environment.monitoring.recorder
        commands = ApprovalCommands(kernel.storage, kernel.zones, recorder)
        return Opened(commands=commands.commands(), forget=forget)

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the command."""
        zones = PersonZones(NotificationStore(storage), self.settings.agent.zone)
        return ApprovalCommands(storage, zones, NoRecord()).commands()


def forget(database: Database, who: Forgotten) -> None:
    """Delete what a person has approved for an agent."""
    standing_rows.forget_person(database, who.person, who.address)


FEATURE = StandingApprovalsFeature
