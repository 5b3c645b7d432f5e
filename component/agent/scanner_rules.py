"""What a sentence must say to be suspicious, and how much it then counts."""

from collections.abc import Iterable
from typing import Final

import msgspec

from component.agent.scanner_words import (
    ASK,
    CALL,
    COLON,
    COMMA,
    DO,
    EVERYTHING,
    FOLLOW,
    FORGET,
    FREE,
    GOAL,
    HARM,
    HERE,
    IF_YOU_ARE,
    INSTEAD,
    KNOW,
    LIMIT,
    MEMORY,
    MODE,
    MODEL,
    MUST,
    NEW,
    NOT,
    NOTE,
    NOW,
    ORDER,
    PLACE,
    PRETEND,
    PRIOR,
    PROMPT,
    REMEMBER,
    REVEAL,
    SAY,
    SECRET,
    SECRETLY,
    SEND,
    START,
    SYSTEM,
    TELL,
    TO_YOU,
    TOLD,
    TOOL,
    UNBOUND,
    USER,
    VOID,
    YOU_ARE,
    YOUR,
)

ALARM: Final = 10
"""Points from which a text is suspicious."""

IGNORES: Final = "tells the model to ignore its instructions"
ADDRESSES: Final = "speaks to the model that reads it"
REVEALS: Final = "asks for the instructions of the model"
SENDS: Final = "asks for data to be sent somewhere"
CALLS: Final = "tells the model to use a tool"
PERSONA: Final = "tells the model to be somebody without rules"
CONCEALS: Final = "wants something kept from the user"
_MORE: Final = ""  # counts, and says nothing by itself


class Rule(msgspec.Struct, frozen=True, gc=False):
    """Ideas that follow each other within a number of words, and their points."""

    points: int
    reason: str
    words: int
    parts: tuple[int, ...]

    def holds(self, said: Iterable[tuple[int, int, bool]]) -> bool:
        """Whether the ideas of a sentence, each at its place, are those of the rule, in order.

        For each part the latest place is kept at which a chain up to that part began, so that one
        look at each word is enough.
        """
        began = [-1] * len(self.parts)
        last = len(self.parts) - 1
        for place, ideas, _ in said:
            for at in range(last, -1, -1):
                if ideas & self.parts[at]:
                    if at == 0:
                        began[0] = place
                    elif began[at - 1] >= 0:
                        began[at] = began[at - 1]
                    if at == last and 0 <= place - began[last] <= self.words and began[last] >= 0:
                        return True
        return False


RULES: Final = tuple(
    Rule(points, reason, words, tuple(parts))
    for points, reason, words, *parts in (
        (12, IGNORES, 9, FORGET, PRIOR, ORDER),
        (12, IGNORES, 9, FORGET, ORDER, PRIOR),
        (12, IGNORES, 12, PRIOR, ORDER, TO_YOU, FORGET | VOID),
        (12, IGNORES, 12, YOUR, PRIOR, ORDER, VOID),
        (12, IGNORES, 5, PRIOR, ORDER, FORGET),
        (6, IGNORES, 8, PRIOR, ORDER, VOID),
        (6, IGNORES, 8, ORDER, VOID),
        (12, IGNORES, 7, FORGET, YOUR, ORDER | PROMPT | GOAL),
        (12, IGNORES, 7, FORGET, ORDER, YOUR),
        (10, IGNORES, 5, FORGET, PROMPT),
        (12, IGNORES, 10, FORGET, EVERYTHING, TO_YOU, TOLD),
        (12, IGNORES, 12, FORGET, ORDER, TO_YOU, TOLD),
        (12, IGNORES, 12, FORGET, ORDER, TOLD, TO_YOU),
        (10, IGNORES, 7, FORGET, USER | SYSTEM),
        (10, IGNORES, 12, YOUR, ORDER | PROMPT, VOID),
        (10, IGNORES, 12, PROMPT, VOID | FORGET),
        (8, IGNORES, 12, YOUR, GOAL, VOID),
        (10, IGNORES, 12, LIMIT, TO_YOU, VOID),
        (8, IGNORES, 14, PRIOR, ORDER, TOLD, MODEL),
        (6, IGNORES, 10, FORGET, ORDER),
        (4, IGNORES, 6, FORGET, EVERYTHING),
        (8, IGNORES, 8, FOLLOW, NOT, USER),
        (8, IGNORES, 8, NOT, FOLLOW, USER),
        (5, IGNORES, 6, NOT, FOLLOW, ORDER),
        (4, IGNORES, 8, INSTEAD, DO),
        (4, _MORE, 6, FOLLOW, INSTEAD | HERE),
        (4, _MORE, 6, INSTEAD, FOLLOW),
        (6, IGNORES, 2, NEW, ORDER, COLON),
        (10, IGNORES, 4, START, NEW, ORDER, COLON),
        (6, IGNORES, 4, START, INSTEAD, COMMA, DO),
        (4, IGNORES, 6, YOUR, NEW, ORDER | GOAL),
        (10, ADDRESSES, 8, IF_YOU_ARE, MODEL),
        (6, ADDRESSES, 4, NOTE, MODEL),
        (10, ADDRESSES, 12, NOTE, MODEL, DO),
        (2, ADDRESSES, 0, MODEL),
        (6, ADDRESSES, 3, START, MODEL, COLON | COMMA),
        (10, ADDRESSES, 6, START, MODEL, COLON | COMMA, DO),
        (8, ADDRESSES, 12, MODEL, MUST, DO),
        (8, ADDRESSES, 8, MODEL, NOW, DO),
        (8, ADDRESSES, 8, YOUR, SAY, MUST),
        (3, _MORE, 0, HERE),
        (3, _MORE, 12, MUST, PLACE),
        (3, _MORE, 8, HARM, EVERYTHING),
        (4, REVEALS, 10, REVEAL, PROMPT),
        (10, REVEALS, 5, REVEAL, PROMPT),
        (10, REVEALS, 6, PROMPT, REVEAL),
        (10, REVEALS, 6, SEND, PROMPT),
        (10, REVEALS, 6, REVEAL, YOUR, ORDER),
        (8, REVEALS, 6, REVEAL, YOUR, SECRET | TOOL),
        (10, SENDS, 16, SEND, SECRET, PLACE),
        (10, SENDS, 16, SECRET, PLACE, SEND),
        (10, SENDS, 16, SECRET, SEND, PLACE),
        (6, SENDS, 10, SEND, USER, SECRET),
        (5, SENDS, 10, SEND, SECRET),
        (4, SENDS, 8, SEND | EVERYTHING, PLACE),
        (4, SENDS, 10, USER, SECRET),
        (7, CALLS, 5, CALL, TOOL),
        (4, CALLS, 5, CALL, HARM),
        (5, CALLS, 6, NOT, ASK),
        (3, _MORE, 3, NOT, ASK),
        (2, _MORE, 0, HARM),
        (10, CALLS, 12, REMEMBER, MEMORY),
        (10, PERSONA, 10, YOU_ARE | PRETEND, UNBOUND),
        (10, PERSONA, 12, YOU_ARE | PRETEND, FREE, LIMIT),
        (10, PERSONA, 12, MODEL, FREE, LIMIT),
        (10, PERSONA, 8, MODE, FREE | LIMIT),
        (8, PERSONA, 6, PRETEND, MODEL),
        (8, PERSONA, 8, YOU_ARE, NOW, MODEL | MODE | UNBOUND),
        (5, PERSONA, 4, YOU_ARE, NOW),
        (4, PERSONA, 6, NOW, YOU_ARE),
        (6, PERSONA, 0, MODE),
        (6, PERSONA, 0, UNBOUND),
        (2, _MORE, 8, FREE, LIMIT),
        (10, CONCEALS, 8, NOT, TELL, USER),
        (10, CONCEALS, 6, NOT, USER, TELL),
        (10, CONCEALS, 5, TELL, USER, NOT),
        (10, CONCEALS, 5, USER, NOT, KNOW),
        (10, CONCEALS, 6, SECRETLY, USER),
        (10, CONCEALS, 6, USER, SECRETLY),
        (10, CONCEALS, 10, SECRETLY, NOT, TELL),
        (5, CONCEALS, 0, SECRETLY),
        (4, CONCEALS, 6, NOT, TELL),
    )
)
