"""What a text looks like once its disguises are off: each step takes time in proportion to it."""

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

_TWINS: Final = str.maketrans(
    "абвгеикмнорстухіјѕԁӏԛԝһаαβεικνορτυχγωℓı",
    "a6brenkmhopctyxijsdlqwhaabeiknoptuxywli",
)
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_BETWEEN_LETTERS: Final = re.compile("[A-Za-z][\u200b-\u200d\u2060\ufeff]+(?=[A-Za-z])")
_TURNED: Final = re.compile("[\u202d\u202e]")
TAGS: Final = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0020-\U000e007f]{4,}")
_ODD: Final = re.compile(r"[^\x00-\x7f]")
_FEW: Final = 40
_SITE: Final = re.compile(r"https?://[^\s<>()\[\]\"']+")
_MAILBOX: Final = re.compile(r"@[\w-]{1,63}\.[\w.-]{1,190}")
_MIXED: Final = re.compile(r"[a-z][\u0370-\u052f]|[\u0370-\u052f][a-z]")
_WORD: Final = re.compile(r"\w+")
_SPELT: Final = re.compile(r"(?<!\w)\w(?:[ .\-_*\u00b7]\w(?!\w)){3,}")
_SPELLING: Final = re.compile(r"(?:[ .\-_*\u00b7]\w){3}(?!\w)")
_SPELT_SIGNS: Final = re.compile(r"[ .\-_*\u00b7]")
_DIGIT_IN_WORD: Final = re.compile(r"[0134578@$][a-z]")
_LEET: Final = str.maketrans("0134578@$", "oieastbas")
_LONG: Final = 24
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX: Final = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){16,}(?![0-9A-Fa-f])")
_PERCENT: Final = re.compile(r"(?:%[0-9A-Fa-f]{2}){12,}")
_ESCAPES: Final = re.compile(r"(?:\\u[0-9A-Fa-f]{4}){12,}")
_ENTITIES: Final = re.compile(r"(?:&#x?[0-9A-Fa-f]{1,6};){12,}")
_ENTITY: Final = re.compile(r"&#(x?)([0-9A-Fa-f]{1,6});")
_ROT13_WORDS: Final = ("vtaber", "qvfertneq", "sbetrg", "vafgehpgvba", "cebzcg")
_BACKWARD_WORDS: Final = ("erongi", "dragersid", "tegrof", "snoitcurtsni", "tpmorp")
_COMMENT: Final = re.compile(r"<!--|\[//\]: *# *[(\"]")
_STYLED: Final = re.compile(
    r"<\w[^<>]{0,400}(?:display\s?:\s?none|visibility\s?:\s?hidden|opacity\s?:\s?0(?![.\d])"
    r"|font-size\s?:\s?[01](?:px|pt|em|%|;|\"|')|color\s?:\s?(?:white|#fff|transparent)"
    r"|\shidden(?=[\s>])|left\s?:\s?-\d{3,})[^<>]{0,400}>",
    re.IGNORECASE,
)
_MOST_HIDDEN: Final = 2000


def fold(text: str) -> str:
    """Small letters of one script, without accents; addresses on the net are one sign.

    Sign by sign: what whole texts are normalized with takes long for many marks on one letter.
    """
    if text.isascii():
        text = text.lower()
    else:
        odd = set(_ODD.findall(text))
        if len(odd) <= _FEW:
            for sign in odd:
                text = text.replace(sign, _folded(sign))
            text = text.lower()
        else:
            text = text.lower()
            text = text.translate({ord(sign): _folded(sign) for sign in set(text)})
        if _MIXED.search(text):
            text = _WORD.sub(_untwinned, text)
    if "://" in text:
        text = _SITE.sub(" \ue000 ", text)
    return _MAILBOX.sub(" \ue000 ", text) if "@" in text else text


def _folded(sign: str) -> str:
    if _INVISIBLE.match(sign) or (unicodedata.category(sign) == "Mn" and sign < "\u0370"):
        return ""
    plain = unicodedata.normalize("NFKC", sign).casefold()
    if len(plain) == 1 and (first := unicodedata.normalize("NFKD", plain)[0]).isascii():
        return first
    return plain


def _untwinned(word: re.Match[str]) -> str:
    return word[0].translate(_TWINS) if _MIXED.search(word[0]) else word[0]


def has_hidden_signs(text: str) -> bool:
    """Whether letters are parted by signs that nobody sees, or their order is turned around."""
    return not text.isascii() and (
        _TURNED.search(text) is not None
        or sum(1 for _ in zip(range(3), _BETWEEN_LETTERS.finditer(text), strict=False)) == 3
    )


def unseen(text: str) -> Iterator[str]:
    """What the text says where nobody sees it."""
    for tags in TAGS.findall(text):
        yield "".join(chr(ord(sign) - 0xE0000) for sign in tags)
    if "<" in text or "[//]" in text:
        yield from _between(text, _COMMENT)
        yield from _between(text, _STYLED)


def _between(text: str, opening: re.Pattern[str]) -> Iterator[str]:
    """The pieces that follow an opening, which do not overlap."""
    stop = 0
    while found := opening.search(text, stop):
        end = "-->" if found[0] == "<!--" else "\n" if found[0][0] == "[" else "</"
        start = found.end()
        stop = text.find(end, start, start + _MOST_HIDDEN)
        stop = stop if stop >= 0 else min(start + _MOST_HIDDEN, len(text))
        yield text[start:stop]


def decoded(text: str) -> Iterator[str]:
    """What is written in some other way in the text, as far as it is text then."""
    text = " ".join([word for word in text.split() if len(word) >= _LONG])
    if not text:
        return
    for found in _BASE64.finditer(text):
        yield from _read(_from_base64(found[0]))
    for found in _HEX.finditer(text):
        yield from _read(bytes.fromhex(found[0]))
    if "%" in text:
        for found in _PERCENT.finditer(text):
            yield unquote(found[0], errors="replace")
    if "\\u" in text:
        for found in _ESCAPES.finditer(text):
            yield found[0].encode().decode("unicode-escape", "replace")
    if "&#" in text:
        for found in _ENTITIES.finditer(text):
            yield _ENTITY.sub(_sign, found[0])


def _sign(found: re.Match[str]) -> str:
    try:
        return chr(int(found[2], 16 if found[1] else 10))
    except (ValueError, OverflowError):
        return " "


def _from_base64(text: str) -> bytes:
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    plain = plain[: len(plain) - (len(plain) % 4 == 1)]
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4))
    except binascii.Error:
        return b""


def _read(data: bytes) -> Iterator[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    if text.isprintable() or text.replace("\n", "").isprintable():
        yield text


def respelt(folded: str) -> Iterator[str]:
    """Other readings of the lines of a folded text that may be meant so: spelt letter by letter,
    with digits in words, by rot13, backwards.
    """
    if _SPELLING.search(folded):
        yield from map(_spelt, _lines(folded, _SPELLING))
    if sum(1 for _ in zip(range(4), _DIGIT_IN_WORD.finditer(folded), strict=False)) == 4:
        yield from (line.translate(_LEET) for line in _lines(folded, _DIGIT_IN_WORD))
    if any(word in folded for word in _ROT13_WORDS):
        yield codecs.encode(folded, "rot13")
    if any(word in folded for word in _BACKWARD_WORDS):
        yield folded[::-1]


def _lines(text: str, sign: re.Pattern[str]) -> Iterator[str]:
    stop = 0
    while found := sign.search(text, stop):
        start = max(text.rfind("\n", stop, found.start()) + 1, stop)
        stop = text.find("\n", found.end())
        stop = stop if stop >= 0 else len(text)
        yield text[start:stop]


def _spelt(line: str) -> str:
    return _SPELT.sub(lambda found: " " + _SPELT_SIGNS.sub("", found[0]) + " ", line)
