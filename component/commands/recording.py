"""Writes an audit event for each command of an admin or operator."""

import dataclasses
from collections.abc import Iterable

from component.audit.protocol import AuditEvent, Recorder
from component.commands.definition import AnyCommand, Asking, CommandResult, P, Run

_OPERATOR = "operator"
"""The operator of the machine has no XMPP address."""


def recorded(commands: Iterable[AnyCommand], recorder: Recorder) -> tuple[AnyCommand, ...]:
    """Return commands that do the same, and record which admin called them and the outcome.

    Commands about an admin's own things, which everybody can use, are not recorded here.
    """
    return tuple(
        dataclasses.replace(command, run=_recorded(command, command.run, recorder))
        for command in commands
    )


def _recorded(command: AnyCommand, run: Run[P], recorder: Recorder) -> Run[P]:
    async def run_and_record(asking: Asking, params: P) -> CommandResult:
        task = str(getattr(params, "task", None) or "")
        if not asking.admin or not (command.who == "admin" or asking.principal is None or task):
            return await run(asking, params)
        outcome = "failed"
        try:
            answer = await run(asking, params)
            outcome = "done"
        finally:
            recorder.record(
                AuditEvent(
                    kind="admin",
                    outcome=outcome,
                    principal=_OPERATOR if asking.principal is None else str(asking.principal),
                    subject=command.name,
                    task=task,
                )
            )
        return answer

    return run_and_record
