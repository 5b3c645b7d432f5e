"""Commands of admins and operators, each with a line in the record."""

import dataclasses
from collections.abc import Iterable

from component.audit.protocol import Event, Recorder
from component.commands.definition import Answer, AnyCommand, Asking, P, Run

_OPERATOR = "operator"
"""Who asks on the machine itself is nobody on XMPP."""


def recorded(commands: Iterable[AnyCommand], recorder: Recorder) -> tuple[AnyCommand, ...]:
    """The same commands, which record who of the admins gave them and what came of it.

    What an admin does as everybody could, with things of their own, is not recorded here.
    """
    return tuple(
        dataclasses.replace(command, run=_recorded(command, command.run, recorder))
        for command in commands
    )


def _recorded(command: AnyCommand, run: Run[P], recorder: Recorder) -> Run[P]:
    async def run_and_record(asking: Asking, params: P) -> Answer:
        task = str(getattr(params, "task", None) or "")
        if not asking.admin or not (command.who == "admin" or asking.principal is None or task):
            return await run(asking, params)
        outcome = "failed"
        try:
            answer = await run(asking, params)
            outcome = "done"
        finally:
            recorder.record(
                Event(
                    kind="admin",
                    outcome=outcome,
                    principal=_OPERATOR if asking.principal is None else str(asking.principal),
                    subject=command.name,
                    task=task,
                )
            )
        return answer

    return run_and_record
