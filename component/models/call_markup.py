"""Removes the markup of tool calls from texts for people.

A call that could be made is not in the text any more (`written_calls`). What is left is a call that
is not whole, names no tool of the request, or comes in the middle of a text; nobody can read it.
"""

import re
from collections.abc import Callable
from typing import Final

from component.models.answer_limits import CALLS
from component.models.call_forms import OPENINGS, NoCallError, between, item

_MARKS: Final = ("<tool_call>", "[tool_calls]", "<|python_tag|>", *OPENINGS)
_LONGEST_MARK: Final = max(map(len, _MARKS))
_BEGINNINGS: Final = "|".join(map(re.escape, _MARKS))
_HARMONY: Final = (
    r"<\|(?:start|channel)\|>[^<>|\n]{0,80}?(?:<\|channel\|>[^<>|\n]{0,80}?)?\bto=[^\s<>|]++"
)
_MARKED: Final = re.compile(
    r"(?P<code>```(?!tool_c(?:ode|all)\b).*?(?:```|\Z)|`[^`\n]++`)"
    rf"|(?P<harmony>{_HARMONY})"
    rf"|(?P<call>{_BEGINNINGS}|<start_function_call>|<\|tool_call>|<longcat_tool_call>"
    r"|<\|tools_prefix\|>|<\|tool_call:begin\|>|<xai:function_call |<function\("
    r"|<[|\uff5c]tool[_\u2581]outputs?[_\u2581]begin[|\uff5c]>)"
    r"|(?P<bare>\bfunctools(?=\[\{))"
    # Ends of calls without a beginning, and of an answer.
    r"|(?P<end></(?:\w++:)?(?:tool_calls?|function_calls?)>|<[|\uff5c](?:tool[\w\u2581 :]*+end"
    r"|im_end|eot_id|eom_id|end_of_text|endoftext|role_end|(?:start|end)_response"
    r"|end\u2581of\u2581sentence)[|\uff5c]>|<start_function_response>|</s>\Z)",
    re.DOTALL | re.IGNORECASE,
)
_CLOSING: Final = re.compile(
    r"</(?:[|\uff5c]DSML[|\uff5c]|\w++:|longcat_)?(?:tool_calls?|toolcall|function_calls?|invoke"
    r"|function)>|<[|\uff5c](?:tool[\w\u2581 :]*+end|/tool_call|end_action|action_end|python_end"
    r"|tools_suffix)[|\uff5c]>"
    r"|<end_function_call>|<tool_call\|>|\n```(?![a-z])",
    re.IGNORECASE,
)
_HARMONY_END: Final = re.compile(r"<\|(?:call|end|return)\|>")
_PAYLOAD: Final = re.compile(r"\s*+(?:[\[{<(\"']|```|[\w.:/-]++\s*+(?:[\[{<>(`:\"]|\Z)|\Z)")
_PART_OF_END: Final = re.compile(r"\s*+(?:<[|\uff5c/]?[^\s<>]*+|`{1,3})\Z")
_BEGUN: Final = re.compile(r"begin[|\uff5c]>\s*+\Z|<tool_call>\s*+\Z", re.IGNORECASE)
_PART_OF_MARK: Final = re.compile(r"(?:<|\[|```)[^\s<>]{3,48}+\Z")
_UNOPENED: Final = re.compile(r"\{\s*+\"(?:name|type|function)\"\s*+:")


def without_calls(text: str, is_quoted: Callable[[str], bool] = lambda _: False) -> str:
    """Return a text without the markup of calls, except in code and where `is_quoted` says that the
    model was shown it.

    The texts around a call become paragraphs.
    """
    kept: list[str] = []
    at = begin = removed = 0
    while match := _MARKED.search(text, at):
        at = match.end()
        if match["code"]:
            continue
        if removed == CALLS:
            begin = len(text)
            break
        start = match.start()
        end = at if match["end"] else _end(text, match)
        if is_quoted(text[start:end].strip()):
            at = end
            continue
        removed += 1
        if match["end"]:
            start = _unopened(text, begin, start)
        kept.append(text[begin:start])
        at = begin = end
    if cut := _PART_OF_MARK.search(text, begin):
        beginning = cut[0].lower()
        if any(mark.startswith(beginning) for mark in _MARKS):
            removed += 1
            text = text[: cut.start()]
    if not removed:
        return text
    kept.append(text[begin:])
    return "\n\n".join([part.strip() for part in kept if part.strip()])


def _unopened(text: str, begin: int, end: int) -> int:
    """Where the call begins whose closing tag is at `end`; there, if none does."""
    found = list(_UNOPENED.finditer(text, begin, end))
    return found[-1].start() if found else end


def _end(text: str, match: re.Match[str]) -> int:
    """Where the markup ends that begins at a mark."""
    if match["harmony"]:
        closing = _HARMONY_END.search(text, match.end())
        return len(text) if closing is None else closing.end()
    end, is_call = _read(text, match.end() if match["bare"] else match.start())
    end = max(end, match.end())
    following = _MARKED.search(text, end)
    closing = _CLOSING.search(text, end)
    if closing is not None and (
        following is None or closing.start() <= following.start() or following["code"]
    ):
        return _read(text, closing.end())[0]
    if is_call and _PART_OF_END.match(text, end):
        return len(text)
    if is_call and not _BEGUN.search(text[max(match.start(), end - _LONGEST_MARK) : end]):
        return end
    return len(text) if _PAYLOAD.match(text, end) else end


def _read(text: str, at: int) -> tuple[int, bool]:
    """Read marks and whole calls; return where they end, and whether there was a call."""
    is_call = False
    for _ in range(CALLS):
        at = between(text, at)
        try:
            _, at = item(text, at)
        except NoCallError:
            break
        is_call = True
    return at, is_call
