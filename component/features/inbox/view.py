"""Reads the inbox of a person with an agent from the database, in one transaction."""

from typing import TYPE_CHECKING, Final

from component.features.inbox import rows
from component.features.inbox.entries import Entry, Found, Makers, entries
from component.store.database import Database
from component.store.notifications import Notification, of_person
from component.tasks import attention, question_rows
from xep.jid import JID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from component.kernel.kernel import Kernel

_RESULTS_MS: Final = 7 * 86_400_000
"""For how long the result of a task that nobody has displayed is in the inbox."""


class InboxView:
    """Computes inboxes."""

    def __init__(self, kernel: "Kernel") -> None:
        self._storage = kernel.storage
        tasks = kernel.tasks

        def title_of(name: str) -> str:
            skill = tasks.find_skill(name)
            return name if skill is None else skill.title

        self._makers = Makers(tasks.questions, title_of, tasks.taint_of)

    async def of(self, person: JID, at: JID) -> "Sequence[Entry]":
        """Return what waits for a person, a bare JID, with the agent at an address. Raises
        StorageError.
        """
        found = await self._storage.read(lambda database: read_found(database, person, at))
        return entries(found, person, self._makers)


def read_found(database: Database, person: JID, at: JID) -> Found:
    """Return what the database has of a person, a bare JID, with the agent at an address."""
    until = rows.displayed_until(database, at, person)
    # Results that were displayed are not in the inbox.
    done_since = max(database.now - _RESULTS_MS, until - database.steady + database.now + 1)
    questions = [
        one
        for one in question_rows.open_questions(database, person, at)
        if one.request.delegation is None or one.request.principal != person
    ]
    return Found(
        now=database.now,
        steady=database.steady,
        questions=[(one, attention.matter_of_question(database, one)) for one in questions],
        concerns=attention.concerns(database, person, at, done_since),
        notifications=[(one, _matter_of(database, one)) for one in of_person(database, at, person)],
        until=until,
        archived=rows.archived(database, at, person),
    )


def _matter_of(database: Database, one: Notification) -> str:
    subject = one.subject
    return subject.matter or attention.matter_of_task(database, subject.task) or one.id
