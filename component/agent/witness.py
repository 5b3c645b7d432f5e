"""What is recorded of a turn beside its calls of models and tools."""

from collections.abc import Iterable

from component.agent.protocol import Incoming
from component.agent.run import Run
from component.audit.protocol import Event, Kind, Recorder


class Witness:
    """Records what a turn reads."""

    def __init__(self, record: Recorder) -> None:
        self._record = record

    def heard(self, run: Run, messages: Iterable[Incoming]) -> None:
        """Record what looks like orders in messages, but for what a person has said."""
        for one in messages:
            if one.taint != "person":
                self.suspect(run, one.body, one.taint)

    def suspect(self, run: Run, text: str, taint: str | None) -> None:
        """Record what looks like orders in data; the fence says so to the model."""
        finding = None if taint is None else run.scan(text)
        if finding is not None:
            self._tell(run, "injection", "found", str(taint), finding)

    def notes(self, run: Run) -> None:
        """Record which notes on the person the model is about to be shown."""
        profile = run.ask.profile
        notes = {"user.md": profile.user, "memory.md": profile.memory}
        read = [name for name, text in notes.items() if text.strip()]
        if read:
            self._tell(run, "memory", "done", ", ".join(read), "read")

    def _tell(self, run: Run, kind: Kind, outcome: str, subject: str, detail: str) -> None:
        self._record.record(
            Event(
                kind=kind,
                outcome=outcome,
                principal=str(run.ask.key.who),
                agent=run.ask.profile.agent,
                trace=run.ask.id,
                subject=subject,
                detail=detail,
            )
        )
