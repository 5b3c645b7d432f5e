"""The places where delegated work ends, and gets a receipt: a result, a task, a failure.

The feature that signs receipts sets `TaskRuntime.make_receipt`.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from component.store.database import Database
from component.tasks.request import Request
from xep.fluux_agent.execute import Result, State
from xep.fluux_agent.grant import SignedReceipt
from xep.fluux_agent.task import Failure

D = TypeVar("D")


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the work of a delegated request has ended.

    `task` is its id; `database` is there with it, for what else is known of the task.
    """

    request: Request
    state: State
    outcome: Result | Failure
    task: str = ""
    database: Database | None = None


MakeReceipt: TypeAlias = Callable[[Ending], SignedReceipt | None]


def with_receipt(
    make: MakeReceipt | None,
    request: Request,
    detail: D,
    state: State = "completed",
    at: tuple[str, Database] | None = None,
) -> D:
    """Return the end of a request with its receipt, if another agent has delegated the work. `at`
    has the id of the task, and the database.
    """
    if (
        make is None
        or request.delegation is None
        or request.origin != "iq"
        or not isinstance(detail, Result | Failure)
    ):
        return detail
    task, database = at or ("", None)
    receipt = make(
        Ending(request=request, state=state, outcome=detail, task=task, database=database)
    )
    return msgspec.structs.replace(detail, receipt=receipt)
