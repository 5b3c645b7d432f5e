"""Fixed texts of the agent loop, for people and for the model."""

from typing import Final

_WITHOUT_MODEL: Final = "Meanwhile, /skills lists what I can do without it, and /run does it."
NO_MODEL: Final = (
    "I can't reach my language model right now. Your message is saved; please write again later."
    f" {_WITHOUT_MODEL}"
)
REFUSED: Final = (
    "I can't answer, because my language model rejects my requests. My operator has"
    f" to fix that. Your message is saved. {_WITHOUT_MODEL}"
)
WHY_NO_MODEL: Final = " You are an admin: xmpp-agent doctor and the log of the service say why."
TOO_LONG: Final = (
    "This conversation is too long for my language model, even when shortened. Send"
    " /new to start a new one."
)
SHORTENED: Final = (
    "[This conversation has become long. From here on I see a shortened version of it.]"
)
STILL_AT_IT: Final = "This is taking a while. I'll answer as soon as it is done."
TOO_MANY: Final = (
    "You have {count} messages waiting here, which is the maximum. Please write"
    " again when I have answered some of them."
)
NO_DISK: Final = (
    "I can't save this conversation, because my storage is temporarily unavailable."
    " Your message is not lost: I'll answer as soon as the storage is back."
)
TOO_MANY_IMAGES: Final = (
    "I did not look at {name}: there are more pictures in your message than I can see at a time."
)
NO_FILES: Final = "I could not take a file that you have sent, because of an error on my side."
BROKE: Final = "Something went wrong, and I have no answer. The error has been logged."
EMPTY: Final = "I have no answer to that. Please try to rephrase it."
FILTERED: Final = "The provider of my language model does not allow me to answer that."
NO_ROOM: Final = "My answer became too long and was cut off. Please ask for a part of it."
REASONED: Final = (
    "I thought about that for so long that there was no room left for an answer. Please ask for"
    " less at once."
)
CUT_OFF: Final = "[… the answer was too long and is cut off here]"
NO_ANSWER: Final = (
    "I reached the limit for one request before I had an answer. Please ask for a part of it, or"
    " write again to go on."
)
ASKED: Final = "This needs a confirmation first. I have asked for it."
NOTHING_MORE: Final = "[I have nothing more to say.]"
STOPPED: Final = "Stopped."
STOPPED_UNSAVED: Final = (
    "Stopped. My storage is temporarily unavailable, so I would go on with it if I were restarted"
    " before it works again."
)
NOTHING_TO_STOP: Final = "There is nothing to stop."

# For the model, kept in the history.
STOPPED_NOTE: Final = (
    "The person has stopped this turn. Do not continue it unless you are asked to."
)
STOPPED_CALL: Final = "The person has stopped this before it was done; it may have had effects."
CORRECTED: Final = (
    "The person has corrected a message after you made the calls above; it is shown as it is now."
    " Make other calls if it needs them."
)
CORRECTED_CALL: Final = "This was not done, because the person has corrected the message."
WAITS_FOR_PERSON: Final = (
    "This waits for the person, who has been asked; it continues as task {task}. The result will"
    " be here."
)
GOES_ON: Final = "This takes long and continues as task {task}. The result will be here."
LATE: Final = (
    "The calls that you made earlier ({names}) have just ended; their results are above. Other"
    " messages came in between. It is now {now}. The {requests}. Continue with that now."
)
RESUMED: Final = "The tasks that this turn waited for have ended. It is now {now}."
