"""The tap's account is right, however the bytes are cut."""

import socket
import threading
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.hostile.tap import LARGEST, Frames, Tap

HEADER = b"<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept'>"
STANZAS = (
    b"<iq type='get' id='&apos;&#10;&lt;' from='a@b/&quot;' to='c'><x a='>'>]]> ' </x></iq>",
    b"<message to='c'/>",
    b'<xml:foo xml:foo="1"><iq type="get" id="no"/></xml:foo>',
    b"<iq type='set' id='2'><x><iq type='set' id='no'></iq></x></iq>",
    b"<iq to=\"a@b/'\" type='get'\n\tid='1\r\n2'></iq>",
)
NO_REQUEST = b"<iq type='x' id='3' from='a' to='c'/>"


@given(cuts=st.lists(st.integers(0, 500), max_size=12))
def test_each_stanza_is_found_whole(cuts: list[int]) -> None:
    found: list[bytes] = []
    frames = Frames(lambda _name, _attributes, data: found.append(data))
    text = HEADER + b" \n".join(STANZAS)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(edges):
        frames.feed(text[start:end])
    assert tuple(found) == STANZAS


def exchange(component_says: bytes) -> Tap:
    """What a tap knows after the component has said this, and the connection has ended."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(HEADER + STANZAS[0] + STANZAS[4] + NO_REQUEST)
            while connection.recv(65536):
                pass

    threading.Thread(target=serve).start()
    with (
        Tap(*server.getsockname()) as tap,
        socket.create_connection(("127.0.0.1", tap.port)) as component,
    ):
        came = b""
        while not came.endswith(NO_REQUEST):
            came += component.recv(65536)
        component.sendall(HEADER + component_says)
        component.shutdown(socket.SHUT_WR)
        tap.wait_ended()
    server.close()
    return tap


def test_every_request_needs_its_answer_and_no_other() -> None:
    first = b'<iq type="error" id="\'&#xA;&lt;" to=\'a@b/"\' from="c"><error/></iq>'
    second = b"<iq type='result' id='1 2' from=\"a@b/'\"/>"
    answered = exchange(first + second)
    assert (answered.requests, answered.came, answered.wrong) == (2, 3, [])
    assert answered.left == []
    assert exchange(first).left == [STANZAS[4]]
    assert len(exchange(first + first + second).wrong) == 1


def test_what_is_no_request_may_be_refused_once() -> None:
    refusal = b"<iq type='error' id='3' from='c' to='a'/>"
    assert exchange(refusal).wrong == []
    assert len(exchange(refusal + refusal).wrong) == 1


def test_a_start_tag_larger_than_a_stanza_may_be_needs_no_answer() -> None:
    tap = Tap("127.0.0.1", 1)
    with tap:
        frames = Frames(tap._to_component)
        head = b"<iq type='get' from='a' to='c' id='"
        frames.feed(HEADER + head + b"x" * (LARGEST - 100) + b"'/>")
        frames.feed(head + b"y" * LARGEST + b"'/>")
    assert [data[:40] for _, data in tap.unanswered()] == [head + b"x" * 5]
