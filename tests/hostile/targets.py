"""What holds for any bytes that a peer may send: one function for each way into `xep`, one for the
calls in the texts of models, and one for times in words.

`tests.hostile.fuzz` looks for bytes for which it does not hold, `test_corpus.py` tries those that
are known. A target raises if something does not hold, and never for what the bytes are.
"""

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from component.features.schedules.timing import TimingError, next_after
from component.features.schedules.when import read_timing, split_timing, timing_text
from component.models.answer_limits import CALLS
from component.models.call_forms import Call
from component.models.written_calls import WrittenCalls, without_calls
from tests.xep.stream.streams import HEADER, plain, tree
from xep.binding import ContentError, EncodingError, Payload, decode, encode
from xep.component_states import State
from xep.component_stream import AcceptorStream, ComponentStream
from xep.data_forms import Field, Form
from xep.fluux_agent.errors import CONDITIONS
from xep.jid import JID, JIDError
from xep.stanza import IQ, NAMESPACE, Incoming
from xep.stanza_stream import StreamFailed
from xep.stream import ElementReceived, ParserFailed, StreamLimits, StreamParser, careful

LIMITS: Final = (
    StreamLimits(),
    StreamLimits(400, 6, 12),
    StreamLimits(60, 3, 4, skipped=300),
    StreamLimits(elements=2),
)


def stream(data: bytes) -> None:
    """The parser: how the bytes are cut makes no difference, and little is kept of them.

    The first byte chooses the limits, the second how the rest is cut.
    """
    limits = LIMITS[data[0] % len(LIMITS)] if data else LIMITS[0]
    step = max(1, data[1] if len(data) > 1 else 1)
    whole = HEADER + data[2:]
    expected = _events(StreamParser(limits=limits), [whole])
    pieces = [whole[at : at + step] for at in range(0, len(whole), step)]
    parser = StreamParser(limits=limits)
    assert _events(parser, pieces) == expected
    assert parser.pending <= max(limits.bytes, len(HEADER))


def component(data: bytes) -> None:
    """The component's end of a stream: whatever a server sends, it is told by events."""
    machine = ComponentStream("agent.example.org", "secret", LIMITS[1])
    machine.open()
    step = max(1, data[0] if data else 1)
    for at in range(1, len(data), step):
        events = machine.receive(data[at : at + step])
        assert not any(isinstance(event, StreamFailed) for event in events[:-1])
        if machine.state is State.OPENED:
            machine.handshake()


def acceptor(data: bytes) -> None:
    """The server's end, likewise."""
    machine = AcceptorStream(LIMITS[1])
    step = max(1, data[0] if data else 1)
    for at in range(1, len(data), step):
        machine.receive(data[at : at + step])
        if machine.state is State.OPENED:
            machine.open("id", "secret")


def stanza(data: bytes) -> None:
    """One element: what can be read of it can be written, and is then read as the same."""
    first = _element(data)
    if first is None:
        return
    # The slower parser reads the same.
    header = HEADER.replace(b"jabber:component:accept", NAMESPACE.encode())
    slow = careful.parse(header, data.strip()[: first.size])
    assert tree(slow) == tree(first._element) or b"component:" in data or b"&#" in data
    written = first.forward()
    again = _element(written.encode())
    assert again is not None, written
    assert tree(again._element) == tree(first._element)
    for lang in (None, "de"):
        first.text_of("body", lang)
    error = first.error(CONDITIONS)
    try:
        IQ(type="error", id=first.id or "", to="a@b", from_="c", error=error).encode()
    except EncodingError as misfit:
        raise AssertionError("what was read cannot be written") from misfit
    for child in first._element:
        for cls in _BY_TAG.get(child.tag, ()):
            _payload(cls, child)


def jid(data: bytes) -> None:
    """Addresses: prepared once and for all; delivered, they are what they were."""
    text = data.decode("utf-8", "surrogatepass") if _is_text(data) else data.decode("latin-1")
    try:
        found = JID.parse(text)
    except JIDError as error:
        _check_length(error)
        _refused(JID.parse_delivered, text)
        return
    assert JID.parse(str(found)) == found
    try:
        delivered = JID.parse_delivered(text)
    except JIDError:
        return
    assert delivered == found
    bare = text.partition("/")[0]
    assert str(found.bare) == bare or "xn--" in bare


def written_calls(data: bytes) -> None:
    """The answer of a model: how it is cut makes no difference, a call has an object as arguments,
    and what is shown has no markup that would be removed again.

    The first byte chooses how the rest is cut.
    """
    text = data[1:].decode(errors="replace")
    step = max(1, data[0] if data else 1)
    whole = _answer(text)
    assert _answer(*[text[at : at + step] for at in range(0, len(text), step)]) == whole
    said, calls = whole
    for name, arguments in calls:
        assert name in _TOOLS
        assert isinstance(json.loads(arguments), dict)
    if calls:
        assert text.startswith(said), "what is before the calls is shown as it is"
    else:
        assert said == text
    shown = without_calls(said)
    assert len(shown) <= len(said) + 2 * CALLS


def time_in_words(data: bytes) -> None:
    """A time: understood whole or refused, and then it fires; no other word may be in it."""
    text = data.decode(errors="replace")
    try:
        timing = read_timing(text, "Europe/Berlin", _NOW)
    except TimingError as error:
        _check_length(error)
        with contextlib.suppress(TimingError):
            when, what = split_timing(text)
            assert what
            read_timing(when, "Europe/Berlin", _NOW)
        return
    assert next_after(timing, _NOW) is not None
    assert timing_text(timing, "Europe/Berlin", text)
    try:
        read_timing(f"{text} bananas", "Europe/Berlin", _NOW)
    except TimingError:
        return
    raise AssertionError("a word that means nothing is skipped")


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target
    for target in (stream, component, acceptor, stanza, jid, written_calls, time_in_words)
}

_NOW: Final = datetime(2026, 10, 24, 12, 0, 30, tzinfo=UTC)
"""The day before the end of summer time."""
_SCHEMA: Final = {"properties": {"zone": {"type": "string"}, "days": {"type": "integer"}}}
_TOOLS: Final = {"clock": _SCHEMA, "diary.look": {}}

_KINDS: Final = (str, bool, int, float, Decimal, datetime, JID)
_BY_TAG: Final[dict[str, list[type[Payload]]]] = {}


def _know_payloads() -> None:
    from tests.xep.strategies import PAYLOADS

    for cls in PAYLOADS:
        _BY_TAG.setdefault(cls.xml.tag, []).append(cls)


_know_payloads()


def _answer(*pieces: str) -> tuple[str, list[Call]]:
    reader = WrittenCalls(_TOOLS, lambda _: False)
    said = "".join(map(reader.feed, pieces))
    rest, calls = reader.end()
    return said + rest, calls


def _events(parser: StreamParser, pieces: list[bytes]) -> list[object]:
    found: list[object] = []
    for piece in pieces:
        events = parser.receive(piece)
        assert not any(isinstance(event, ParserFailed) for event in events[:-1])
        found += map(plain, events)
        if events and isinstance(events[-1], ParserFailed):
            break
    return found


def _element(data: bytes) -> Incoming | None:
    events = StreamParser(limits=StreamLimits()).receive(HEADER + data)
    if len(events) == 2 and isinstance(events[1], ElementReceived):
        return Incoming.of(events[1].element, events[1].size)
    return None


def _payload(cls: type[Payload], child: object) -> None:
    try:
        found = decode(cls, child)  # type: ignore[arg-type]  # an element
    except ContentError as error:
        _check_length(error)
        return
    xml = encode(found)
    again = _element(f"<iq>{xml}</iq>".encode())
    assert again is not None, xml
    assert again.payload(cls, strict=True) == found
    if isinstance(found, Form):
        for field in found.fields:
            _field(field)


def _field(field: Field) -> None:
    for kind in _KINDS:
        try:
            field.read(kind)
        except ContentError as error:
            _check_length(error)


def _check_length(error: Exception) -> None:
    assert len(str(error)) < 1000, "an error quotes all that was sent"


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _refused(parse: Callable[[str], JID], text: str) -> None:
    try:
        parse(text)
    except JIDError:
        return
    raise AssertionError(f"delivered it is accepted, otherwise refused: {text!a}")
