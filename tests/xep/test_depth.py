"""However deep or wide a stanza is that the limits let through, nothing recurses over it.

Each test runs with little left of the stack, as if its caller were deep in it already.
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.profiles import THOROUGH
from tests.xep.strategies import PAYLOADS
from tests.xep.stream.streams import HEADER
from xep.binding import ContentError, Payload, decode, encode
from xep.binding.declaration import read_plan
from xep.data_forms import Form
from xep.fluux_agent.errors import CONDITIONS
from xep.fluux_agent.execute import Execute
from xep.stanza import Incoming
from xep.stanza_error import StanzaError
from xep.stream import ElementReceived, StanzaSkipped, StreamLimits, StreamParser, careful

FRAMES = 40
"""What is left of the stack: more than any declaration nests, less than any stanza may."""
HUGE = StreamLimits(bytes=1 << 24, depth=30_000, elements=1_000_000)
DEEP = 20_000 if THOROUGH else 2_000
WIDE = 300_000 if THOROUGH else 20_000
"""What no operator would allow."""


def near_the_end(call: Callable[[], Any]) -> Any:
    """Call with `FRAMES` frames left."""
    left = sys.getrecursionlimit()
    frame = sys._getframe()
    while frame is not None:  # type: ignore[redundant-expr]
        left -= 1
        frame = frame.f_back  # type: ignore[assignment]

    def deeper(count: int) -> Any:
        return call() if count <= FRAMES else deeper(count - 1)

    return deeper(left)


def arrive(xml: bytes, limits: StreamLimits | None = None) -> Incoming:
    def read() -> list[Any]:
        return StreamParser(limits=limits).receive(HEADER + xml)

    _, event = near_the_end(read)
    assert isinstance(event, ElementReceived), event
    return Incoming.of(event.element, event.size)


def nested(name: str, levels: int, namespace: str = "", inside: str = "") -> bytes:
    declared = f" xmlns='{namespace}'" if namespace else ""
    return f"{f'<{name}{declared}>' * levels}{inside}{f'</{name}>' * levels}".encode()


SHAPES: dict[str, tuple[bytes, StreamLimits | None]] = {
    "as deep as by default": (nested("x", 62), None),
    "as wide as by default": (b"<x/>" * 4094, None),
    "as deep as anybody may wish": (nested("x", 29_998 if THOROUGH else 2_000), HUGE),
    "as wide as anybody may wish": (b"<x/>" * WIDE, HUGE),
    "deep with namespaces": (nested("x", DEEP, "urn:}"), HUGE),
    "forwarded": (
        nested("message", DEEP, "jabber:client", "<forwarded xmlns='urn:xmpp:forward:0'/>"),
        HUGE,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stanza_is_read_and_written_again(shape: str) -> None:
    content, limits = SHAPES[shape]
    stanza = b"<message id='1'><a>" + content + b"</a></message>"
    found = arrive(stanza, limits)
    xml = near_the_end(lambda: found.forward(to="b.test"))
    again = arrive(xml.encode(), limits)
    assert (again.to, again.id) == ("b.test", "1")
    assert near_the_end(again.forward) == xml
    assert near_the_end(lambda: found.text_of("body")) is None
    assert near_the_end(lambda: found.payload_names) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_one_that_cannot_be_parsed_is_skipped(shape: str) -> None:
    content, limits = SHAPES[shape]
    stanza = b"<iq id='1'>" + content + b"\0</iq>"
    parser = StreamParser(limits=limits)
    (skipped,) = near_the_end(lambda: parser.receive(HEADER + stanza))[1:]
    assert isinstance(skipped, StanzaSkipped)
    assert (skipped.id, skipped.limit) == ("1", None)
    assert near_the_end(lambda: careful.is_one_element(stanza))


@pytest.mark.parametrize(
    "cls", PAYLOADS if THOROUGH else PAYLOADS[::6], ids=lambda cls: cls.__qualname__
)
def test_no_decoder_goes_deeper_than_its_declaration(cls: type[Payload]) -> None:
    own = {cls.xml.tag, *(t.xml.tag for _, f in read_plan(cls).children for t in f.payloads)}
    for tag in own:
        namespace, _, local = tag[1:].rpartition("}")
        outer = f"<{cls.xml.local} xmlns='{cls.xml.namespace}'>".encode()
        inner = nested(local, 3_000 if THOROUGH else 500, namespace)
        payload = arrive(b"<iq>" + outer + inner + f"</{cls.xml.local}></iq>".encode(), HUGE)
        for strict in (False, True):
            try:
                found = near_the_end(lambda s=strict, p=payload: p.payload(cls, strict=s))
            except ContentError as error:
                assert len(str(error)) < 1000  # noqa: PT017 - it may be refused or not
            else:
                near_the_end(lambda f=found: encode(f))


def test_forms_as_wide_as_a_stanza_may_be() -> None:
    fields = b"<field var='v'><value/></field>" * 2046
    form = arrive(b"<iq><x xmlns='jabber:x:data' type='submit'>" + fields + b"</x></iq>")
    found = near_the_end(lambda: form.require(Form))
    assert len(found.fields) == 2046
    assert decode(Form, arrive(f"<iq>{encode(found)}</iq>".encode())._element[0]) == found


def test_stanza_errors_are_read_however_deep() -> None:
    text = "<text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'>"
    for content in (
        nested("x", DEEP, "urn:x"),
        nested("error", DEEP),
        text.encode() + b"</text>",
    ):
        stanza = arrive(b"<iq type='error'><error>" + content + b"</error></iq>", HUGE)
        error = near_the_end(lambda s=stanza: s.error(CONDITIONS))
        assert error.condition == "undefined-condition"
        near_the_end(error.encode)


def test_errors_are_short_whatever_they_quote() -> None:
    form = Form(type="submit")
    assert form.fields == ()
    long = "x" * 200_000
    found = arrive(
        f"<iq><x xmlns='jabber:x:data' type='submit'><field var='{long}'><value>a</value>"
        "</field></x></iq>".encode()
    ).require(Form)
    with pytest.raises(ContentError) as refused:
        found.fields[0].read(int)
    assert len(str(refused.value)) < 1000
    assert len(StanzaError("bad-request", long).encode()) < 3000
    assert len(str(StanzaError("bad-request", long))) < 3000
    with pytest.raises(ContentError) as missing:
        arrive(f"<iq><{long} xmlns='urn:x'/></iq>".encode()).require(Execute)
    assert len(str(missing.value)) < 1000
