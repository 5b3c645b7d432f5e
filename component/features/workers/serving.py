"""Offers the skills that workers announce, while they change.

A version of a skill is its whole description: workers with different descriptions of a skill have
different versions. A call goes only to workers that have the version that was offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.features.workers.calls import WorkerCalls
from component.features.workers.client import Client
from component.features.workers.messages import Offered
from component.policy.globs import pattern
from component.skills.errors import DeclarationError
from component.skills.inputs import schema_inputs
from component.skills.skill import Skill
from component.skills.spec import spec_fields

if TYPE_CHECKING:
    from component.features.workers.settings import WorkersEntry
    from component.skills.sources import Offer

_log = structlog.get_logger("component.features.workers")

_IN_THE_SKILL: Final = frozenset(
    (
        "name",
        "title",
        "description",
        "question",
        "tags",
        "examples",
        "input_schema",
        "output_schema",
    )
)


class Serving:
    """Serves one queue."""

    def __init__(self, entry: WorkersEntry) -> None:
        self._entry = entry
        self._client = Client(entry)
        self._skills: dict[str, Skill] = {}
        """The skill of each lane."""
        self._chosen: dict[str, str] = {}
        """The lane of each skill that is offered, by name."""
        self._said: dict[str, str] = {}
        """What was logged of a skill last, by name."""

    async def run(self, offer: Offer, task_status: TaskStatus[None]) -> None:
        """Offer the skills of the queue until cancelled."""
        client = self._client
        async with anyio.create_task_group() as group:
            group.start_soon(client.run)
            offered: list[Skill] | None = None
            while True:
                await client.changed.wait()
                client.changed = anyio.Event()
                if not client.reason:
                    skills = self._skills_of(client.offered)
                    if skills != offered:
                        offered = skills
                        offer(skills)
                task_status.started()

    def _skills_of(self, offered: Sequence[Offered]) -> list[Skill]:
        wanted = pattern(self._entry.skills)
        versions: dict[str, list[Offered]] = {}
        for one in offered:
            if wanted.fullmatch(one.name):
                versions.setdefault(one.name, []).append(one)
        chosen = {name: self._choose(name, found) for name, found in versions.items()}
        self._chosen = {name: one.lane for name, one in chosen.items() if one is not None}
        before, self._skills = self._skills, {}
        for lane, one in [(each.lane, each) for each in chosen.values() if each is not None]:
            skill = before.get(lane) or self._skill(one)
            if skill is not None:
                self._skills[lane] = skill
        return list(self._skills.values())

    def _choose(self, name: str, versions: Sequence[Offered]) -> Offered | None:
        """Return the version that all workers have; while they differ, the one offered before."""
        alive = [one for one in versions if one.workers]
        current = self._chosen.get(name)
        kept = next((one for one in alive or versions if one.lane == current), None)
        if len(alive) > 1:
            which = "; ".join(sorted(", ".join(one.workers) for one in alive))
            kept_or_not = "is not offered" if kept is None else "stays as it was"
            self._say(name, f"workers have different versions of it ({which}): it {kept_or_not}")
            return kept
        if not alive:
            self._say(name, "no worker that has it is running: its calls fail")
            return kept or versions[0]
        self._say(name, "")
        return alive[0]

    def _say(self, name: str, what: str) -> None:
        if self._said.get(name, "") != what:
            self._said[name] = what
            if what:
                _log.warning("a skill of workers", queue=self._entry.queue, skill=name, reason=what)
            else:
                _log.info("a skill of workers is available", queue=self._entry.queue, skill=name)

    def _skill(self, one: Offered) -> Skill | None:
        """Return the skill of a version; None if this release cannot offer it, as the log says."""
        try:
            return skill_of(self._entry, self._client, one)
        except (DeclarationError, ValueError, RecursionError) as error:
            _log.warning(
                "a skill of workers cannot be offered",
                queue=self._entry.queue,
                skill=one.name,
                reason=str(error),
            )
            return None


def skill_of(entry: WorkersEntry, client: Client, offered: Offered) -> Skill:
    """Return the skill of a version. Raises DeclarationError and ValueError."""
    fields: dict[str, Any] = spec_fields(offered.description)
    timeout_s: float = fields["timeout"]
    repeatable: bool = fields["annotations"].repeatable
    said: dict[str, Any] = msgspec.json.decode(offered.description)
    claims = {name: value for name, value in said.items() if name not in _IN_THE_SKILL}
    calls = WorkerCalls(
        entry, client, offered.name, offered.lane, repeatable=repeatable, timeout_s=timeout_s
    )
    fields |= {
        "timeout": entry.wait_s + timeout_s,
        # The call follows its worker after a restart of the service. What has run is not repeated.
        "durable": True,
        "attempts": fields["attempts"] if repeatable else 1,
        # Both name something in the settings of the service, which knows nothing of them.
        "queue": None,
        "schedule": None,
        "taint": entry.taint or fields["taint"],
        # A stranger could write a question that misleads.
        "question": "" if entry.taint not in (None, "person") else fields["question"],
    }
    return Skill(
        **fields,
        described_by=entry.taint,
        claims=claims,
        source=f"the workers of the queue {entry.queue}",
        versioned_by_content=True,
        inputs=schema_inputs(fields["input_schema"]),
        kind="async",
        wants_context=True,
        invoke=calls.invoke,
    )
