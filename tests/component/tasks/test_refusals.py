"""What people and models read about refusals."""

import pytest

from component.tasks.refusals import with_help
from xep.binding import Payload, encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.errors import BudgetExhausted, Denied, Retry
from xep.stanza_error import StanzaError


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        (Denied(), "No. Asking again does not change this."),
        (Denied(helps="approval"), "No. Somebody else can still allow it."),
        (BudgetExhausted(), "No. It is possible with a larger budget."),
        (BudgetExhausted(helps="later"), "No. It may be possible later."),
        (Retry(after=3), "No"),
        (errors.Internal(), "No"),
    ],
)
def test_what_helps_is_said_for_each_refusal(condition: Payload, sentence: str) -> None:
    assert with_help("No", (condition,)) == sentence


def test_what_helps_is_on_the_wire_and_has_a_default() -> None:
    assert " helps='nothing'" in encode(Denied())
    assert (
        read(f"<budget-exhausted xmlns='{errors.NAMESPACE}'/>", BudgetExhausted).helps == "budget"
    )


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (errors.denied(), "nothing"),
        (errors.denied("approval"), "approval"),
        (errors.budget_exhausted(), "budget"),
        (errors.confirmation_unavailable(), "approval"),
        (errors.confirmation_expired(), "approval"),
        (errors.busy(3), "later"),
        (errors.loop(), "nothing"),
        (errors.invalid_grant("revoked", ""), "nothing"),
        (errors.internal(), None),
        (errors.malformed(""), None),
    ],
)
def test_what_helps_follows_from_the_other_conditions(
    error: StanzaError, helps: str | None
) -> None:
    assert errors.helps_of(error.application) == helps
