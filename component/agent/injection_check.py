"""Scans texts for instructions to the model that are hidden in data, and records findings.

A text is scanned once, before its line is written; the line stores what was found.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from component import system
from component.agent.protocol import Scanner
from component.agent.run import Run
from component.audit.protocol import AuditEvent, Recorder

_log = structlog.get_logger("component.agent")

_LONGEST: Final = 512
"""Characters of a finding that are stored."""


class InjectionCheck:
    """Scans the texts of turns.

    Args:
        scanner: scans texts.
        recorder: records findings.
    """

    def __init__(self, scanner: Scanner, recorder: Recorder) -> None:
        self._scanner = scanner
        self._recorder = recorder

    async def scan(self, run: Run, text: str, taint: str | None) -> str:
        """Scan a text. Returns the finding in a few words, or an empty string."""
        return (await self.scan_all(run, [(text, taint)]))[0]

    async def scan_all(self, run: Run, texts: Sequence[tuple[str, str | None]]) -> list[str]:
        """Scan texts with their taints in a worker thread. Returns the finding for each text.

        Findings in texts with a taint are recorded. If the scanner fails, there are no findings.
        """
        if not texts:
            return []

        def work() -> list[str]:
            return [(self._scanner.scan(text) or "")[:_LONGEST] for text, _ in texts]

        try:
            findings = await system.in_thread(work)
        except Exception:  # noqa: BLE001 - turns do not depend on a scanner, which may be third-party code
            _log.exception("a text cannot be scanned", turn=run.ask.id)
            return [""] * len(texts)
        for finding, (_, taint) in zip(findings, texts, strict=True):
            self._record(run, finding, taint)
        return findings

    def _record(self, run: Run, finding: str, taint: str | None) -> None:
        if finding and taint is not None:
            self._recorder.record(
                AuditEvent(
                    kind="injection",
                    outcome="found",
                    principal=str(run.ask.key.who),
                    agent=run.ask.profile.agent,
                    trace=run.ask.id,
                    subject=taint,
                    detail=finding,
                )
            )
