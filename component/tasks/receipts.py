"""The places where delegated work ends, and gets a receipt: a result, a task, a failure, an error.

The feature that signs receipts sets `TaskRuntime.make_receipt`. Work whose outcome is unknown gets
none: nobody can sign what it has done.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

import msgspec

from component.store.database import Database
from component.tasks.request import Request
from xep.binding import Payload
from xep.fluux_agent.errors import OutcomeUnknown
from xep.fluux_agent.execute import Result, State
from xep.fluux_agent.grant import SignedReceipt
from xep.fluux_agent.task import Failure
from xep.stanza_error import StanzaError

D = TypeVar("D")


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the work of a delegated request has ended.

    `result` is there if it was completed. `work` is the id of the run, whose costs are known by it.
    `database` is there if that is the id of a task, for what else is known of the task.
    """

    request: Request
    state: State
    result: Result | None = None
    work: str = ""
    database: Database | None = None


MakeReceipt: TypeAlias = Callable[[Ending], SignedReceipt | None]


def with_receipt(
    make: MakeReceipt | None, request: Request, answer: Result | StanzaError, work: str = ""
) -> Result | StanzaError:
    """Return the answer to a request with its receipt, if another agent has delegated the work.
    `work` is the id of the run.
    """
    if make is None or not _is_delegated(request):
        return answer
    if isinstance(answer, Result):
        receipt = make(Ending(request=request, state="completed", result=answer, work=work))
        return msgspec.structs.replace(answer, receipt=receipt)
    if _is_unknown(answer.application):
        return answer
    return error_with(answer, make(Ending(request=request, state="failed", work=work)))


def end_with_receipt(
    make: MakeReceipt, request: Request, detail: D, state: State, at: tuple[str, Database]
) -> D | Result | Failure:
    """Return the end of a task with its receipt, if another agent has delegated the work. `at` has
    the id of the task, and the database.

    A cancelled task, which has no detail, gets a failure without a condition for the receipt.
    """
    result = detail if isinstance(detail, Result) else None
    failure = detail if isinstance(detail, Failure) else Failure()
    if not _is_delegated(request) or _is_unknown(failure.conditions):
        return detail
    task, database = at
    ending = Ending(request=request, state=state, result=result, work=task, database=database)
    receipt = make(ending)
    if receipt is None:
        return detail
    return msgspec.structs.replace(result or failure, receipt=receipt)


def error_with(error: StanzaError, receipt: SignedReceipt | None) -> StanzaError:
    """Return an error with a receipt."""
    return error if receipt is None else error.copy(receipt)


def receipt_in(error: StanzaError) -> SignedReceipt | None:
    """Return the receipt in an error."""
    return next((one for one in error.application if isinstance(one, SignedReceipt)), None)


def _is_delegated(request: Request) -> bool:
    return request.delegation is not None and request.origin == "iq"


def _is_unknown(conditions: Iterable[Payload]) -> bool:
    return any(isinstance(one, OutcomeUnknown) for one in conditions)
