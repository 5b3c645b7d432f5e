"""What must always hold, from what can be seen outside: written from the specification.

Rules look at the entries of a history as they are added, and raise Violation. Each area of a life
has its own (`tests.simulation.areas`).
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import anyio

from component.audit.verify import verify_beside
from tests.simulation.history import Entry, History, Stanza

LABEL: Final = re.compile(r"\b[xmsrwpgc]\d+(?:\.\w+)?\b")
"""Names a request in all that is said about it."""
EXECUTE: Final = "{urn:fluux:agent:0#execute}"
TASK: Final = "{urn:fluux:agent:0#task}"
NAMESPACE: Final = "jabber:client"
_OWNER: Final = re.compile(r"(?:.*-)?([a-z]+)@[a-z.]+")
"""The account, room or occupant whose directory this is; not one who is known by a visit."""
_SECRET: Final = re.compile(r"\b(?:secret|hush)-([a-z]+)-\d")
CONFIRM: Final = "{urn:fluux:agent:0#confirm}"
OPEN_S: Final = 25 * 3600.0
"""Seconds for which a question may be open, and until everybody knows that it has expired."""


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
            if "}" not in stanza.tag:  # servers in memory leave it out
                stanza.tag = f"{{{NAMESPACE}}}{stanza.tag}"
        for rule in self._rules:
            self._check(rule.saw, entry, stanza)

    def at_pause(self, *kits: Any) -> None:
        """Check what must hold of services when nothing has happened for a while."""
        for kit in kits:
            self._check(check_slots, kit)

    def at_rest(self, *kits: Any) -> None:
        """Check what must hold of services after a time without faults."""
        for rule in self._rules:
            self._check(rule.at_rest)
        for kit in kits:
            self._check(check_internals, kit)
            self._check(check_audit_log, kit.settings.storage.path / "audit")
            self._check(check_files, kit.settings.memory_path)

    def _check(self, look: Callable[..., None], *values: Any) -> None:
        try:
            look(*values)
        except Violation as violation:
            # The code that has added the entry may be that of the service, which handles errors.
            self.fail(violation)

    def fail(self, violation: Violation) -> None:
        """End the life soon, because of this violation."""
        self.violation = self.violation or violation
        self._violated.set()


def check_slots(kit: Any) -> None:
    """Check that all slots are those of runs, and all runs still run. Raises Violation."""
    if not hasattr(kit, "service") or kit.service._subsystems is None:
        return  # it is being started
    worker = kit.kernel.tasks.service._worker
    slots, runs = worker.slots.snapshot(), list(worker._runs.values())
    held = sum(run.slot is not None and not run.ended.is_set() for run in runs)
    if slots.total - slots.free != held:
        raise Violation(f"{slots.total - slots.free} slots are taken, by {held} runs")
    ended = [run.task for run in runs if run.ended.is_set()]
    if ended:
        raise Violation(f"runs that have ended are still kept: {ended}")


def check_internals(kit: Any) -> None:
    """Check that a service at rest holds nothing. Raises Violation."""
    service = kit.kernel.tasks.service
    runs = service._worker._runs
    if runs:
        raise Violation(f"runs that never end: {list(runs)}")
    slots = service._worker.slots.snapshot()
    if slots.free != slots.total:
        raise Violation(f"slots that were not given back: {slots.total - slots.free}")


def check_audit_log(directory: Path) -> None:
    """Check that an audit log is complete and unchanged, and was so at each start. Raises
    Violation.
    """
    found = verify_beside(directory)
    if not found.whole:
        raise Violation(f"the audit log: {[one.sentence for one in found.findings]}")


def check_files(directory: Path) -> None:
    """Check that the files of memories and conversations have the text of nobody but their owner,
    who is an account or an occupant of a room. Raises Violation.
    """
    for path in directory.rglob("*"):
        whose = _OWNER.fullmatch(path.relative_to(directory).parts[0])
        if whose is None or not path.is_file():
            continue
        others = set(_SECRET.findall(path.read_text(errors="replace"))) - {whose[1]}
        if others:
            raise Violation(f"{path.relative_to(directory)} has text of {sorted(others)}")
