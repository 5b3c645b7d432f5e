"""Stands between a server and the component, and keeps account of every request and its answer.

It reads tags and nothing more, as servers pass on XML that is not quite XML, so it shares no code
with what it watches.
"""

import math
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final
from xml.sax.saxutils import unescape

from tests.servers.proxy import TIMEOUT, Pair, Proxy

LARGEST: Final = 262_144
"""Bytes, the service's default for a stanza."""

Key = tuple[str | None, str | None, str | None]
"""Id, who asked, who was asked."""

_TAG: Final = re.compile(rb"<(?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*+>")
_ATTRIBUTE: Final = re.compile(rb"([^\s=<>\"'/]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_REFERENCE: Final = re.compile(r"&#(x?)([0-9A-Fa-f]+);")
_REMEMBERED: Final = 8
_HEAD: Final = 300_000  # bytes of a stanza that are kept while it passes


class Frames:
    """Cuts one direction of a stream into its stanzas, and calls `found` with each: its name, its
    attributes and its bytes.
    """

    def __init__(self, found: Callable[[bytes, dict[str, str], bytes], None]) -> None:
        self._found = found
        self._rest = b""
        self._depth = 0
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        text = self._rest + data
        at = end = 0
        for match in _TAG.finditer(text):
            end = match.end()
            tag = match[0]
            if tag[1:2] in b"?!":
                continue
            top = self._depth == 1
            if tag[1:2] == b"/":
                self._depth -= 1
                complete = self._depth == 1
            else:
                if top:
                    self._parts, self._size = [], 0
                    at = match.start()
                complete = top and tag[-2:] == b"/>"
                self._depth += tag[-2:] != b"/>"
            if complete:
                self._keep(text[at:end])
                self._stanza()
        unfinished = text.find(b"<", end)
        end = len(text) if unfinished < 0 else unfinished
        if self._depth > 1:
            self._keep(text[at:end])
        self._rest = text[end:]

    def _keep(self, part: bytes) -> None:
        if self._size < _HEAD:
            self._parts.append(part)
            self._size += len(part)

    def _stanza(self) -> None:
        data = b"".join(self._parts)
        self._parts = []
        start = start_tag(data)
        self._found(re.split(rb"[\s/>]", start[1:], maxsplit=1)[0], attributes(start), data)


def start_tag(data: bytes) -> bytes:
    """The first tag of an element."""
    found = _TAG.match(data)
    assert found is not None
    return found[0]


def attributes(start: bytes) -> dict[str, str]:
    """The attributes of a start tag, as they are meant."""
    return {
        name.decode(errors="replace"): _value(double or single)
        for name, double, single in _ATTRIBUTE.findall(start)
    }


class Tap(Proxy):
    """Passes everything on.

    Attributes:
        came: stanzas that the server gave to the component.
        requests: of these, IQs of type get or set.
        connections: connections of the component so far; `lost` of these have ended.
        conditions: how requests were answered: `result`, or the condition of the error.
        left: requests without an answer when the last connection ended.
        wrong: what may not happen: answers that nobody waits for, in words.
    """

    keeps = False

    def __init__(self, address: str, port: int) -> None:
        super().__init__(address, port)
        self.came = self.requests = self.connections = self.lost = 0
        self.wrong: list[str] = []
        self.left: list[bytes] = []
        self._own: set[Key] = set()  # requests of the component to itself
        self._open: dict[Key, list[tuple[float, bytes]]] = {}
        self._last: deque[bytes] = deque(maxlen=_REMEMBERED)
        self._frames: dict[Pair, dict[bool, Frames]] = {}
        self._lock = threading.Lock()
        self.conditions: Counter[str] = Counter()

    # -- what it knows -----------------------------------------------------------------------------

    def unanswered(self, age_s: float = 0.0) -> list[tuple[float, bytes]]:
        """Requests without an answer that came so many seconds ago or earlier, and when."""
        before = time.monotonic() - age_s
        with self._lock:
            return [one for waiting in self._open.values() for one in waiting if one[0] <= before]

    def forget(self) -> None:
        """Wait for no answer to what came so far."""
        with self._lock:
            for waiting in self._open.values():
                waiting[:] = [(math.inf, data) for _, data in waiting]

    def last(self) -> list[bytes]:
        """The stanzas that the server gave to the component last."""
        with self._lock:
            return list(self._last)

    def wait_ended(self) -> None:
        """Wait until every connection of the component has ended."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.lost == self.connections > 0, TIMEOUT):
                raise TimeoutError(f"the component is still connected after {TIMEOUT} s")

    # -- what passes -------------------------------------------------------------------------------

    def passing(self, pair: Pair, data: bytes, *, to_server: bool) -> None:
        with self._lock:
            if pair not in self._frames:
                self._frames[pair] = {
                    True: Frames(self._from_component),
                    False: Frames(self._to_component),
                }
                self.connections += 1
            frames = self._frames[pair]
            if data and frames:
                frames[to_server].feed(data)
            elif frames:  # one side has ended it
                frames.clear()
                self.lost += 1
                self.left = [
                    data for waiting in self._open.values() for at, data in waiting if at < math.inf
                ]
                self._open.clear()  # an answer on another stream is none

    def _to_component(self, name: bytes, given: dict[str, str], data: bytes) -> None:
        key = given.get("id"), given.get("from"), given.get("to")
        if key in self._own:
            self._own.discard(key)
            return
        self.came += 1
        self._last.append(data)
        type_ = given.get("type")
        if name.rpartition(b":")[2] == b"iq" and type_ not in {"result", "error"}:
            required = type_ in {"get", "set"} and len(start_tag(data)) <= LARGEST
            self.requests += required
            # What is no request may be refused, once (RFC 6120 §8.2.3). A start tag that is larger
            # than a stanza may be is never read to its end.
            at = time.monotonic() if required else math.inf
            waiting = self._open.setdefault(key, [])
            waiting.append((at, data))
            waiting.sort()

    def _from_component(self, name: bytes, given: dict[str, str], data: bytes) -> None:
        if name != b"iq":
            return
        if given.get("type") not in {"result", "error"}:
            if given.get("from") == given.get("to"):
                self._own.add((given.get("id"), given.get("from"), given.get("to")))
            return
        key = given.get("id"), given.get("to"), given.get("from")
        found = re.search(rb"<([\w-]+) xmlns=['\"]urn:ietf:params:xml:ns:xmpp-stanzas", data)
        self.conditions[found[1].decode() if found else "result"] += 1
        waiting = self._open.get(key)
        if not waiting:
            self.wrong.append(f"an answer that nobody waits for: {data[:2000]!r}")
            return
        del waiting[0]
        if not waiting:
            del self._open[key]


def _value(written: bytes) -> str:
    """An attribute's value as XML means it (XML 1.0 §3.3.3)."""
    text = written.decode(errors="replace").replace("\r\n", " ")
    text = text.translate({9: " ", 10: " ", 13: " "})
    if "&" in text:
        text = _REFERENCE.sub(lambda found: chr(int(found[2], 16 if found[1] else 10)), text)
        text = unescape(text, {"&quot;": '"', "&apos;": "'"})
    return text
