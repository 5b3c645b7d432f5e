"""Converts Markdown, as models write it, to XEP-0393 Message Styling, as chat clients show it.

Only syntax with another meaning in message styling is replaced, in place: emphasis, code, headings,
links, images, tables, rules, escapes and entities. Quotations and lists are written alike in both.
Everything else is copied, including white space, so a text without Markdown is not changed.
Constructs that the parser does not process, such as lists nested beyond its limit, are also copied.
"""

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.parser_inline import RuleFuncInlineType
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_log = structlog.get_logger("component.message")

LONGEST: Final = 32_768
MOST_MARKUP: Final = 2_000
"""The maximum numbers of characters, and of markup characters among them, that are converted: each
takes up to 50 microseconds, in which nothing else is served. The rest of a longer text is copied.
"""
_COSTLY: Final = r"[*_~`#|\\&\[\]<!]"
_MARKUP: Final = r"(?m)[*_`~#|\\&\[<]|^ {0,3}[-=]{2,}"
"""Every text that would be changed contains a match of this."""
_FENCE: Final = "```"
_STYLES: Final[Mapping[str, str]] = {"strong": "*", "em": "_", "s": "~"}
_WORD: Final = r"[^\W_]+"
_NAME: Final = r"\w+"
_BREAK: Final = r"(?i)\s*<br\s*/?>\s*"
_NO_VALUE: Final = "\N{EN DASH}"


def styled(markdown: str) -> str:
    """Return a Markdown text as XEP-0393 Message Styling. It never raises.

    A table becomes a line for each row: ``Header: value; Header: value``. No word is lost.
    """
    if len(markdown) > LONGEST or re.search(_MARKUP, markdown) is None:
        return markdown
    if sum(1 for _ in re.finditer(_COSTLY, markdown)) > MOST_MARKUP:
        return markdown
    try:
        return _Document(markdown).text()
    except Exception:  # noqa: BLE001 - a text that is shown as it is is better than none
        _log.exception("cannot convert a text from Markdown")
        return markdown


@functools.cache
def _parser() -> "MarkdownIt":
    # Imported for the first answer of a model: it takes 40 milliseconds.
    from markdown_it import MarkdownIt  # noqa: PLC0415
    from markdown_it.rules_inline import emphasis, strikethrough  # noqa: PLC0415

    class Parser(MarkdownIt):
        """Leaves the addresses of links as they are written."""

        def normalizeLink(self, url: str) -> str:  # noqa: N802 - the library's name
            return url

        def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
            return True

    parser = Parser("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.inline.ruler.at("emphasis", _beside_wide(emphasis.tokenize))
    parser.inline.ruler.at("strikethrough", _beside_wide(strikethrough.tokenize))
    # Escapes are processed one by one.
    return parser.disable("text_join")


def _beside_wide(tokenize: "RuleFuncInlineType") -> "RuleFuncInlineType":
    """Return a rule that recognises directives also beside Chinese and Japanese characters.

    CommonMark expects a space between a directive and a letter if punctuation is on the other side
    of the directive (§6.2), and these languages write none.
    """

    def rule(state: "StateInline", silent: bool) -> bool:
        start, count = state.pos, len(state.delimiters)
        if not tokenize(state, silent):
            return False
        before, after = state.src[start - 1 : start], state.src[state.pos : state.pos + 1]
        if state.src[start] != "_" and (_is_wide(before) or _is_wide(after)):
            for delimiter in state.delimiters[count:]:
                delimiter.open = delimiter.open or bool(after.strip())
                delimiter.close = delimiter.close or bool(before.strip())
        return True

    return rule


def _is_wide(character: str) -> bool:
    """Whether a character is one of East Asia, such as a Chinese letter or full stop."""
    return bool(character) and unicodedata.east_asian_width(character) in ("W", "F")


class _Document:
    """One text: its lines, some of which are replaced."""

    def __init__(self, markdown: str) -> None:
        # The parser recognises only these line ends, and replaces NUL.
        self._lines = re.split(r"\r\n|\n|\r", markdown)
        self._source = "\n".join(self._lines)
        self._replaced: dict[int, Sequence[str]] = {}
        """The replacements of lines, by line number."""

    def text(self) -> str:
        tokens = _parser().parse(self._source)
        at = 0
        while at < len(tokens):
            token = tokens[at]
            if token.type == "table_open":
                end = _closing(tokens, at)
                self._table(tokens[at:end])
                at = end
            elif token.type == "heading_open":
                self._heading(token, tokens[at + 1])
                at += 2
            elif token.type == "inline":
                self._paragraph(token)
            elif token.type == "fence":
                self._fence(token)
            elif token.type == "hr":
                start, _ = _range(token)
                self._replace(start, start + 1, [f"{self._prefix(start, token.markup[0])}---"])
            at += 1
        lines = [
            line
            for number, old in enumerate(self._lines)
            for line in self._replaced.get(number, (old,))
        ]
        return "\n".join(lines)

    def _replace(self, start: int, end: int, lines: Sequence[str]) -> None:
        self._replaced[start] = lines
        self._replaced |= dict.fromkeys(range(start + 1, end), ())

    def _prefix(self, line: int, markup: str) -> str:
        """Return the part of a line before a character: indentation, quotation and list markers."""
        return self._lines[line].partition(markup)[0]

    def _paragraph(self, token: "Token") -> None:
        start, end = _range(token)
        old = token.content.split("\n")
        new = _inline(token.children or (), "\n").split("\n")
        if len(old) != end - start or _is_unchanged(old, new):
            return
        prefixes = []
        for number, content in enumerate(old, start):
            line = self._lines[number].rstrip()
            if not line.endswith(content.strip()):
                return  # a tab that belongs to two constructs, which the parser has replaced
            prefixes.append(line.removesuffix(content.strip()))
        self._replace(
            start,
            end,
            [prefix + line for prefix, line in zip(prefixes, new, strict=False)]
            + new[len(prefixes) :],
        )

    def _heading(self, token: "Token", title: "Token") -> None:
        start, end = _range(token)
        text = _inline(title.children or (), " ", styles={})
        first = title.content.partition("\n")[0].strip()
        before = "#" if token.markup.startswith("#") else first
        prefix = self._prefix(start, before) if before else ""
        self._replace(start, end, [prefix + (f"*{text}*" if _can_be_styled(text, "*") else text)])

    def _fence(self, token: "Token") -> None:
        start, end = _range(token)
        prefix = self._prefix(start, token.markup)
        first = []
        if prefix != _quotation(prefix):  # a list item that begins with it
            first = [prefix.rstrip()]
            prefix = _quotation(prefix)
        # Message styling recognises it only at the beginning of a line (XEP-0393 §5.1.2).
        quote = ">" * prefix.count(">") + (" " if ">" in prefix else "")
        content = token.content.split("\n")
        content = content[:-1] if content[-1] == "" else content
        body = [f" {line}" if line.strip() == _FENCE else line for line in content]
        lines = [_FENCE + token.info.strip(), *body, _FENCE]
        self._replace(start, end, first + [quote + line for line in lines])

    def _table(self, tokens: Sequence["Token"]) -> None:
        start, end = _range(tokens[0])
        rows = list(_rows(tokens))
        headers, values = rows[0], rows[1:]
        lines = [
            "; ".join(
                f"{header}: {value or _NO_VALUE}" if header else value or _NO_VALUE
                for header, value in zip(headers, row, strict=False)
            )
            for row in values
        ] or ["; ".join(filter(None, headers))]
        old = self._lines[start:end]
        # A row may have more cells than the header; the parser leaves them out.
        if _words(old) - _words(lines):
            return
        prefix = _quotation(old[0])
        self._replace(start, end, [prefix + line for line in lines])


def _range(token: "Token") -> tuple[int, int]:
    """Return the numbers of the first line of a block, and of the line after it."""
    assert token.map is not None, "blocks have their lines"
    return token.map[0], token.map[1]


def _closing(tokens: Sequence["Token"], at: int) -> int:
    """Return the position of the token that closes a block."""
    level = tokens[at].level
    end = at + 1
    while tokens[end].level != level:
        end += 1
    return end


def _words(lines: Sequence[str]) -> Counter[str]:
    import html  # noqa: PLC0415 - only a table needs it, and its 2,000 entities take a while

    text = html.unescape(re.sub(_BREAK, ", ", "\n".join(lines)))
    return Counter(re.findall(_WORD, text))


def _quotation(line: str) -> str:
    """Return the quotation markers and the indentation that a line begins with."""
    return line[: len(line) - len(line.lstrip(" \t>"))]


def _is_unchanged(old: Sequence[str], new: Sequence[str]) -> bool:
    return [line.strip() for line in old] == [line.strip() for line in new]


def _rows(tokens: Sequence["Token"]) -> Iterator[list[str]]:
    """Yield the cells of each row of a table, the header first."""
    row: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            row = []
        elif token.type == "inline":
            row.append(re.sub(_BREAK, ", ", _inline(token.children or (), " ")))
        elif token.type == "tr_close":
            yield row


def _can_be_styled(text: str, directive: str) -> bool:
    """Return whether the text between two directives is shown as one span (XEP-0393 §5.2)."""
    return bool(text) and text == text.strip() and directive not in text


def _inline(tokens: Sequence["Token"], newline: str, styles: Mapping[str, str] = _STYLES) -> str:
    """Return the rendered spans of a block.

    Args:
        tokens: the tokens of the block.
        newline: the separator of two of its lines.
        styles: the directive of each kind of emphasis; one without a directive is left out.
    """
    return _Spans(newline, styles).render(tokens)


class _Span:
    """An open span: the token that opened it, and its text so far."""

    def __init__(self, opened_by: "Token | None" = None) -> None:
        self.opened_by = opened_by
        self.text = ""


class _Spans:
    """Renders the spans of one block."""

    def __init__(self, newline: str, styles: Mapping[str, str]) -> None:
        self._newline = newline
        self._styles = styles
        self._open = [_Span()]

    def render(self, tokens: Sequence["Token"]) -> str:
        for token in tokens:
            kind = token.type
            if kind in ("softbreak", "hardbreak"):
                self._put(self._newline)
            elif kind == "code_inline":
                ticks = "" if "`" in token.content or not token.content.strip() else "`"
                self._put(f"{ticks}{token.content}{ticks}")
            elif kind == "image":
                self._put(_linked(_inline(token.children or (), " ", styles={}), token))
            elif kind.endswith("_open"):
                self._open.append(_Span(token))
            elif kind.endswith("_close"):
                self._close()
            elif token.info == "escape" and token.content == "\\":
                self._put(token.markup)  # a path: \\\\server
            else:
                self._put(token.content)
        return self._open[0].text

    def _put(self, text: str) -> None:
        self._open[-1].text += text

    def _close(self) -> None:
        span = self._open.pop()
        assert span.opened_by is not None, "the parser closes what it has opened"
        if span.opened_by.type == "link_open":
            self._put(_linked(span.text, span.opened_by))
        else:
            self._put(self._styled(span.text, span.opened_by))

    def _styled(self, text: str, token: "Token") -> str:
        before = self._before()
        is_wide = _is_wide(before)
        within_word = before.isalnum() and not is_wide
        if within_word or (token.markup == "__" and re.fullmatch(_NAME, text)):
            return f"{token.markup}{text}{token.markup}"  # 2*3*4, __init__
        directive = self._styles.get(token.type.removesuffix("_open"), "")
        lines = text.split("\n")  # a span ends with its line (XEP-0393 §5.2)
        if directive and all(_can_be_styled(line, directive) for line in lines):
            # A directive is recognised only after white space (XEP-0393 §5.2), and none separates
            # words in Chinese and Japanese.
            space = " " if is_wide and unicodedata.category(before) not in ("Ps", "Pi") else ""
            return space + "\n".join(f"{directive}{line}{directive}" for line in lines)
        return text

    def _before(self) -> str:
        """Return the character right before; after a letter or a digit no directive is recognised,
        unless it is one of East Asia.
        """
        before = next((span.text for span in reversed(self._open) if span.text), "")
        return before[-1:]


def _linked(text: str, token: "Token") -> str:
    """Return a link or an image: its text, followed by its address unless they are equal."""
    attribute = "src" if token.type == "image" else "href"
    address, title = str(token.attrs.get(attribute, "")), str(token.attrs.get("title", ""))
    if text in (address, address.removeprefix("mailto:")):
        address = ""
    if title:
        address = f'{address} "{title}"'.strip()
    if not text or not address:
        return text or address
    return f"{text} <{address}>" if ")" in address else f"{text} ({address})"
