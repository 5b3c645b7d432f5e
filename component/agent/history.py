"""Converts the lines of a session to the messages of a prompt.

Messages that belong together are one block: a message, or a model's calls with their results.
Blocks are kept or dropped as a whole, so that no result is ever shown without its call.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from component.agent.untrusted_text import Fence
from component.conversations.lines import (
    IMAGE_TOKENS,
    Attachment,
    Called,
    Line,
    Note,
    Resulted,
    Said,
    Summary,
    Told,
)
from component.memory.store import Remembered
from component.models.contents import without_parts
from component.models.messages import (
    FilePart,
    ImagePart,
    ModelMessage,
    OpaquePart,
    Part,
    TextPart,
    ToolCall,
    ToolResultPart,
    text_message,
)
from component.policy.taint import Taint

Tokens: TypeAlias = Callable[[str], int]

_MESSAGE_TOKENS: Final = 4
"""About how many tokens a message takes in addition to its text."""
_BYTES_PER_TOKEN: Final = 4
_SURPLUS: Final = 64
"""Cached blocks of lines that are not shown any more."""
EARLIER: Final = "Earlier in this conversation:"
FROM_OPERATOR: Final = (
    "[This is from {operator}, who operates this service, and not from the person. The person gets"
    " your answer.]"
)
NO_RESULT: Final = "The outcome of this call is unknown."
MEMORIES: Final = "[Memories that may be relevant to this message:]"
LATE_RESULT: Final = (
    "[This is from the service, and not from the person: the result of {name}, which was called"
    " earlier.]"
)
FILE: Final = "[The file {name} ({kind}, {size})"
UNREAD: Final = "is not shown to you: {why} The service tells the person after your answer.]"
NOT_AGAIN: Final = "is not shown again, because there are many images; file_read shows it.]"
DELETED: Final = "was deleted since.]"
REST: Final = "[… {rest} more characters are in the file; file_read reads them from start={start}.]"
RETRACTED: Final = "[The person has retracted this message.]"
OVERHEARD: Final = (
    "[What others have written here before this message, the oldest first. It is not for you:]"
)
TOLD: Final = "[The service has told the person: {notice}]"
_ORDER: Final[tuple[Taint, ...]] = ("person", "file", "room", "peer", "web")


class Block(msgspec.Struct, frozen=True):
    """Messages that stay together.

    `own` ones belong to the running turn; `pinned` ones are always kept.
    """

    messages: tuple[ModelMessage, ...]
    tokens: int
    taints: frozenset[Taint] = frozenset()
    own: bool = False
    pinned: bool = False


MadeBlocks: TypeAlias = dict[tuple[int, ...], tuple[Block, Sequence[Line | None]]]


class View(msgspec.Struct, frozen=True):
    """How lines are shown: `count` estimates tokens, `result_tokens` limits each tool result whose
    line does not say how much of it is shown.

    `turns` are the running turn and the messages that joined it: their texts are pinned. `memories`
    are the stored ones, by key and digest; others are not shown any more. `omitted` are the digests
    of parts that are not shown. `files` are the contents of files of messages, by their digests;
    None for one that was deleted.

    `made` caches the blocks of this turn, which it shows repeatedly, and `earlier` those of other
    turns, which the next turn shows as well. Each has the lines that it was made of, so that no
    other line gets their identity.
    """

    fence: Fence
    count: Tokens
    result_tokens: int
    turns: Collection[str] = ()
    memories: Mapping[tuple[str, str], Remembered] = msgspec.field(default_factory=dict)
    omitted: frozenset[str] = frozenset()
    files: Mapping[str, "str | ImagePart | None"] = msgspec.field(default_factory=dict)
    made: MadeBlocks = msgspec.field(default_factory=dict)
    earlier: MadeBlocks = msgspec.field(default_factory=dict)


def blocks(lines: Sequence[Line], view: View, summary: Summary | None = None) -> list[Block]:
    """Convert lines to blocks, oldest first; `summary` replaces the lines before them.

    The latest result of a call follows its call. A late result stays where its line is, because
    requests without it have been sent before. Other results whose call is not among the lines are
    left out.
    """
    results: dict[tuple[str, str], Resulted] = {}
    rounds: dict[tuple[str, int], list[Called]] = {}
    for line in lines:
        if isinstance(line, Called):
            rounds.setdefault((line.turn, line.round), []).append(line)
        elif isinstance(line, Resulted) and not line.late:
            results[line.turn, line.id] = line
    shown: list[Block] = []
    earlier: tuple[Line, ...] = () if summary is None else (summary, *summary.requests)
    for line in (*earlier, *lines):
        calls: list[Called] | None = None
        found: list[Resulted | None] = []
        if isinstance(line, Called):
            calls = rounds.pop((line.turn, line.round), None)
            if calls is None:
                continue
            found = [results.get((call.turn, call.id)) for call in calls]
        elif (isinstance(line, Resulted) and not line.late) or (
            isinstance(line, Note) and line.omitted
        ):
            continue
        of = (line,) if calls is None else (*calls, *found)
        # A memory or a file may be deleted before the next turn.
        is_own = line.turn in view.turns or (
            isinstance(line, Said) and (line.memories or line.attachments)
        )
        made = view.made if is_own else view.earlier
        key = tuple(map(id, of))
        entry = made.get(key)
        if entry is None:
            if isinstance(line, Called):
                block = _round(calls or (), found, view)
            else:
                block = _single(line, view)
            entry = made[key] = block, of
        shown.append(entry[0])
    if len(view.earlier) > 2 * len(shown) + _SURPLUS:
        view.earlier.clear()
    return shown


def _single(line: Said | Note | Summary | Resulted | Told, view: View) -> Block:
    own = line.turn is not None and line.turn in view.turns
    pinned = own and (isinstance(line, Note | Resulted) or _is_request(line))
    messages: tuple[ModelMessage, ...]
    match line:
        case Said(role="user"):
            messages = (_message(line, view),)
        case Said():
            messages = _answer(line, view)
        case Note():
            messages = (text_message("system", line.content),)
        case Summary():
            earlier = view.fence.around(line.content, "a summary of what was said earlier")
            text = f"{EARLIER}\n{earlier}"
            messages = (text_message("system", f"{text}\n\n{line.context}".rstrip()),)
        case Told():
            messages = (text_message("user", _told(line, view)),)
        case Resulted():
            told = f"{LATE_RESULT.format(name=view.fence.value(line.late))}\n"
            messages = (ModelMessage("user", (TextPart(told), *_result(line, view))),)
    return _block(messages, read_taints([line]), view.count, own, pinned)


def _is_request(line: object) -> bool:
    return isinstance(line, Said) and line.role == "user"


def _message(line: Said, view: View) -> ModelMessage:
    """Return a message; its context is a separate part before it."""
    content = line.content
    if not content and line.turn is not None:
        content = RETRACTED
    if line.finding:
        content = view.fence.around(content, str(line.taint), line.finding)
    if line.operator is not None:
        content = f"{FROM_OPERATOR.format(operator=line.operator)}\n{content}"
    shown = [
        view.fence.around(memory.text, memory.taint or "our memory", one.finding)
        for one in line.memories
        if (memory := view.memories.get((one.key, one.digest))) is not None
    ]
    before = [line.context] if line.context else []
    if line.overheard:
        before.append(_overheard(line, view.fence))
    if shown:
        before.append("\n".join([MEMORIES, *shown]))
    files = [part for one in line.attachments for part in _file(one, view)] if line.content else []
    if not before and not files:
        return text_message("user", content)
    context = "\n\n".join(before)
    return ModelMessage(
        "user",
        (*([TextPart(f"{context}\n\n")] if before else []), TextPart(content), *files),
    )


def _file(one: Attachment, view: View) -> Sequence[TextPart | ImagePart | FilePart]:
    """Return what the model is shown of a file."""
    name = view.fence.value(one.filename)
    head = "\n\n" + FILE.format(name=name, kind=one.mime_type, size=one.size)
    content = view.files.get(one.digest)
    if one.unread:
        return (TextPart(f"{head} {UNREAD.format(why=view.fence.value(one.unread))}"),)
    if content is None:
        return (TextPart(f"{head} {DELETED}"),)
    if isinstance(content, ImagePart):
        return (TextPart(f"{head}:]\n"), *without_parts((content,), view.omitted))
    if one.is_image:
        return (TextPart(f"{head} {NOT_AGAIN}"),)
    rest = "\n" + REST.format(rest=one.rest, start=one.shown) if one.rest else ""
    fenced = view.fence.around(content[: one.shown], "file", one.finding)
    return (TextPart(f"{head}:]\n{fenced}{rest}"),)


def _overheard(line: Said, fence: Fence) -> str:
    shown = [
        f"{fence.value(one.nick)} {one.sent}".rstrip()
        + "\n"
        + fence.around(one.text, "room", one.finding)
        for one in line.overheard
    ]
    return "\n".join([OVERHEARD, *shown])


def _answer(line: Said, view: View) -> tuple[ModelMessage, ...]:
    messages = []
    if parts := without_parts(line.parts, view.omitted):
        messages.append(ModelMessage("assistant", parts))
    elif line.content or not line.notice:
        messages.append(text_message("assistant", line.content))
    if line.notice:
        messages.append(text_message("system", TOLD.format(notice=line.notice)))
    return tuple(messages)


def _result(line: Resulted, view: View) -> tuple[TextPart | ImagePart | FilePart, ...]:
    if line.shown is None:
        content = truncated(line.content, view.result_tokens, view.count)
    else:
        content = shortened(line.content, line.shown)
    if line.taint is not None or line.late:
        content = view.fence.around(content, line.taint or "a tool", line.finding)
    return (TextPart(content), *without_parts(line.parts, view.omitted))


def _told(line: Told, view: View) -> str:
    content = line.content if line.shown is None else shortened(line.content, line.shown)
    files = [f"[File: {one.file.name or 'file'}]" for one in line.files]
    said = "\n".join(filter(None, (content, *files)))
    fenced = view.fence.around(said, line.taint or "your message", line.finding)
    return f"[{line.context}]\n{fenced}"


def _round(calls: Sequence[Called], results: Sequence[Resulted | None], view: View) -> Block:
    taints: set[Taint] = set()
    answered: list[Part] = []
    for call in calls:
        before = call.before or ((TextPart(call.text),) if call.text else ())
        answered += without_parts(before, view.omitted)
        answered.append(ToolCall(call.id, call.name, call.arguments))
    messages = [ModelMessage("assistant", tuple(answered))]
    for call, result in zip(calls, results, strict=True):
        shown = (TextPart(NO_RESULT),) if result is None else _result(result, view)
        if result is not None:
            taints |= read_taints((result,))
        is_error = result is not None and result.is_error
        messages.append(ModelMessage("tool", (ToolResultPart(call.id, shown, is_error),)))
    own = calls[0].turn in view.turns
    return _block(tuple(messages), taints, view.count, own, pinned=False)


def _block(
    messages: tuple[ModelMessage, ...],
    taints: Collection[Taint],
    count: Tokens,
    own: bool,
    pinned: bool,
) -> Block:
    tokens = sum(tokens_of(message, count) for message in messages)
    return Block(messages, tokens, frozenset(taints), own, pinned)


def tokens_of(message: ModelMessage, count: Tokens) -> int:
    """About how many tokens a message takes."""
    return _MESSAGE_TOKENS + sum(_part_tokens(part, count) for part in message.parts)


def _part_tokens(part: Part, count: Tokens) -> int:
    match part:
        case TextPart(text):
            return count(text) if text else 0
        case ToolCall(_, name, arguments):
            return _MESSAGE_TOKENS + count(name) + count(arguments)
        case ToolResultPart(_, parts):
            return sum(_part_tokens(each, count) for each in parts)
        case OpaquePart(_, data):
            # Mostly reasoning in words; signatures have fewer tokens than this.
            return len(bytes(data)) // _BYTES_PER_TOKEN
        case ImagePart():
            return IMAGE_TOKENS
        case FilePart(_, _, data):
            return len(data) // _BYTES_PER_TOKEN


def readable_size(size: int) -> str:
    """Return a size in bytes for people, such as `926KB`."""
    if size < 1000:
        return f"{size}B"
    return f"{round(size / 1000)}KB" if size < 1_000_000 else f"{size / 1_000_000:.1f}MB"


def truncated(text: str, most: int, count: Tokens) -> str:
    """Shorten a text to at most so many tokens; a mark replaces its middle."""
    keep = kept_characters(text, most, count)
    return text if keep is None else shortened(text, keep)


def kept_characters(text: str, most: int, count: Tokens) -> int | None:
    """Return how many characters `shortened` may keep so that a text has at most so many tokens;
    None for all of them.
    """
    tokens = count(text)
    if tokens <= most:
        return None
    keep = len(text) * most // tokens
    while keep and count(shortened(text, keep)) > most:
        keep = keep * 9 // 10
    return keep


def shortened(text: str, keep: int) -> str:
    """Keep so many characters of a text; a mark replaces its middle."""
    left_out = len(text) - keep
    if left_out <= 0:
        return text
    tail = keep // 3
    mark = f"\n[… {left_out} characters are left out here …]\n"
    return text[: keep - tail] + mark + text[len(text) - tail :]


def in_order(taints: Collection[Taint]) -> tuple[Taint, ...]:
    """Return taints in the order in which lines store them."""
    return tuple(taint for taint in _ORDER if taint in taints)


def taints_of(lines: Collection[Line]) -> set[Taint]:
    """Return the taints of everything in these lines."""
    found: set[Taint] = set()
    for line in lines:
        if isinstance(line, Said | Resulted | Summary | Told):
            found.update(line.taints)
        if isinstance(line, Said | Resulted | Told) and line.taint is not None:
            found.add(line.taint)
    return found


def read_taints(lines: Collection[Line]) -> set[Taint]:
    """Return the taints that these lines give to the calls of a model that reads them.

    What a search says of skills counts like the descriptions of tools, which they are then: for
    each call it is examined whether their authors may have chosen where it goes
    (`component.tools.tainted_calls`).
    """
    return taints_of([one for one in lines if not (isinstance(one, Resulted) and one.found)])
