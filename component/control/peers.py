"""Identifies the peer of a local socket (unix(7), SO_PEERCRED)."""

import os
import socket
import struct

_UCRED = struct.Struct("3i")  # pid, uid, gid


def may_control(uid: int) -> bool:
    """Return whether a user may control this service: the one it runs as, and root."""
    return uid in (0, os.geteuid())


def peer_uid(sock: socket.socket) -> int:
    """Return the user id of the process that connected, as the kernel knows it."""
    _, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)
