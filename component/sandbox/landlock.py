"""The files, ports and signals of a confined process: Landlock, through the package landlockpy.

Landlock restricts the calling thread and what it starts. It knows nothing of UDP (before ABI 10),
of Unix sockets with a path (before ABI 9), netlink and raw sockets: seccomp refuses those.
"""

from __future__ import annotations

import ctypes.util
import os
import stat
from collections.abc import Iterable
from typing import Final

import landlockpy
from landlockpy import AccessFS, AccessNet, Scope

from component.sandbox.profile import ConfinementError, Profile

PORTS_ABI: Final = 4
SIGNALS_ABI: Final = 6

_READ: Final = AccessFS.EXECUTE | AccessFS.READ_FILE | AccessFS.READ_DIR
_WRITE: Final = (
    AccessFS.READ_FILE
    | AccessFS.READ_DIR
    | AccessFS.WRITE_FILE
    | AccessFS.TRUNCATE
    | AccessFS.REMOVE_DIR
    | AccessFS.REMOVE_FILE
    | AccessFS.MAKE_DIR
    | AccessFS.MAKE_REG
    | AccessFS.MAKE_SYM
    | AccessFS.MAKE_FIFO
    | AccessFS.REFER
)
_OF_FILES: Final = AccessFS.EXECUTE | AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE


def abi() -> int:
    """Return the version of the kernel's Landlock, or 0 without it."""
    # Both packages ask find_library for the C library, which runs other programs to find it; the
    # library is in the process already.
    ctypes.util.find_library = lambda name: None
    try:
        return landlockpy.abi_version()
    except landlockpy.LandlockError:
        return 0


def restrict(profile: Profile, read: Iterable[str], write: Iterable[str]) -> None:
    """Restrict this thread, and what it starts, for ever.

    Args:
        profile: gives the ports.
        read: files and directories that can be read, and whose programs can be run.
        write: those that can be changed.

    Raises ConfinementError.
    """
    try:
        with landlockpy.Ruleset(
            handled_net=AccessNet.NONE if profile.network == "any" else None,
            scoped=Scope.SIGNAL | Scope.ABSTRACT_UNIX_SOCKET,
        ) as rules:
            for path in read:
                _allow(rules, path, _READ)
            for path in write:
                _allow(rules, path, _WRITE)
            for port in profile.ports:
                rules.allow_port(port, AccessNet.CONNECT_TCP)
            rules.restrict()
    except (landlockpy.LandlockError, OSError) as error:
        raise ConfinementError(f"Landlock refuses the rules: {error}") from error


def _allow(rules: landlockpy.Ruleset, path: str, access: AccessFS) -> None:
    is_directory = stat.S_ISDIR(os.stat(path).st_mode)
    rules.allow_path(path, access if is_directory else access & _OF_FILES)
