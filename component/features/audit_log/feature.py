"""The command that shows and verifies the audit log."""

from component.features.audit_log.commands import AuditCommands
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel


class AuditLogFeature(Feature):
    """Shows the audit log to admins, and verifies it."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the command."""
        audit = kernel.environment.monitoring.audit
        assert audit is not None, "the feature is used only if there is an audit log"
        return Opened(commands=AuditCommands(audit).commands())


FEATURE = AuditLogFeature
