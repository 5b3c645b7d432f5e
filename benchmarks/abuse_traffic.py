"""The kinds of abuse: the most expensive stanzas that one principal can send."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from xml.sax.saxutils import escape

from benchmarks.abuse_end import ROMEO, Crowd
from benchmarks.wire_end import DOMAIN

_IN_FLIGHT: Final = 64
_LARGE: Final = 200_000
_EXECUTE: Final = "urn:fluux:agent:0#execute"
_TASK: Final = "urn:fluux:agent:0#task"
_COMMANDS: Final = "http://jabber.org/protocol/commands"
_ids: Final = itertools.count()


class Stanzas:
    """Stanzas made by a function of a unique id."""

    def __init__(
        self, make: Callable[[str], str], in_flight: int = _IN_FLIGHT, per_ping: int = 0
    ) -> None:
        self._make = make
        self.in_flight = in_flight
        self.per_ping = per_ping

    def __iter__(self) -> Iterator[bytes]:
        return (self._make(f"a{number}").encode() for number in _ids)

    def heard(self, _head: dict[str, str], _data: bytes) -> bytes:
        return b""


class Forms(Stanzas):
    """Starts a command and answers its form with one of `size` bytes, repeatedly."""

    def __init__(self, size: int) -> None:
        super().__init__(lambda id_: _iq(id_, _command("")))
        self._form = (
            "<x xmlns='jabber:x:data' type='submit'><field var='words'>"
            + "<value>x</value>" * (size // 16)
            + "</field></x>"
        )

    def heard(self, _head: dict[str, str], data: bytes) -> bytes:
        session = re.search(rb"sessionid='([^']*)'", data)
        if session is None or b"status='executing'" not in data:
            return b""
        command = _command(f" sessionid='{session[1].decode()}'", self._form)
        return _iq(f"a{next(_ids)}", command).encode()


def _command(attributes: str, form: str = "") -> str:
    node = "skill/conformance.types"
    return f"<command xmlns='{_COMMANDS}' node='{node}'{attributes}>{form}</command>"


def _iq(id_: str, payload: str, type_: str = "set") -> str:
    return f"<iq id='{id_}' type='{type_}' to='{DOMAIN}' from='{ROMEO}'>{payload}</iq>"


def _execute(skill: str, mode: str, content: str) -> str:
    return f"<execute xmlns='{_EXECUTE}' skill='{skill}' mode='{mode}'>{content}</execute>"


def _params(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return f"<params type='application/json'>{escape(text)}</params>"


def _json(skill: str, mode: str, value: Any) -> Callable[[], Crowd]:
    content = _execute(skill, mode, _params(value))
    return lambda: Stanzas(lambda id_: _iq(id_, content))


def _fixed(payload: str, type_: str = "set", **more: int) -> Callable[[], Crowd]:
    return lambda: Stanzas(lambda id_: _iq(id_, payload, type_), **more)


def _words(count: int, size: int) -> dict[str, Any]:
    """Return arguments of `conformance.types`: `count` words of `size` bytes."""
    return {"colour": "red", "flag": True, "ratio": 0.5, "words": ["x" * size] * count}


def _answer(depth: int) -> str:
    content = _params('{"a":' + "[" * depth + "]" * depth + "}")
    return f"<answer xmlns='{_TASK}' task='nothing' input='nothing' revision='0'>{content}</answer>"


_NUMBERS: Final = {"target": list(range(33_000))}
_KEYS: Final = {"target": {f"k{number:05}": number for number in range(12_000)}}
_ESCAPES: Final = {"target": "\n" * (_LARGE // 2)}
_WITHIN: Final = {"target": ["x" * 17] * 9_900}

_TEXT = _execute("echo", "auto", f"<param name='text'>{'x' * _LARGE}</param>")
_LINES = _execute("echo", "auto", "<param name='text'>" + "x\n" * (_LARGE // 2) + "</param>")
_DEEP = "<x xmlns='urn:example:deep'>" * 2000 + "</x>" * 2000
_WIDE = "<x xmlns='urn:example:wide'>" + "<y/>" * 40_000 + "</x>"
_ATTRIBUTES = (
    "<x xmlns='urn:example:attributes' " + " ".join(f"a{n}='1'" for n in range(18_000)) + "/>"
)

KINDS: Final[dict[str, Callable[[], Crowd]]] = {
    "pings": _fixed("<ping xmlns='urn:xmpp:ping'/>", "get", in_flight=256),
    "echo": _fixed(_execute("echo", "auto", "<param name='text'>hello</param>"), in_flight=256),
    "200 KB text": _fixed(_TEXT),
    "200 KB of lines": _fixed(_LINES),
    "200 KB JSON, read-only, inline": _json("conformance.types", "inline", _words(9_900, 17)),
    "200 KB JSON, read-only, auto": _json("conformance.types", "auto", _words(9_900, 17)),
    "200 KB JSON, read-only, async": _json("conformance.types", "async", _words(9_900, 17)),
    "200 KB JSON, read-only, one text": _json("conformance.types", "async", _words(1, _LARGE)),
    "200 KB JSON, destructive, inline": _json("conformance.erase", "inline", _WITHIN),
    "200 KB JSON, destructive, auto": _json("conformance.erase", "auto", _WITHIN),
    "200 KB JSON, destructive, async": _json("conformance.erase", "async", _WITHIN),
    "200 KB JSON, destructive, one text": _json(
        "conformance.erase", "async", {"target": "x" * _LARGE}
    ),
    "200 KB JSON, 33,000 numbers": _json("conformance.erase", "async", _NUMBERS),
    "200 KB JSON, 12,000 members": _json("conformance.erase", "async", _KEYS),
    "200 KB JSON, escapes": _json("conformance.erase", "async", _ESCAPES),
    "200 KB JSON, brackets": _json(
        "conformance.erase", "async", '{"target":[' + "[]," * 66_000 + "[]]}"
    ),
    "200 KB JSON, 900 deep": _json(
        "conformance.erase", "async", '{"target":' + "[" * 900 + "]" * 900 + "}"
    ),
    "<answer/> 900 deep": _fixed(_answer(900)),
    "2,000 elements deep": _fixed(_DEEP, "get"),
    "40,000 elements wide": _fixed(_WIDE, "get"),
    "18,000 attributes": _fixed(_ATTRIBUTES, "get"),
    "forms of 100 KB": lambda: Forms(100_000),
    "messages to a model": lambda: Stanzas(
        lambda id_: (
            f"<message id='{id_}' type='chat' to='assistant@{DOMAIN}' from='{ROMEO}'>"
            f"<body>{'What is the tide? ' * 100}{id_}</body></message>"
        ),
        in_flight=0,
        per_ping=8,
    ),
}
WANT_A_MODEL: Final = frozenset(["messages to a model"])
