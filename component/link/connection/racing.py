"""Connects to the first of several addresses that answers (RFC 8305, "Happy Eyeballs").

`anyio.connect_tcp` races addresses too. It returns a buffered stream, and on asyncio no socket that
can be used with readiness events, which `component.link.connection.transport` needs.
"""

import errno
import os
import socket
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import anyio

AddressInfo: TypeAlias = tuple[Any, Any, int, str, Any]
"""An entry of the result of `socket.getaddrinfo`."""

DELAY_S: Final = 0.25
"""Seconds between one attempt and the next, while none has failed (RFC 8305 §8)."""


async def race(addresses: Iterable[AddressInfo], delay_s: float = DELAY_S) -> socket.socket:
    """Connect to one of the addresses, as returned by `getaddrinfo`; a non-blocking socket.

    Attempts begin one after another in the order of `in_turn`, each ``delay_s`` seconds after the
    one before, or at once when that one fails. The first that succeeds cancels the others.

    Raises:
        OSError: no address took the connection; the error of the last attempt that failed.
    """
    won: list[socket.socket] = []
    last: list[OSError] = [OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))]

    async def attempt(info: AddressInfo, failed: anyio.Event) -> None:
        try:
            sock = await _connect(info)
        except OSError as error:
            last.append(error)
            failed.set()
            return
        if won:
            sock.close()  # both answered before the other one could be cancelled
        else:
            won.append(sock)
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for info in in_turn(addresses):
                failed = anyio.Event()
                tasks.start_soon(attempt, info, failed)
                with anyio.move_on_after(delay_s):
                    await failed.wait()
    except BaseException:
        for sock in won:
            sock.close()
        raise
    if not won:
        raise last[-1]
    return won[0]


def in_turn(addresses: Iterable[AddressInfo]) -> Sequence[AddressInfo]:
    """Return the addresses with alternating families, starting with that of the first (RFC 8305
    §4).
    """
    families: dict[object, list[AddressInfo]] = {}
    for info in addresses:
        families.setdefault(info[0], []).append(info)
    return [info for turn in zip_longest(*families.values()) for info in turn if info is not None]


async def _connect(info: AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            await anyio.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # An ephemeral port on which nobody listens can be assigned to this very socket, which then
        # connects to itself.
        if code == 0 and sock.getsockname()[:2] == address[:2]:
            code = errno.ECONNREFUSED
    except BaseException:
        sock.close()
        raise
    if code:
        sock.close()
        raise OSError(code, os.strerror(code))
    return sock
