"""A record that can be read."""

from component.audit.protocol import AuditEvent


class Book:
    """Keeps events in the order in which they came."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    async def settled(self) -> None: ...

    def of(self, kind: str) -> list[tuple[str, str]]:
        """Outcome and subject of the events of a kind."""
        return [(e.outcome, e.subject) for e in self.events if e.kind == kind]
