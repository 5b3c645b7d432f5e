"""From the lines of a session to the messages that a model is shown.

What belongs together is one block: a message, or a model's calls with their results. Blocks are
dropped or kept whole, so that no result is ever shown without its call.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

import msgspec

from component.agent.fences import Fence
from component.memory.lines import Called, Line, Note, Resulted, Said, Summary
from component.models.protocol import ChatMessage, ToolCall
from component.policy.taint import Taint

Tokens: TypeAlias = Callable[[str], int]
Scan: TypeAlias = Callable[[str], str | None]

_MESSAGE_TOKENS: Final = 4
"""What a message takes beside its text, about."""
EARLIER: Final = "Earlier in this conversation:"
NO_RESULT: Final = "Nothing is known of what came of this call."
_ORDER: Final[tuple[Taint, ...]] = ("person", "file", "peer", "web")


class Block(msgspec.Struct, frozen=True):
    """Messages that stay together.

    `own` ones are of the turn under way; `pinned` ones are kept whatever happens.
    """

    messages: tuple[ChatMessage, ...]
    tokens: int
    taints: frozenset[Taint] = frozenset()
    own: bool = False
    pinned: bool = False


class View(msgspec.Struct, frozen=True):
    """How lines are shown: `count` estimates tokens, `result_tokens` bounds each tool result.

    `turns` are the turn under way and the messages that joined it: what they say is pinned. `made`
    keeps the blocks of lines, since a turn shows the same ones again and again.
    """

    fence: Fence
    scan: Scan
    count: Tokens
    result_tokens: int
    turns: Collection[str] = ()
    made: dict[tuple[int, ...], Block] = msgspec.field(default_factory=dict)


def blocks(lines: Sequence[Line], view: View, summary: Summary | None = None) -> list[Block]:
    """Put lines into blocks, oldest first; `summary` stands for what was before them.

    The latest result of a call stands at its call, however late it came. A result whose call is
    not among the lines is left out. The lines have to live as long as the view.
    """
    results = {(line.turn, line.id): line for line in lines if isinstance(line, Resulted)}
    rounds: dict[tuple[str, int], list[Called]] = {}
    for line in lines:
        if isinstance(line, Called):
            rounds.setdefault((line.turn, line.round), []).append(line)
    made = view.made
    shown = [] if summary is None else [_single(summary, view)]
    for line in lines:
        if isinstance(line, Resulted):
            continue
        if not isinstance(line, Called):
            key: tuple[int, ...] = (id(line),)
            block = made.get(key)
            if block is None:
                block = made[key] = _single(line, view)
            shown.append(block)
            continue
        calls = rounds.pop((line.turn, line.round), None)
        if calls is not None:
            found = [results.get((call.turn, call.id)) for call in calls]
            key = (*map(id, calls), *map(id, found))
            block = made.get(key)
            if block is None:
                block = made[key] = _round(calls, found, view)
            shown.append(block)
    return shown


def _single(line: Said | Note | Summary, view: View) -> Block:
    taints: set[Taint] = set()
    own = not isinstance(line, Summary) and line.turn is not None and line.turn in view.turns
    pinned = False
    if isinstance(line, Said):
        taints.update(line.taints)
        if line.taint is not None:
            taints.add(line.taint)
        pinned = own and line.role == "user"
        content = line.content
        if line.role == "user" and line.taint not in (None, "person"):
            suspicion = view.scan(content)
            if suspicion is not None:
                content = view.fence.around(content, str(line.taint), suspicion)
        message = ChatMessage(line.role, content)
    elif isinstance(line, Note):
        message = ChatMessage("system", line.content)
        pinned = own
    else:
        taints.update(line.taints)
        earlier = view.fence.around(line.content, "a summary of what was said earlier")
        message = ChatMessage("system", f"{EARLIER}\n{earlier}")
    return _block((message,), taints, view.count, own, pinned)


def _round(calls: Sequence[Called], results: Sequence[Resulted | None], view: View) -> Block:
    taints: set[Taint] = set()
    asked = tuple(ToolCall(call.id, call.name, call.arguments) for call in calls)
    messages = [ChatMessage("assistant", calls[0].text, tool_calls=asked)]
    for call, result in zip(calls, results, strict=True):
        if result is None:
            content = NO_RESULT
        else:
            content = truncated(result.content, view.result_tokens, view.count)
            if result.taint is not None:
                taints.add(result.taint)
                content = view.fence.around(content, result.taint, view.scan(result.content))
        messages.append(ChatMessage("tool", content, tool_call_id=call.id))
    own = calls[0].turn in view.turns
    return _block(tuple(messages), taints, view.count, own, pinned=False)


def _block(
    messages: tuple[ChatMessage, ...],
    taints: Collection[Taint],
    count: Tokens,
    own: bool,
    pinned: bool,
) -> Block:
    tokens = sum(tokens_of(message, count) for message in messages)
    return Block(messages, tokens, frozenset(taints), own, pinned)


def tokens_of(message: ChatMessage, count: Tokens) -> int:
    """About how many tokens a message takes."""
    tokens = _MESSAGE_TOKENS + (count(message.content) if message.content else 0)
    for call in message.tool_calls:
        tokens += _MESSAGE_TOKENS + count(call.name) + count(call.arguments)
    return tokens


def truncated(text: str, most: int, count: Tokens) -> str:
    """A text of at most so many tokens: its middle is cut out, and a mark says so."""
    tokens = count(text)
    if tokens <= most:
        return text
    keep = len(text) * most // tokens
    while True:
        head, tail = keep - keep // 3, keep // 3
        left_out = len(text) - keep
        mark = f"\n[… {left_out} characters are left out here …]\n"
        cut = text[:head] + mark + text[len(text) - tail :]
        if keep == 0 or count(cut) <= most:
            return cut
        keep = keep * 9 // 10


def in_order(taints: Collection[Taint]) -> tuple[Taint, ...]:
    """Taints as they are written into a line."""
    return tuple(taint for taint in _ORDER if taint in taints)


def taints_of(lines: Collection[Line]) -> set[Taint]:
    """The taints of everything that these lines hold."""
    found: set[Taint] = set()
    for line in lines:
        if isinstance(line, Said | Summary):
            found.update(line.taints)
        if isinstance(line, Said | Resulted) and line.taint is not None:
            found.add(line.taint)
    return found
