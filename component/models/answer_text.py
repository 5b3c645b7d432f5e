"""Read the text of `{"answer": "…"}` while the JSON is still being written."""

import re
from typing import Literal

_HEAD = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_HEX = re.compile("[0-9a-fA-F]{4}")
_PLAIN = re.compile(r'[^"\\]*')
_LONGEST_HEAD = 256


class AnswerText:
    """Decodes JSON in pieces, and returns the text of its first key, if that is `answer`.

    Output that begins neither like an object nor like a fence of Markdown is not JSON, and is
    returned unchanged. Other output is dropped.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._state: Literal["head", "text", "plain", "over"] = "head"

    def feed(self, piece: str) -> str:
        """Process the next piece, and return the text that is certain by now."""
        if self._state == "over":
            return ""
        self._rest += piece
        if self._state == "head":
            self._state = self._begun()
        if self._state == "plain":
            text, self._rest = self._rest, ""
            return text
        return self._decoded() if self._state == "text" else ""

    def _begun(self) -> Literal["head", "text", "plain", "over"]:
        head = self._rest.lstrip()
        if head and head[0] not in "{`":
            return "plain"
        if match := _HEAD.match(self._rest):
            self._rest = self._rest[match.end() :]
            return "text"
        if len(self._rest) > _LONGEST_HEAD:
            # Searching it again with each piece would take quadratic time.
            return "over"
        bare = "".join(head.split())
        return "head" if '{"answer":"'.startswith(bare) else "over"

    def _decoded(self) -> str:
        out: list[str] = []
        rest, at = self._rest, 0
        while at < len(rest):
            char = rest[at]
            if char == '"':
                self._state = "over"
                break
            if char != "\\":
                plain = _PLAIN.match(rest, at)
                assert plain is not None, "it matches nothing too"
                out.append(plain[0])
                at = plain.end()
                continue
            escape = _escape(rest, at)
            if escape is None:  # its end has not come
                break
            text, length = escape
            if not length:  # no JSON after all
                self._state = "over"
                break
            out.append(text)
            at += length
        self._rest = rest[at:]
        return "".join(out)


def _escape(text: str, at: int) -> tuple[str, int] | None:
    """Decode the escape at `at`: its text and length; None if it goes on, length 0 if it is bad."""
    if at + 1 >= len(text):
        return None
    if text[at + 1] != "u":
        known = _ESCAPES.get(text[at + 1])
        return ("", 0) if known is None else (known, 2)
    if at + 6 > len(text):
        return None
    if not _HEX.match(text, at + 2):
        return "", 0
    code = int(text[at + 2 : at + 6], 16)
    if 0xD800 <= code < 0xDC00:
        low = text[at + 6 : at + 12]
        if len(low) < 6 and r"\u".startswith(low[:2]):
            return None
        if (
            low[:2] == r"\u"
            and _HEX.match(low, 2)
            and 0xDC00 <= (pair := int(low[2:6], 16)) < 0xE000
        ):
            return chr(0x10000 + ((code - 0xD800) << 10) + (pair - 0xDC00)), 12
    # Half a surrogate pair is not a character, and cannot be sent.
    return ("\ufffd" if 0xD800 <= code < 0xE000 else chr(code)), 6
