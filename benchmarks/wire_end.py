"""The other end of the connection: blocking sockets that send prepared data and count the answers.

They only search for `</iq>`, so that the component is measured and not this end. Received data is
stored and parsed after the measurement.
"""

from __future__ import annotations

import secrets
import socket
import struct
from time import perf_counter
from typing import Self

from benchmarks.traffic import END, Traffic
from tests.servers.raw_client import TlsSocket
from xep.component_stream import AcceptorStream, HandshakeReceived
from xep.stream import StreamOpened

_TIMEOUT_S = 60
_MOST = 1 << 18
Stream = socket.socket | TlsSocket
DOMAIN = "agent.localhost"
SECRET = "secret of the component"


class Acceptor:
    """The server's side of a component stream (XEP-0114) on its own loopback port.

    `accept` waits for a component and performs the handshake; `socket` is then its stream.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_TIMEOUT_S)
        self.port: int = self._listener.getsockname()[1]
        self.socket: socket.socket

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def accept(self) -> float:
        """Accept a component; return the time at which it had proved the secret."""
        self.socket, _ = self._listener.accept()
        _set_timeout(self.socket)
        stream = AcceptorStream()
        while True:
            for event in stream.receive(self.socket.recv(_MOST)):
                if isinstance(event, StreamOpened):
                    self.socket.sendall(stream.open(secrets.token_hex(8), SECRET))
                else:
                    assert isinstance(event, HandshakeReceived), f"no handshake: {event}"
                    seen = perf_counter()
                    self.socket.sendall(stream.accept())
                    return seen

    def hang_up(self) -> None:
        """Close the stream abruptly, so that another component may connect."""
        self.socket.close()

    def close(self) -> None:
        """Close everything."""
        self._listener.close()
        if hasattr(self, "socket"):
            self.socket.close()


def drive(sock: Stream, traffic: Traffic, in_flight: int) -> tuple[float, bytes]:
    """Send all of `traffic`, with at most `in_flight` unanswered; return the seconds, and the
    replies.
    """
    count = traffic.count
    sent = min(in_flight, count)
    answered = 0
    heard: list[bytes] = []
    tail = b""
    start = perf_counter()
    sock.sendall(traffic[0:sent])
    while answered < count:
        data = sock.recv(_MOST)
        assert data, f"the stream ended after {answered} of {count} answers"
        heard.append(data)
        piece = tail + data
        new = piece.count(END)
        tail = piece[1 - len(END) :]
        if new:
            answered += new
            upto = min(sent + new, count)
            if upto > sent:
                sock.sendall(traffic[sent:upto])
                sent = upto
    return perf_counter() - start, b"".join(heard)


_LOOKED_FOR = b"id='b"  # no longer than END, so that one tail is enough for both


def beside(
    sock: socket.socket, crowd: Traffic | None, in_flight: int, one: Traffic
) -> tuple[list[float], int]:
    """Send `one`, whose ids begin with b, an IQ at a time, while `in_flight` of `crowd` are under
    way all the time. Seconds from each IQ of `one` sent to its reply received, and how many of the
    crowd were answered meanwhile.
    """
    latencies: list[float] = []
    sent = in_flight
    answered = 0
    tail = b""
    if crowd is not None:
        sock.sendall(crowd[0:in_flight])
    asked = perf_counter()
    sock.sendall(one[0:1])
    while len(latencies) < one.count:
        data = sock.recv(_MOST)
        now = perf_counter()
        assert data, "the stream ended"
        assert b"type='error'" not in data, f"an IQ was refused: {data[:2000]!r}"
        piece = tail + data
        new = piece.count(END)
        tail = piece[1 - len(END) :]
        begun = piece.find(_LOOKED_FOR)
        mine = begun >= 0 and piece.find(END, begun) >= 0
        if begun >= 0 and not mine:
            tail = piece[begun:]
        new -= mine
        answered += new
        if crowd is not None and new:
            sent = _send_round(sock, crowd, sent, new)
        if mine:
            latencies.append(now - asked)
            number = len(latencies)
            if number < one.count:
                asked = perf_counter()
                sock.sendall(one[number : number + 1])
    _drain(sock, sent - answered, tail)
    return latencies, answered


def _send_round(sock: socket.socket, crowd: Traffic, sent: int, new: int) -> int:
    """Send `new` more, from the beginning again after the last one; how many were sent so far."""
    at = sent % crowd.count
    first = min(new, crowd.count - at)
    sock.sendall(crowd[at : at + first])
    if first < new:
        sock.sendall(crowd[0 : new - first])
    return sent + new


def _drain(sock: socket.socket, under_way: int, tail: bytes) -> None:
    while under_way > 0:
        data = sock.recv(_MOST)
        assert data, "the stream ended"
        piece = tail + data
        under_way -= piece.count(END)
        tail = piece[1 - len(END) :]


def _set_timeout(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A time-out of the kernel: one of Python needs another system call for each read.
    timeout = struct.pack("ll", _TIMEOUT_S, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
