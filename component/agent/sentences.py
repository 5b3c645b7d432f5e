"""What the loop itself says to people. Plain sentences, without internals."""

from typing import Final

NO_MODEL: Final = (
    "I cannot think right now: my language model cannot be reached. Your message is kept; write"
    " again in a while."
)
REFUSED: Final = (
    "I cannot answer: my language model does not take my requests. That is for my operator to"
    " mend. Your message is kept."
)
TOO_LONG: Final = (
    "This conversation is too long for my language model, even shortened. /new begins a new one."
)
SHORTENED: Final = "[This conversation has become long; I go on with a shortened view of it.]"
STILL_AT_IT: Final = "This takes a while. I go on as soon as it is done."
TOO_MANY: Final = (
    "You have {count} messages waiting here, and I can keep no more. Write again when I have"
    " answered some."
)
NO_DISK: Final = (
    "I cannot write down what we say: my disk refuses. Your message is kept, and I answer as"
    " soon as that is mended."
)
BROKE: Final = "Something went wrong here, and I have no answer. It was written down to be mended."
EMPTY: Final = "I have no answer to that. Try to say it in other words."
FILTERED: Final = "The provider of my language model does not let me answer that."
NO_ROOM: Final = "My answer became too long and was cut off. Ask for a part of it."
CUT_OFF: Final = "[… the answer was too long and is cut off here]"
IN_CIRCLES: Final = "I was going round in circles and have stopped. Try to ask in another way."
STOPPED: Final = "Stopped."
NOTHING_TO_STOP: Final = "There is nothing to stop."

# For the model, kept in the history.
STOPPED_NOTE: Final = "The person has stopped this turn. Do not go on with it unless asked to."
STOPPED_CALL: Final = "The person has stopped this before it was done; it may have had effects."
WAITS_FOR_PERSON: Final = (
    "This waits for the person, who has been asked; it goes on as task {task}. The result will"
    " stand here."
)
GOES_ON: Final = "This takes long and goes on as task {task}. The result will stand here."
UNAVAILABLE: Final = "The tool cannot be reached now."
LATE: Final = (
    "What was called earlier ({names}) has just ended, and its result stands at the call. Other"
    " messages came between. The request was {request}. Go on with that now."
)
LOOP: Final = (
    "{pattern} That leads nowhere. Try something different, or answer with what you have; if it"
    " goes on, this turn ends."
)
