"""The fast path for finding the ends of stanzas that look as servers write them.

It finds whole stanzas with a few searches at C speed instead of inspecting each tag. The scanner
handles everything unusual.

Why the result is exact if expat then accepts the same number of elements: a piece contains no `<!`
and no `<?`, so in well-formed XML each `<` in it begins a tag. It begins with `<iq `, contains no
other `<iq` and ends with its first `</iq>`, which can then only close the one that began. Likewise
`<presence …>` is empty if a slash comes before its first `>`; if that were inside an attribute,
expat would be left with half a tag, and count one element less.
"""

import re
from itertools import repeat
from typing import Final

from xep.stream.scanner import StreamLimits

_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_SLASH: Final = ord("/")

# The beginning of a stanza, the beginning of a nested one, and the end.
_PLAIN: Final = {
    ord("i"): (b"<iq ", b"<iq", b"</iq>"),
    ord("m"): (b"<message ", b"<message", b"</message>"),
    ord("p"): (b"<presence ", b"<presence", b"</presence>"),
}
_END: Final = b"</iq>"
_END_SIZE: Final = len(_END)
_WORTH_IT: Final = 1024
"""From this size it pays to search for all IQs at once."""


def frame(
    data: bytes, pos: int, limits: StreamLimits, *, odd: bool, first: bool = True
) -> tuple[list[int], int, bool]:
    """Find the plain stanzas within `limits` that follow each other from index `pos`.

    `odd` says that `data` contains a `!` or a `?` somewhere, `first` that it has not been searched
    before. Returns the stanzas' sizes, the index after the last one, and whether another try makes
    sense behind the part that stopped it.
    """
    sizes: list[int] = []
    end = pos
    length = len(data)
    harmless = limits.harmless
    # Once only, because it searches all remaining data.
    if first and not odd and length - pos > _WORTH_IT and data.startswith(b"<iq ", pos):
        sizes = _only_iqs(data, pos, harmless)
        end = pos + sum(sizes)
        pos = _skip_space(data, end)
    while pos + 1 < length:
        plain = _PLAIN.get(data[pos + 1])
        if plain is None or not data.startswith(plain[0], pos):
            break
        empty = data.find(b">", pos) if plain[0] == b"<presence " else -1
        if empty > 0 and data[empty - 1] == _SLASH:
            stop = empty + 1
        else:
            at = data.find(plain[2], pos)
            if at < 0:
                return sizes, end, False
            if data.find(plain[1], pos + 1, at) > 0:
                break
            stop = at + len(plain[2])
        size = stop - pos
        if size > harmless and not _is_within(data[pos:stop], limits):
            break
        if odd and (data.find(b"<!", pos, stop) > 0 or data.find(b"<?", pos, stop) > 0):
            break
        sizes.append(size)
        end = stop
        if end == length:
            break
        pos = _skip_space(data, stop)
    return sizes, end, True


def _skip_space(data: bytes, pos: int) -> int:
    if data[pos : pos + 1] in (b"<", b""):
        return pos
    space = _SPACE.match(data, pos)
    return space.end() if space else pos


def _only_iqs(data: bytes, pos: int, harmless: int) -> list[int]:
    """Return the sizes of the IQs from `pos` to the last `</iq>`, if there is nothing else.

    It finds the same as the loop above, at once: there are as many pieces as `<iq`, each of them
    begins with one, so none contains another.
    """
    after = data.rfind(_END) + len(_END)
    pieces = data[pos:after].split(_END)[:-1]
    sizes = [len(piece) + _END_SIZE for piece in pieces]
    if (
        data.count(b"<iq", pos, after) != len(pieces)
        or not all(map(bytes.startswith, pieces, repeat(b"<iq ")))
        or max(sizes, default=0) > harmless
    ):
        return []
    return sizes


def _is_within(stanza: bytes, limits: StreamLimits) -> bool:
    """Return whether a plain stanza certainly exceeds no limit; in doubt the scanner decides."""
    ends = stanza.count(b"</")
    return (
        len(stanza) <= limits.bytes
        and stanza.count(b"<") - ends <= limits.elements
        # One level more than there are end tags: the deepest may be empty.
        and ends < limits.depth
    )
