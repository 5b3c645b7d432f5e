"""Identifies the peer of a local socket (unix(7), SO_PEERCRED)."""

import os
import socket
import struct
from typing import Protocol

_UCRED = struct.Struct("3i")  # pid, uid, gid


class HasOptions(Protocol):
    """A socket of any event loop."""

    def getsockopt(self, level: int, name: int, size: int, /) -> bytes:
        """Return the bytes of an option."""


def may_control(uid: int) -> bool:
    """Return whether a user may control this service: the one it runs as, and root."""
    return uid in (0, os.geteuid())


def peer_uid(raw: HasOptions) -> int:
    """Return the user id of the process that connected, as the kernel knows it."""
    _, uid, _ = _UCRED.unpack(raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)
