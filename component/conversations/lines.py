"""The lines of a session file.

The file is that of Fluux Agent: a header, then one JSON object a line. Its `message` lines are read
and written as there; `call`, `result`, `told`, `summary`, `note` and `correction` are added by this
service.

The part of a prompt that shows a line depends on nothing but the line. So the beginning of a prompt
does not change, and providers can cache it. For this reason a line stores its context in the
prompt, too.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from component.memory_directory.files import MemoryStoreError
from component.models.messages import FilePart, ImagePart, OpaquePart, TextPart
from component.policy.taint import Taint
from xep.file_sharing import FileSharing


class Header(msgspec.Struct, frozen=True, tag="session", omit_defaults=True):
    """The first line. `created` is a time of RFC 3339, `jid` the other side's."""

    version: int
    created: str
    jid: str


IMAGE_TOKENS: Final = 1600
"""About how many tokens providers count for an image, which they scale down."""


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that came with a message; `size` is written for people, as `926KB`.

    Its content is not copied, so nothing remains here of a file that its owner deletes.

    Attributes:
        digest: the SHA-256 of its content, in hex, under which it is stored; a field of this
            project, like the following.
        unread: why the model cannot read it, as a sentence.
        shown: the number of characters of its text in the prompt.
        rest: the number of characters after them.
        finding: the finding of the scanner in its text.
    """

    filename: str
    mime_type: str = "unknown"
    size: str = "unknown"
    digest: str = ""
    unread: str = ""
    shown: int = 0
    rest: int = 0
    finding: str = ""

    @property
    def is_image(self) -> bool:
        """Whether it is an image that the model sees."""
        return bool(self.digest) and not self.unread and self.mime_type.startswith("image/")

    @property
    def tokens(self) -> int:
        """About how many tokens of the prompt it takes."""
        return IMAGE_TOKENS if self.is_image else self.shown // 4


class Reaction(msgspec.Struct, frozen=True):
    """Emojis under a message (XEP-0444); their line has no content."""

    message_id: str
    emojis: tuple[str, ...] = ()


class ShownMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory in the context of a message.

    Its text is not copied, so nothing remains here of a memory that its owner deletes or changes.

    Attributes:
        key: its key.
        digest: `Remembered.digest` of its text.
        size: the number of characters of its text.
        finding: the finding of the scanner in it.
    """

    key: str
    digest: str
    size: int
    finding: str = ""


class OverheardLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of others that the agent has read in a room before one that was for it.

    Attributes:
        nick: the nickname of its author.
        text: its text.
        sent: when it was sent, as the prompt shows it.
        id: the stanza id that the room gave it.
        finding: the finding of the scanner in it.
    """

    nick: str
    text: str
    sent: str = ""
    id: str = ""
    finding: str = ""


class Said(msgspec.Struct, frozen=True, tag="message", omit_defaults=True, kw_only=True):
    """A message of a person or of the agent.

    Attributes:
        ts: a time of RFC 3339.
        sender: the sender, if it is not the agent: a bare JID, or what identifies an occupant of a
            room.
        nick: the nickname of the sender in a room.
        stanza_id: the id that the room gave the message.
        overheard: what others have written in the room before it.
        turn: the turn that it belongs to; a field of this project.
        final: marks the answer that ends a turn. Tokens and US dollars are those of its model call.
        taint: the taint of a message.
        taints: for an answer, those of everything that the model had read; for a message, those of
            its `context`, and of everything that a model had read that wrote it.
        operator: the operator who sent it: the bare JID of an admin, or `operator`.
        parts: the parts of an answer with more than text, in order; `content` has its texts.
        context: the context of a message in the prompt: the time, notes.
        memories: the memories in the context, as long as they are stored and unchanged.
        notes: digest of the notes on the person in `context`; empty if it has none.
        fence: the word of the fences in this session, in messages only.
        finding: the finding of the scanner in a message.
        notice: a sentence of the service that the person got after the text, or instead of it if
            `content` is empty.
        files: the files that the person got after the text of an answer.
    """

    role: Literal["user", "assistant"]
    content: str
    msg_id: str | None = None
    sender: str | None = None
    ts: str | None = None
    attachments: tuple[Attachment, ...] = ()
    reaction: Reaction | None = None
    turn: str | None = None
    final: bool = False
    taint: Taint | None = None
    taints: tuple[Taint, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    operator: str | None = None
    parts: tuple[TextPart | OpaquePart, ...] = ()
    context: str = ""
    memories: tuple[ShownMemory, ...] = ()
    notes: str = ""
    fence: str = ""
    finding: str = ""
    files: tuple[FileSharing, ...] = ()
    notice: str = ""
    nick: str = ""
    stanza_id: str = ""
    overheard: tuple[OverheardLine, ...] = ()

    @property
    def sent_text(self) -> str:
        """The message that the person got: the text and the notice."""
        return "\n".join(part for part in (self.content, self.notice) if part)


class Called(msgspec.Struct, frozen=True, tag="call", omit_defaults=True, kw_only=True):
    """A tool that the model has called; `round` counts its answers within the turn, from 0.

    Attributes:
        text: the text of the answer with the calls, in the first call of the round.
        before: the parts of the answer before this call, in order, if there is more than text.
            `text` repeats their texts for readers that do not know parts.
    """

    turn: str
    round: int
    id: str
    name: str
    arguments: str
    text: str = ""
    before: tuple[TextPart | OpaquePart, ...] = ()
    ts: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Resulted(msgspec.Struct, frozen=True, tag="result", omit_defaults=True, kw_only=True):
    """The result of a call. A later line of the same call replaces an earlier one.

    Attributes:
        taints: those of everything that a sub-agent had read that wrote it.
        task: the task that the call waits for, while `content` is not a result yet.
        parts: images and files of the result.
        files: files of the result that the person gets with the answer.
        shown: the number of characters of `content` in the prompt, if not all.
        finding: the finding of the scanner in `content`.
        late: the name of the tool, if the result came after other messages. It stays in its place,
            and the placeholder at the call stays, too.
        not_made: the call certainly had no effect.
        found: the names of the skills that a search has found, and that `content` describes.
    """

    turn: str
    id: str
    content: str
    is_error: bool = False
    taint: Taint | None = None
    taints: tuple[Taint, ...] = ()
    task: str | None = None
    ts: str | None = None
    parts: tuple[ImagePart | FilePart, ...] = ()
    files: tuple[FileSharing, ...] = ()
    shown: int | None = None
    finding: str = ""
    late: str = ""
    not_made: bool = False
    found: tuple[str, ...] = ()


class Told(msgspec.Struct, frozen=True, tag="told", omit_defaults=True, kw_only=True):
    """A message that the agent has sent by itself, such as the result of a schedule: the person has
    not asked for it in this conversation, and no turn has written it.

    Attributes:
        id: identifies the message.
        content: its text, which the service, a skill or anybody else has written.
        context: what it is and when it was sent, for the prompt.
        taint: the worst taint of the text.
        taints: all of them.
        shown: the number of characters of `content` in the prompt, if not all.
        finding: the finding of the scanner in `content`.
        files: the files that the person got with it.
        ts: when it was sent.
    """

    turn: ClassVar[None] = None
    """It belongs to no turn."""
    id: str
    content: str
    context: str
    taint: Taint | None = None
    taints: tuple[Taint, ...] = ()
    shown: int | None = None
    finding: str = ""
    files: tuple[FileSharing, ...] = ()
    ts: str | None = None


class Summary(msgspec.Struct, frozen=True, tag="summary", omit_defaults=True, kw_only=True):
    """Stands for everything above it but the last `kept` lines before it, and has its `taints`.

    Attributes:
        requests: messages above it that are still shown as they were: those of the turn in which
            it was made.
        context: notes on the person that are shown with it.
        notes: digest of these notes, as in `Said`.
    """

    turn: ClassVar[None] = None
    """A summary belongs to no turn."""
    content: str
    kept: int = 0
    taints: tuple[Taint, ...] = ()
    ts: str | None = None
    requests: tuple[Said, ...] = ()
    context: str = ""
    notes: str = ""


class Note(msgspec.Struct, frozen=True, tag="note", omit_defaults=True, kw_only=True):
    """Something that happened, for the model to know of: an interruption, a late result.

    Attributes:
        omitted: parts of lines before this one that the provider of the model refuses, by
            `part_digest`; the model is shown none of them. Then `content` is empty.
    """

    content: str
    turn: str | None = None
    ts: str | None = None
    omitted: tuple[str, ...] = ()


class Correction(msgspec.Struct, frozen=True, tag="correction", omit_defaults=True, kw_only=True):
    """Replaces an earlier message that its sender has corrected or retracted.

    Attributes:
        turn: the turn of the message.
        message: the message as it is read from now on, in the place of the earlier one. Its content
            is empty if it was retracted.
    """

    turn: str
    message: Said
    ts: str | None = None


Line: TypeAlias = Said | Called | Resulted | Told | Summary | Note
StoredLine: TypeAlias = Line | Correction
"""A line as the file has it; what is read from it has the corrections applied."""

MAX_LINE: Final = 1 << 24
"""Bytes of a line; a longer one is damaged."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(
    Header | Said | Called | Resulted | Told | Summary | Note | Correction
)


def decode_line(raw: bytes) -> StoredLine | Header:
    """Read one line. Raises ValueError that says why it cannot be read."""
    try:
        line: StoredLine | Header = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return line


def corrected(line: Line, messages: Mapping[str | None, Said]) -> Line:
    """Return a line with the messages that replace those in it, by their turns."""
    match line:
        case Said(role="user"):
            return messages.get(line.turn, line)
        case Summary():
            return corrected_summary(line, messages)
    return line


def corrected_summary(summary: Summary, messages: Mapping[str | None, Said]) -> Summary:
    """Return a summary with the messages that replace those in it, by their turns."""
    if not any(one.turn in messages for one in summary.requests):
        return summary
    requests = tuple([messages.get(one.turn, one) for one in summary.requests])
    return msgspec.structs.replace(summary, requests=requests)


def encode_line(line: StoredLine | Header) -> bytes:
    """Return one line with its line feed.

    Raises MemoryStoreError if it is too long, and UnicodeEncodeError for a lone surrogate.
    """
    data = _encoder.encode(line)
    if len(data) > MAX_LINE:
        raise MemoryStoreError(
            f"A line of {len(data)} bytes cannot be kept, only up to {MAX_LINE}. Shorten it."
        )
    return data + b"\n"


def encode_lines(lines: Iterable[StoredLine], now: float) -> tuple[list[StoredLine], bytes]:
    """Return lines as they will be read again, and their bytes; those without a time get `now`, in
    seconds since 1970.

    Raises MemoryStoreError if one is too long.
    """
    time = rfc3339(now)
    encoded: list[StoredLine] = []
    data: list[bytes] = []
    for each in lines:
        line = msgspec.structs.replace(each, ts=time) if each.ts is None else each
        if isinstance(line, Correction) and line.message.ts is None:
            message = msgspec.structs.replace(line.message, ts=time)
            line = msgspec.structs.replace(line, message=message)
        try:
            data.append(encode_line(line))
        except UnicodeEncodeError:
            # A model may write half of a surrogate pair in the arguments of a call.
            line = msgspec.convert(_without_surrogates(msgspec.to_builtins(line)), StoredLine)
            data.append(encode_line(line))
        encoded.append(line)
    return encoded, b"".join(data)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _without_surrogates(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(each) for each in value]
    return value


def rfc3339(seconds: float) -> str:
    """Return a time in seconds since 1970 in the format of RFC 3339, in UTC."""
    time = datetime.fromtimestamp(seconds, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
