"""Looks for attempts to give a model orders through data: in messages of others, pages and files.

A scanner of words is no wall. It warns the model, through the fence around the data, and it leaves
a record; what such data may reach is decided by where it comes from (`component.policy.flows`).

Words stand for ideas (`scanner_words`), ideas that follow each other in a sentence for something
suspicious (`scanner_rules`), and a text is looked at without its disguises too (`scanner_folds`).
Each step takes time in proportion to the text, whoever wrote it. Of a text of more than 262,144
signs only the beginning and the end are read: its middle is not what a model is shown of it.
"""

import re
from collections import deque
from functools import lru_cache
from typing import Final, TypeAlias

from component.agent.scanner_folds import TAGS, decoded, fold, has_hidden_signs, respelt, unseen
from component.agent.scanner_rules import ALARM, IGNORES, RULES, SENDS, Rule
from component.agent.scanner_vocabulary import EAST, IN_EAST, PHRASE, Vocabulary
from component.agent.scanner_words import START, TALK, WORDS

IMITATES: Final = "imitates a message of the system or a turn of the conversation"
HIDDEN: Final = "hidden text"
ENCODED: Final = "encoded instructions"
DISGUISED: Final = "disguised letters"

_NEAR: Final = 2  # sentences that are judged together
_LONGEST: Final = 32  # letters of a word that may be known
_MOST: Final = 256 * 1024  # signs that are read of a text
_KNOWN: Final = 8192
_TALKED: Final = 5  # points that a text loses which speaks of attacks
_HIDDEN: Final = 6
_SOME: Final = 6  # points that one thing alone must have: much of little is no sign in a long text
_HINT: Final = 4  # points of a hidden piece from which hiding it counts
_CLEAR: Final = 8  # points of something decoded from which it is no accident
_TALK: Final = "-"
_ENDS: Final = ". ! ? \u3002 ; |"
_OPENS: Final = frozenset("\u201c\u201e\u00ab\u300c")
_QUOTES: Final = '" \u201c \u201d \u201e \u00ab \u00bb \u300c \u300d'
_END: Final = 1 << 60
_QUOTE: Final = 1 << 61
_Said: TypeAlias = tuple[int, int, bool]
"""The place of a word, what it stands for, and whether it is within quotation marks."""

_MARKUP: Final = re.compile(
    r"[<\[](?:\|[a-z_]{2,24}\|>|/?inst\]|</?sys>>|(?:start|end)_of_turn>|\|?eot"
    r"|/?(?:system|system-reminder|assistant|tool_result|tool_call|function_calls|function_results"
    r"|invoke|instructions?)\b[^<>\[]{0,80}>|/(?:user|data|human|document|context)>)"
    r"|\"tool_calls\"\s{0,3}:\s{0,3}\["
)
_HEADING: Final = re.compile(
    r"\n(?:#{1,4} ?(?:system|instructions?|assistant|sistema|systeme|anweisung) {0,3}:?\s{0,3}\n"
    r"|[^\w\s]{0,6} ?(?:begin |start )?(?:system|admin|administrator|root) (?:override|prompt)"
    r"|\[system\] ?\(#)"
)
_ROLE_FIELD: Final = re.compile(r"\"role\"\s{0,3}:\s{0,3}\"(?:system|developer)\"")
_SYSTEM_LINE: Final = re.compile(
    r"\n[^\w\s]{0,4}(?:system|sistema|systeme|admin)(?: message| notice| alert)?[^\w\s]{0,4} ?:"
    r"|\n[^\w\s]{2,10} {0,3}end of (?:tool|page|document|data|context|results?)\b"
)
_TURN: Final = re.compile(r"\n\s{0,4}\n(?:human|user|assistant) ?:")
_LOG: Final = re.compile(r"\n(?:user|human|me|q) ?:")
_LEAK: Final = re.compile(
    r"!\[[^\[\]\n]{0,200}\]\(\s{0,4}https?://[^()\s\[{<]{1,300}(?:[{<\[]|=(?:data|text)?\))",
    re.IGNORECASE,
)
_GLUED: Final = re.compile(
    r"(?:ignore|disregard|forget|override)[a-z]{0,30}(?:instruction|rules|prompt|guideline)"
)


class PatternScanner:
    """Implements `component.agent.protocol.Scanner`."""

    def __init__(self) -> None:
        words = Vocabulary((*WORDS, (_END, _ENDS), (_QUOTE, _QUOTES)))
        self._meaning = lru_cache(_KNOWN)(words.meaning)
        self._phrases = words.phrases
        self._rules = lru_cache(_KNOWN)(_that_could_hold)
        word, signs = rf"[^\W_{EAST}]{{1,{_LONGEST}}}", r"\n(?=\s{0,8}\n)|[.!?;|](?=\s|$)|[:,"
        signs += '"\u3002\u201c-\u201e\u00ab\u00bb\u300c\u300d\ue000]'
        east = "|".join(map(re.escape, words.east))
        self._tokens = re.compile(f"{word}|{signs}")
        self._tokens_east = re.compile(f"{word}|{east}|[{EAST}]|{signs}")

    def scan(self, text: str) -> str | None:
        """What is suspicious about a text, in a few words, or None. Never waits."""
        if len(text) > _MOST:
            text = f"{text[: _MOST - _MOST // 3]}\n\n{text[-(_MOST // 3) :]}"
        points = self._points(text)
        if sum(points.values()) < ALARM or max(points.values()) < _SOME:
            return None
        found = sorted(
            (each for each in points.items() if each[0] and each[1] > 0), key=lambda each: -each[1]
        )
        return ", ".join(reason for reason, _ in found[:3])

    def _points(self, text: str) -> dict[str, int]:
        """The points of a text, by what they are for."""
        folded = fold(text)
        points = self._said(folded)
        _most(points, IMITATES, _imitation(folded))
        if TAGS.search(text):
            _most(points, HIDDEN, ALARM)
        for hidden in unseen(text):
            said = self._said(fold(hidden))
            if sum(said.values()) >= _HINT:
                _add(points, said)
                _most(points, HIDDEN, _HIDDEN)
        if "![" in text and _LEAK.search(text):
            _most(points, SENDS, ALARM)
        if has_hidden_signs(text):
            _most(points, HIDDEN, _HIDDEN)
            if _GLUED.search(folded):
                _most(points, IGNORES, ALARM)
        for read in decoded(text):
            if sum(self._said(fold(read)).values()) >= _CLEAR:
                _most(points, ENCODED, ALARM)
        for read in respelt(folded):
            if sum(self._said(read).values()) >= _CLEAR or _GLUED.search(read):
                _most(points, DISGUISED, ALARM)
        return points

    def _said(self, folded: str) -> dict[str, int]:
        """The points of the sentences that stand near each other and have most of them."""
        sentences, talked = self._sentences(folded)
        best: dict[str, int] = {}
        near: deque[dict[str, int]] = deque(maxlen=_NEAR)
        for sentence in sentences:
            said = [each for each in sentence if not (talked and each[2])]
            near.append(self._judged(said))
            if near[-1]:
                together: dict[str, int] = {}
                for one in near:
                    _add(together, one)
                if sum(together.values()) > sum(best.values()):
                    best = together
        if talked and best:
            best = {**best, _TALK: -_TALKED}
        return best

    def _judged(self, said: list[_Said]) -> dict[str, int]:
        ideas = 0
        for each in said:
            ideas |= each[1]
        points: dict[str, int] = {}
        for rule in self._rules(ideas):
            if points.get(rule.reason, 0) < rule.points and rule.holds(said):
                points[rule.reason] = rule.points
        return points

    def _sentences(self, folded: str) -> tuple[list[list[_Said]], bool]:
        """The ideas of each sentence with their places, and whether the text speaks of attacks."""
        east = not folded.isascii() and IN_EAST.search(folded) is not None
        tokens = (self._tokens_east if east else self._tokens).findall(folded)
        meant = list(map(self._meaning, tokens))
        sentences: list[list[_Said]] = []
        sentence: list[_Said] = []
        quoted, began, talked = False, 0, 0
        for place in [place for place, ideas in enumerate(meant) if ideas]:
            ideas = meant[place]
            if ideas & _END:
                sentences.append(sentence)
                sentence, began = [], place + 1
                quoted = quoted and tokens[place] != "\n"
                continue
            if ideas & _QUOTE:
                quoted = tokens[place] in _OPENS or (tokens[place] == '"' and not quoted)
                continue
            if ideas & PHRASE:
                for rest, idea in self._phrases[tokens[place]]:
                    if tokens[place + 1 : place + 1 + len(rest)] == rest:
                        ideas |= idea
            if place == began:
                sentence.append((place, START, quoted))
            sentence.append((place, ideas, quoted))
            talked |= ideas & TALK
        sentences.append(sentence)
        return sentences, talked != 0


def _that_could_hold(ideas: int) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if all(part & ideas for part in rule.parts))


def _imitation(folded: str) -> int:
    """The points of what looks like a part of the conversation rather than of its data."""
    lines = f"\n{folded}\n"
    if _HEADING.search(lines) or _MARKUP.search(folded):
        return ALARM
    if _TURN.search(lines, 2) and not _LOG.match(lines):
        return 6
    return 5 if _SYSTEM_LINE.search(lines) or _ROLE_FIELD.search(folded) else 0


def _most(points: dict[str, int], reason: str, at_least: int) -> None:
    if at_least > points.get(reason, 0):
        points[reason] = at_least


def _add(points: dict[str, int], more: dict[str, int]) -> None:
    for reason, each in more.items():
        _most(points, reason, each)
