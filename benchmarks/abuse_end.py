"""The acceptor's side of the abuse benchmark: one client sends without end, another one pings.

A server has one output queue for a component. So does this acceptor: a thread sends queued data in
order, while the other end reads.
"""

from __future__ import annotations

import queue
import re
import socket
import threading
import time
from collections.abc import Iterator
from time import perf_counter
from typing import Protocol

from benchmarks.wire_end import DOMAIN

JULIET = "juliet@localhost/balcony"
ROMEO = "romeo@localhost/orchard"

_MOST = 1 << 18
_LONGEST_S = 8.0
"""Seconds after which no more pings are sent, even if there were few."""
_PAUSE_S = 0.01
"""Seconds between an answer and the next ping, so that the pings fall into all stages of
the abuse.
"""
_TAIL = 2048
"""Bytes of a stanza's head that a read may divide."""
_REPLY = re.compile(rb"<(iq|message|presence) ([^>]*)>")
_ATTRIBUTE = re.compile(rb"(id|type|to|from)='([^']*)'")
_PING = "<iq id='{id}' type='get' to='{to}' from='{sender}'><ping xmlns='urn:xmpp:ping'/></iq>"


class Crowd(Protocol):
    """The stanzas that Romeo sends."""

    in_flight: int
    """The constant number of unanswered stanzas."""

    per_ping: int
    """The number of additional stanzas per ping of Juliet, if there are no answers."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the stanzas, without end."""

    def heard(self, head: dict[str, str], data: bytes) -> bytes:
        """Process an answer to Romeo; return the data to send because of it."""


def beside(sock: socket.socket, crowd: Crowd | None, samples: int, *, first: str) -> list[float]:
    """Send `samples` pings together with the crowd; return the seconds from queueing each ping to
    its result.
    """
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    sender = threading.Thread(target=_send, args=(sock, waiting), daemon=True)
    sender.start()
    stanzas = None if crowd is None else iter(crowd)
    under_way = 0
    if crowd is not None and stanzas is not None:
        for _ in range(crowd.in_flight):
            waiting.put(next(stanzas))
            under_way += 1
    latencies: list[float] = []
    number = 0

    asked = start = perf_counter()
    pings: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def ping() -> None:
        nonlocal asked
        while (count := pings.get()) is not None:
            time.sleep(_PAUSE_S)
            asked = perf_counter()
            waiting.put(_PING.format(id=f"{first}{count}", to=DOMAIN, sender=JULIET).encode())

    pinger = threading.Thread(target=ping, daemon=True)
    pinger.start()
    pings.put(number)
    tail = b""
    over = False
    while not over or under_way > 0:
        data = sock.recv(_MOST)
        now = perf_counter()
        assert data, "the stream ended"
        piece = tail + data
        end = 0
        for found in _REPLY.finditer(piece):
            end = found.end()
            head = {key.decode(): value.decode() for key, value in _ATTRIBUTE.findall(found[2])}
            if head.get("to") == JULIET:
                assert head["type"] == "result", f"a ping was refused: {piece[:2000]!r}"
                latencies.append(now - asked)
                number += 1
                if number < samples and (number < 2 or now - start < _LONGEST_S):
                    pings.put(number)
                    for _ in range(0 if crowd is None else crowd.per_ping):
                        assert stanzas is not None
                        waiting.put(next(stanzas))
                else:
                    over = True
                continue
            if found[1] == b"iq" and head.get("type") in ("get", "set"):
                waiting.put(_no_service(head))
                continue
            if crowd is None or found[1] != b"iq":
                continue
            under_way -= 1
            if not over:
                assert stanzas is not None
                more = crowd.heard(head, piece[found.start() : found.start() + _TAIL])
                waiting.put(more or next(stanzas))
                under_way += 1
        rest = piece[end:]
        cut = rest.rfind(b"<")
        tail = rest[cut:] if cut >= 0 and b">" not in rest[cut:] else b""
    pings.put(None)
    waiting.put(None)
    pinger.join()
    sender.join()
    return latencies


def _send(sock: socket.socket, waiting: queue.SimpleQueue[bytes | None]) -> None:
    while (data := waiting.get()) is not None:
        sock.sendall(data)


def _no_service(head: dict[str, str]) -> bytes:
    """Return a server's answer on behalf of a client that does not answer."""
    return (
        f"<iq id='{head['id']}' type='error' to='{head['from']}' from='{head['to']}'>"
        "<error type='cancel'><service-unavailable"
        " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    ).encode()
