"""What a completion amounts to: calls, an answer, or a reason to ask once more."""

import msgspec

from component.agent import prompt, sentences
from component.models.protocol import Completion, ToolCall


class Weighed(msgspec.Struct, frozen=True):
    """One of three: `calls` to make, an `answer`, or `again`, a note with which to ask once more.

    `partial` is the answer so far, which the next completion goes on with.
    """

    calls: tuple[ToolCall, ...] = ()
    answer: str = ""
    again: str = ""
    partial: str = ""


def weigh(completion: Completion, *, partial: str, retried: bool, tools: bool) -> Weighed:
    """Weigh a completion.

    `partial` is what an answer that was cut off had before, `retried` whether the model was asked
    again in this turn, `tools` whether it may call any; if not, this was its last word. What is
    empty or cut off is asked for once more; then the person gets what there is, or a sentence.
    """
    text = partial + completion.text
    cut_off = completion.finish == "length"
    calls = completion.tool_calls if tools and completion.finish != "content_filter" else ()
    if calls:
        if not cut_off or all(_whole(call.arguments) for call in calls):
            return Weighed(calls=calls)
        if not retried:
            return Weighed(again=prompt.CUT_CALLS)
        return Weighed(answer=text if text.strip() else sentences.NO_ROOM)
    if completion.finish == "content_filter":
        return Weighed(answer=text if text.strip() else sentences.FILTERED)
    if not text.strip():
        if not tools:
            return Weighed(answer=sentences.IN_CIRCLES)
        if not retried:
            return Weighed(again=prompt.EMPTY)
        return Weighed(answer=sentences.NO_ROOM if cut_off else sentences.EMPTY)
    if cut_off:
        if tools and not partial and not retried:
            return Weighed(again=prompt.CONTINUE, partial=text)
        return Weighed(answer=f"{text}\n{sentences.CUT_OFF}")
    return Weighed(answer=text)


def _whole(arguments: str) -> bool:
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True
