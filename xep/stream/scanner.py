"""Finds the end of a first-level element, before any XML parser sees it.

The scanner knows just enough XML to distinguish tags, attribute values, text and CDATA, so it can
count depth, elements and bytes, and refuse what RFC 6120 §11.1 forbids. Its state is a few small
numbers, never the data: an element of any size passes in constant memory and linear time, however
it is divided into chunks. Expat checks names, namespaces, characters and the matching of tags; for
all input that expat accepts the two agree on where each tag begins and ends.
"""

import re
from typing import TYPE_CHECKING, Final

import msgspec

from xep.stream.errors import StreamError

if TYPE_CHECKING:
    from xep.stream.events import Limit

# Only runs of one set are possessive: re before Python 3.11.5 goes wrong on a branch inside a
# possessive group. What repeats otherwise has no two ways to match, so it stays linear too, and is
# bounded, because it costs memory; beyond the bound the states below take over.
_REFERENCE: Final = rb"&(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9A-Fa-f]+);"
_WINDOW: Final = 4096
_TEXT_RUN: Final = re.compile(rb"[^<&]*+(?:" + _REFERENCE + rb"[^<&]*+){0,500}")
_DOUBLE_RUN: Final = re.compile(rb"[^\"<&]*+(?:" + _REFERENCE + rb"[^\"<&]*+){0,500}")
_SINGLE_RUN: Final = re.compile(rb"[^'<&]*+(?:" + _REFERENCE + rb"[^'<&]*+){0,500}")
_TAG: Final = re.compile(
    rb"<[^<>\"'!?&]*+(?:(?:"
    rb"\"[^\"<&]*+(?:" + _REFERENCE + rb"[^\"<&]*+){0,50}\"|"
    rb"'[^'<&]*+(?:" + _REFERENCE + rb"[^'<&]*+){0,50}'"
    rb")[^<>\"'&]*+){0,50}>"
)
_LEAVES: Final = re.compile(
    rb"(?:<([A-Za-z_:\x80-\xff][^<>\"'!?&/ \t\r\n]*+)[^<>\"'!?&/]*+"
    rb"(?:(?:\"[^\"<&]*+\"|'[^'<&]*+')[^<>\"'!?&/]*+){0,20}"
    rb"(?:/>|>[^<&]*+</\1[ \t\r\n]*+>)){1,50}"
)
"""Elements that contain only text, one after the other: there may be thousands of them."""
_ATTRIBUTES: Final = re.compile(rb"[^<>\"']*+(?:(?:\"[^\"<&]*+\"|'[^'<&]*+')[^<>\"']*+){1,50}")
_IN_TAG: Final = re.compile(rb"[<>\"']")
_NAME_START: Final = re.compile(rb"[A-Za-z_:\x80-\xff]")
_NAME: Final = re.compile(rb"[-.0-9A-Za-z_:\x80-\xff]")
_CDATA: Final = b"[CDATA["
_PREDEFINED: Final = (b"amp", b"lt", b"gt", b"quot", b"apos")

_LESS, _GREATER, _SLASH, _AND, _BANG, _QUESTION = b"<>/&!?"
_QUOTE, _SEMICOLON, _HASH = b'";#'

# The states: what the next byte is part of.
_IN_CONTENT, _AFTER_LESS, _INSIDE_TAG, _INSIDE_DOUBLE, _INSIDE_SINGLE = range(5)
_AFTER_BANG, _INSIDE_CDATA, _INSIDE_REFERENCE = range(5, 8)


class StreamLimits(msgspec.Struct, frozen=True):
    """The maximum size of one first-level element. A larger one is skipped."""

    bytes: int = 256 * 1024
    """Size as received. RFC 6120 §13.12 requires at least 10,000."""
    depth: int = 64
    """Depth of nested elements, the first-level element included."""
    elements: int = 4096
    """Number of elements, the first-level element included."""
    skipped: int = 1 << 30
    """Bytes of a skipped element after which the stream counts as broken."""

    @property
    def harmless(self) -> int:
        """An element of at most this size in bytes exceeds none of the limits."""
        elements, levels = self.elements * len("<a/>"), self.depth * len("<a></a>")
        return min(self.bytes, elements, levels)


class Scanner:
    """Follows one first-level element, or the stream header, through as many chunks as it takes."""

    __slots__ = (
        "_base",
        "_closing",
        "_done",
        "_limits",
        "_markup",
        "_matched",
        "_reference",
        "_resume",
        "_root",
        "_slash",
        "_state",
        "broken",
        "closes_stream",
        "depth",
        "elements",
        "is_empty_tag",
        "size",
        "start_tag_end",
    )

    def __init__(self, limits: StreamLimits) -> None:
        """Use these `limits`; call `begin` before each element."""
        self._limits = limits
        self.begin()

    def begin(self, *, root: bool = False) -> None:
        """Expect an element whose `<` is the next byte; with `root` only its start tag."""
        self._root = root
        self._base = 0  # the position of the current chunk in the element
        self._done = False
        self._state = _IN_CONTENT
        self._closing = False  # inside a tag: it is an end tag
        self._slash = False  # inside a tag: the previous byte was a slash
        self._markup = 0  # the beginning of the current tag, CDATA or reference
        self._matched = 0  # how much of "[CDATA[" or of "]]>" was seen
        self._reference = b""  # the name after "&" so far
        self._resume = _IN_CONTENT  # the state after a reference
        self.depth = 0
        self.elements = 0
        self.size = 0
        """Bytes so far."""
        self.start_tag_end = 0
        """The end of the first tag, counted from its `<`; 0 before it."""
        self.broken: Limit | None = None
        """The first limit that was exceeded."""
        self.closes_stream = False
        """The element is not one, but the end tag of the stream."""
        self.is_empty_tag = False
        """The last start tag had the form `<a/>`."""

    @property
    def in_end_tag_of_stream(self) -> bool:
        """Whether an end tag has begun where an element should."""
        return self._closing and self.elements == 0

    @property
    def settled(self) -> int:
        """The number of bytes so far in complete tags, text and references."""
        return self.size if self._state == _IN_CONTENT else self._markup

    def scan(self, data: bytes, pos: int, stop: int) -> int:
        """Continue from index `pos`; return the index after the element, or -1 if it continues at
        `stop`.

        Raises `StreamError`: `restricted-xml` for comments, processing instructions, DTDs and
        undefined entities (RFC 6120 §11.1), `bad-format` for CDATA in place of an element,
        `not-well-formed` for a `<` inside a tag.
        """
        self._base = base = self.size - pos
        self._done = False
        while pos < stop and not self._done:
            if self._state != _IN_CONTENT:
                pos = self._inside(data, pos, stop)
                continue
            if data[pos] != _LESS:
                pos = _run(_TEXT_RUN, data, _plain_text(data, pos, stop), stop)
                if pos == stop:
                    break
            if data[pos] == _AND:
                self._markup = base + pos
                self._begin_reference()
                pos += 1
                continue
            if 0 < self.depth < self._limits.depth:
                leaves = _LEAVES.match(data, pos, stop)
                if leaves is not None:
                    pos = self._leaves(data, pos, leaves.end())
                    continue
            tag = _TAG.match(data, pos, stop)
            if tag is None:  # incomplete, or not a tag
                self._markup = base + pos
                self._state = _AFTER_LESS
                pos += 1
                continue
            closing = data[pos + 1] == _SLASH
            pos = tag.end()
            self._tag(closing, data[pos - 2] == _SLASH, base + pos)
        self.size = base + pos
        if self.broken is None and self.size > self._limits.bytes:
            self.broken = "bytes"
        return pos if self._done else -1

    def _tag(self, closing: bool, empty: bool, offset: int) -> None:
        """Count a tag that ended at `offset`, and note whether the element ended with it."""
        if closing:
            self.depth -= 1
            self.closes_stream = self.depth < 0
            self._done = self.depth <= 0
            return
        self.elements += 1
        self.is_empty_tag = empty
        if self.elements == 1:
            self.start_tag_end = offset
        level = self.depth + 1
        if self.broken is None:
            if level > self._limits.depth:
                self.broken = "depth"
            elif self.elements > self._limits.elements:
                self.broken = "elements"
        if not empty:
            self.depth = level
        self._done = self._root or self.depth == 0

    def _leaves(self, data: bytes, pos: int, end: int) -> int:
        """Count elements that contain only text; they do not change the depth."""
        self.elements += data.count(b"<", pos, end) - data.count(b"</", pos, end)
        if self.broken is None and self.elements > self._limits.elements:
            self.broken = "elements"
        return end

    def _inside(self, data: bytes, pos: int, stop: int) -> int:
        """Continue inside something that a chunk has divided, or that is not a plain tag
        or text.
        """
        state = self._state
        if state == _INSIDE_TAG:
            return self._inside_tag(data, pos, stop)
        if state in (_INSIDE_DOUBLE, _INSIDE_SINGLE):
            return self._inside_attribute(data, pos, stop)
        if state == _AFTER_LESS:
            return self._after_less(data, pos)
        if state == _AFTER_BANG:
            return self._after_bang(data, pos)
        if state == _INSIDE_CDATA:
            return self._inside_cdata(data, pos, stop)
        return self._inside_reference(data, pos)

    def _inside_tag(self, data: bytes, pos: int, stop: int) -> int:
        attributes = _ATTRIBUTES.match(data, pos, stop)
        if attributes is not None:
            pos = attributes.end()
            self._slash = data[pos - 1] == _SLASH
            if pos == stop:
                return pos
        mark = _IN_TAG.search(data, pos, stop)
        if mark is None:
            self._slash = data[stop - 1] == _SLASH
            return stop
        at = mark.start()
        slash = data[at - 1] == _SLASH if at > pos else self._slash
        if data[at] == _LESS:
            raise StreamError("not-well-formed", "There is a '<' inside a tag.")
        if data[at] == _GREATER:
            self._state = _IN_CONTENT
            self._tag(self._closing, slash, self._base + at + 1)
        else:
            self._state = _INSIDE_DOUBLE if data[at] == _QUOTE else _INSIDE_SINGLE
        return at + 1

    def _inside_attribute(self, data: bytes, pos: int, stop: int) -> int:
        run = _DOUBLE_RUN if self._state == _INSIDE_DOUBLE else _SINGLE_RUN
        pos = _run(run, data, pos, stop)
        if pos == stop:
            return pos
        if data[pos] == _AND:
            self._begin_reference()
        elif data[pos] == _LESS:
            raise StreamError("not-well-formed", "There is a '<' in an attribute value.")
        else:
            self._state = _INSIDE_TAG
            self._slash = False
        return pos + 1

    def _after_less(self, data: bytes, pos: int) -> int:
        byte = data[pos]
        if byte == _QUESTION:
            raise StreamError("restricted-xml", "Processing instructions are not allowed here.")
        if byte == _BANG:
            self._state = _AFTER_BANG
            self._matched = 0
            return pos + 1
        self._state = _INSIDE_TAG
        self._slash = False
        self._closing = byte == _SLASH
        return pos + 1 if self._closing else pos

    def _after_bang(self, data: bytes, pos: int) -> int:
        if data[pos] != _CDATA[self._matched]:
            raise StreamError("restricted-xml", "Comments and DTDs are not allowed.")
        self._matched += 1
        if self._matched == len(_CDATA):
            if self.depth == 0:
                raise StreamError("bad-format", "There is CDATA in place of an element.")
            self._state = _INSIDE_CDATA
            self._matched = 0
        return pos + 1

    def _inside_cdata(self, data: bytes, pos: int, stop: int) -> int:
        # Its end may be divided: the brackets at the end of the last chunk are checked again.
        kept = b"]" * self._matched
        seam = (kept + data[pos : min(pos + 2, stop)]).find(b"]]>")
        if seam >= 0:
            end = pos + seam + 3 - self._matched
        else:
            found = data.find(b"]]>", pos, stop)
            if found < 0:
                rest = (kept + data[max(pos, stop - 2) : stop])[-2:]
                self._matched = len(rest) - len(rest.rstrip(b"]"))
                return stop
            end = found + 3
        self._state = _IN_CONTENT
        return end

    def _begin_reference(self) -> None:
        self._resume = self._state
        self._state = _INSIDE_REFERENCE
        self._reference = b""

    def _inside_reference(self, data: bytes, pos: int) -> int:
        byte = data[pos]
        name = self._reference
        if not name and byte == _HASH:  # expat checks its digits
            self._state = self._resume
            return pos + 1
        if byte == _SEMICOLON and name in _PREDEFINED:
            self._state = self._resume
            return pos + 1
        longer = name + data[pos : pos + 1]
        if not any(known.startswith(longer) for known in _PREDEFINED):
            if _NAME_START.match(longer) and (byte == _SEMICOLON or _NAME.match(data, pos)):
                raise StreamError(
                    "restricted-xml", "Only the five predefined entities of XML are allowed."
                )
            # It begins no reference, and expat will refuse it; the ends of tags are still clear.
            self._state = self._resume
            return pos
        self._reference = longer
        return pos + 1


def _run(pattern: re.Pattern[bytes], data: bytes, pos: int, stop: int) -> int:
    found = pattern.match(data, pos, stop)
    return found.end() if found else pos


def _plain_text(data: bytes, pos: int, stop: int) -> int:
    """Skip long text without markup, far more quickly than a pattern does."""
    while stop - pos > _WINDOW:
        window = pos + _WINDOW
        if data.find(b"<", pos, window) >= 0 or data.find(b"&", pos, window) >= 0:
            break
        pos = window
    return pos
