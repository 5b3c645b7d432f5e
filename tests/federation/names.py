"""A DNS server that knows the addresses of the servers of the tests (RFC 1035)."""

import socket
import struct
import threading
from collections.abc import Mapping
from typing import Self

_A, _SRV, _IN = 1, 33, 1
_NO_SUCH_NAME = 3
_TTL_S = 1


class Names:
    """Answers queries on 127.0.0.1; records that it does not have are missing.

    `addresses` are those of domains and of all domains below them. `services` are the hosts and
    ports of SRV records (RFC 2782), by the names of these. Works as a context manager.
    """

    def __init__(
        self, addresses: Mapping[str, str], services: Mapping[str, tuple[str, int]]
    ) -> None:
        self._addresses = addresses
        self._services = services
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._serve, name="DNS", daemon=True)

    def __enter__(self) -> Self:
        self._socket.bind(("127.0.0.1", 53))
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        # An empty query wakes the thread; closing the socket does not.
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, client = self._socket.recvfrom(512)
            if not query:
                return
            self._socket.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        end = 12
        labels = []
        while length := query[end]:
            labels.append(query[end + 1 : end + 1 + length].decode().lower())
            end += 1 + length
        question = query[12 : end + 5]
        (kind,) = struct.unpack_from(">H", query, end + 1)
        name = ".".join(labels)
        parents = [".".join(labels[first:]) for first in range(len(labels))]
        address = next((self._addresses[one] for one in parents if one in self._addresses), None)
        data = b""
        if kind == _A and address is not None:
            data = socket.inet_aton(address)
        elif kind == _SRV and name in self._services:
            host, port = self._services[name]
            data = struct.pack(">HHH", 0, 0, port) + _encoded(host)
        records = b""
        if data:  # of the name in the question, which is at offset 12
            records = struct.pack(">HHHIH", 0xC00C, kind, _IN, _TTL_S, len(data)) + data
        flags = 0x8580 | (_NO_SUCH_NAME if address is None else 0)
        counts = struct.pack(">HHHHH", flags, 1, bool(records), 0, 0)
        return query[:2] + counts + question + records


def _encoded(name: str) -> bytes:
    """Return a name as a message has it."""
    return b"".join(bytes((len(label),)) + label.encode() for label in name.split(".")) + b"\0"
