"""The words by which the scanner knows what a sentence is about, in ten languages.

A word stands for ideas. They are written as they are after `component.agent.scanner_folds`: small
letters, no accents, no apostrophes. `*` at the end stands for any ending (of a phrase: a plural);
words of a phrase are joined by `_`. Chinese and Japanese words are found anywhere in a sentence.
The words of each idea are in a room by what they are about: orders, deeds, readers.
"""

from typing import Final

from component.agent import scanner_words_deeds as deeds
from component.agent import scanner_words_orders as orders
from component.agent import scanner_words_readers as readers

# What a word can stand for; a word may stand for several.
(
    FORGET,  # to no longer mind something
    ORDER,  # what a model is to mind
    PRIOR,  # that it came before
    YOUR,  # of the one who reads this
    TOLD,  # that somebody has told or given it
    EVERYTHING,
    FOLLOW,
    NOT,
    VOID,  # no longer in force
    INSTEAD,
    MODEL,  # a language model, an assistant
    USER,  # whom it works for
    SYSTEM,
    REVEAL,
    PROMPT,  # what the model was told at first
    SEND,
    SECRET,
    PLACE,  # an address on the net
    CALL,
    TOOL,
    ASK,
    HARM,  # what cannot be undone
    TELL,
    SECRETLY,
    YOU_ARE,
    NOW,
    PRETEND,
    FREE,  # without, free of
    LIMIT,
    UNBOUND,  # in itself: a model without limits
    MODE,
    MUST,
    IF_YOU_ARE,
    SAY,  # what a reader may be told to write
    REMEMBER,
    MEMORY,
    TALK,  # said of attacks rather than in one
    NOTE,
    COLON,
    COMMA,
    TO_YOU,
    GOAL,
    HERE,
    NEW,
    KNOW,
    START,
) = (1 << number for number in range(46))

DO: Final = FORGET | REVEAL | SEND | CALL | HARM | SAY | FOLLOW | REMEMBER
"""What a reader can be told to do."""

WORDS: Final[tuple[tuple[int, str], ...]] = (
    (FORGET, orders.FORGET),
    (ORDER, orders.ORDER),
    (PRIOR, orders.PRIOR),
    (YOUR, orders.YOUR),
    (TOLD, orders.TOLD),
    (EVERYTHING, orders.EVERYTHING),
    (FOLLOW, orders.FOLLOW),
    (NOT, orders.NOT),
    (VOID, orders.VOID),
    (INSTEAD, orders.INSTEAD),
    (MODEL, readers.MODEL),
    (USER, readers.USER),
    (SYSTEM, readers.SYSTEM),
    (REVEAL, deeds.REVEAL),
    (PROMPT, orders.PROMPT),
    (SEND, deeds.SEND),
    (SECRET, deeds.SECRET),
    (PLACE, deeds.PLACE),
    (CALL, deeds.CALL),
    (TOOL, deeds.TOOL),
    (ASK, deeds.ASK),
    (HARM, deeds.HARM),
    (TELL, deeds.TELL),
    (SECRETLY, deeds.SECRETLY),
    (YOU_ARE, readers.YOU_ARE),
    (NOW, readers.NOW),
    (PRETEND, readers.PRETEND),
    (FREE, readers.FREE),
    (LIMIT, readers.LIMIT),
    (UNBOUND, readers.UNBOUND),
    (MODE, readers.MODE),
    (MUST, orders.MUST),
    (IF_YOU_ARE, readers.IF_YOU_ARE),
    (SAY, deeds.SAY),
    (REMEMBER, deeds.REMEMBER),
    (MEMORY, deeds.MEMORY),
    (TALK, readers.TALK),
    (NOTE, readers.NOTE),
    (TO_YOU, readers.TO_YOU),
    (GOAL, readers.GOAL),
    (HERE, readers.HERE),
    (NEW, orders.NEW),
    (KNOW, readers.KNOW),
    (COLON, readers.COLON),
    (COMMA, readers.COMMA),
)
