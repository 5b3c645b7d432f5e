"""What must always hold, from what can be seen outside: written from the specification.

Rules look at the entries of a history as they are added, and raise Violation. Each area of a life
has its own (`tests.simulation.areas`).
"""

import re
from collections.abc import Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

import anyio

from tests.simulation.history import Entry, History, Stanza

LABEL: Final = re.compile(r"\b[xmsrwpg]\d+(?:\.\w+)?\b")
"""Names a request in all that is said about it."""
EXECUTE: Final = "{urn:fluux:agent:0#execute}"
TASK: Final = "{urn:fluux:agent:0#task}"
CONFIRM: Final = "{urn:fluux:agent:0#confirm}"


class Violation(Exception):  # noqa: N818 - it says what was violated
    """Something that must not happen has happened."""


class Rule:
    """One invariant."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        """Look at an entry; `stanza` is its stanza. Raises Violation."""

    def at_rest(self) -> None:
        """Look whether everything has ended. Raises Violation."""


class Rules:
    """All rules, for one history.

    Attributes:
        violation: the first one.
    """

    def __init__(self, history: History, rules: Sequence[type[Rule]]) -> None:
        self.violation: Violation | None = None
        self._violated = anyio.Event()
        self._rules = [rule() for rule in rules]
        history.observers.append(self._look)

    async def watch(self) -> None:
        """Wait for a violation. Raises Violation."""
        await self._violated.wait()
        assert self.violation is not None
        raise self.violation

    def _look(self, entry: Entry) -> None:
        stanza = None
        if isinstance(entry, Stanza):
            stanza = ET.fromstring(entry.xml)
        try:
            for rule in self._rules:
                rule.saw(entry, stanza)
        except Violation as violation:
            # The code that has added the entry may be that of the service, which handles errors.
            self.violation = self.violation or violation
            self._violated.set()

    def at_rest(self, *kits: Any) -> None:
        """Check what must hold after a time without faults. Raises Violation."""
        try:
            for rule in self._rules:
                rule.at_rest()
            for kit in kits:
                check_internals(kit)
        except Violation as violation:
            self.violation = violation
            raise


def check_internals(kit: Any) -> None:
    """Check that a service at rest holds nothing. Raises Violation."""
    service = kit.kernel.tasks.service
    runs = service._worker._runs
    if runs:
        raise Violation(f"runs that never end: {list(runs)}")
    slots = service._worker.slots.snapshot()
    if slots.free != slots.total:
        raise Violation(f"slots that were not given back: {slots}")
