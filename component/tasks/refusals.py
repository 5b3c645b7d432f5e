"""What people and models read about a refusal: its text, and whether anything leads to another
answer (ERR-008).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from xep.binding import Payload
from xep.fluux_agent.errors import BudgetExhausted, Denied, Helps, helps_of

_HELP: Final[Mapping[Helps, str]] = {
    "nothing": "Asking again does not change this.",
    "approval": "Somebody else can still allow it.",
    "later": "It may be possible later.",
    "budget": "It is possible with a larger budget.",
}


def with_help(text: str, conditions: Iterable[Payload]) -> str:
    """Return the text of an error or a failure with a sentence that says what helps.

    Only `<denied/>` and `<budget-exhausted/>` get one: the texts of the others say it.
    """
    said = [one for one in conditions if isinstance(one, Denied | BudgetExhausted)]
    helps = helps_of(said)
    if helps is None:
        return text
    text = text.rstrip()
    return f"{text}{'' if text.endswith(('.', '!', '?', '…')) else '.'} {_HELP[helps]}"
