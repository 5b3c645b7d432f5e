"""Follows a task, without I/O: keeps the newest state of what events and answers say.

An event has the attributes of the task and what has changed; the answer to a request for the task
is complete. Events can be missing, late or doubled (EVT-009), so a gap means that the task has to
be requested.
"""

from typing import TypeAlias

import msgspec

from xmpp_agent_client.model import Confirmation, Output, Question, Task

News: TypeAlias = Task | Question | Confirmation
"""What is new of a task: another revision, or what it asks."""


class Follower:
    """The newest known state of a task.

    Attributes:
        task: the state; what events leave out is kept from before.
        is_complete: whether nothing is known to be missing. If not, request the task.
    """

    def __init__(self, task: Task, *, is_complete: bool = True) -> None:
        self.task = task
        self.is_complete = is_complete
        self._told = -1  # the revision
        self._asked: set[str] = set()
        self._to_confirm: list[Confirmation] = []

    def take_answer(self, task: Task) -> None:
        """Take the answer to a request for the task, unless a newer event has arrived since.

        A state says what has to be confirmed, and not by whom: those who are asked get a message.
        If messages may have been lost, that was perhaps one of them.
        """
        if task.revision < self.task.revision:
            return
        if task.confirmation is not None and not self.is_complete:
            self._to_confirm.append(task.confirmation)
        self.task = _with_confirmation(task, self.task.confirmation)
        self.is_complete = True

    def take_event(self, event: Task) -> None:
        """Take an event; one that is not newer changes nothing."""
        before = self.task
        if event.revision <= before.revision:
            return
        if event.revision > before.revision + 1:
            self.is_complete = False
        outputs = self._joined(event.outputs)
        if event.ended:
            self.is_complete, outputs = True, ()  # it has the whole result
        self.task = msgspec.structs.replace(
            _with_confirmation(event, before.confirmation),
            poll_after=event.poll_after or before.poll_after,
            progress=event.progress or before.progress,
            plan=event.plan or before.plan,
            outputs=outputs,
        )

    def take_confirmation(self, confirmation: Confirmation) -> None:
        """Take a question to a person about this task, which a message of its own brings."""
        self.task = msgspec.structs.replace(self.task, confirmation=confirmation)
        self._to_confirm.append(confirmation)

    def news(self) -> list[News]:
        """Return what was not returned before: each revision and each question once."""
        found: list[News] = []
        if self.task.revision > self._told:
            self._told = self.task.revision
            found.append(self.task)
        for asked in (self.task.question, *self._to_confirm):
            if asked is not None and asked.id not in self._asked:
                self._asked.add(asked.id)
                found.append(asked)
        self._to_confirm.clear()
        return found

    def _joined(self, parts: tuple[Output, ...]) -> tuple[Output, ...]:
        """Return the known artifacts with these parts at their ends."""
        known = {output.name: output for output in self.task.outputs}
        for part in parts:
            before = known.get(part.name)
            text = part.text if before is None else before.text + part.text
            known[part.name] = msgspec.structs.replace(part, text=text)
        return tuple(known.values())


def _with_confirmation(task: Task, asked: Confirmation | None) -> Task:
    """Return a state with the confirmation of a message, as long as the task waits for it."""
    if asked is None or task.state != "input-required" or task.question is not None:
        return task
    if task.confirmation is not None and task.confirmation.id != asked.id:
        return task
    return msgspec.structs.replace(task, confirmation=asked)
