"""Runs a command as an ordinary user: `python -m tests.hostile.escapes.other_user MODE COMMAND…`.

It needs root with CAP_SYS_ADMIN. `MODE` is `namespaces`, or `bare` for a system that refuses new
namespaces, as many containers do. Directories of Python that only root can enter are shown to the
user in a mount namespace.
"""

import ctypes
import errno
import os
import stat
import sys

import seccompy

USER = 1500
_NEWNS, _BIND, _REC, _PRIVATE = 0x00020000, 4096, 16384, 1 << 18


def main(mode: str, command: list[str]) -> None:
    """Become the user, and the command."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: str, kind: bytes | None, flags: int, data: bytes | None) -> None:
        answer = libc.mount(source.encode(), target.encode(), kind, ctypes.c_ulong(flags), data)
        if answer:
            raise OSError(ctypes.get_errno(), f"mount {target}")

    if libc.unshare(_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", None, _REC | _PRIVATE, None)
    closed: dict[str, dict[str, int]] = {}
    for path in {os.path.realpath(path) for path in (sys.base_prefix, sys.prefix, os.getcwd())}:
        above = path
        while above != "/":
            parent, above = above, os.path.dirname(above)
            if not os.stat(above).st_mode & stat.S_IXOTH:
                closed.setdefault(above, {})[path] = os.open(path, os.O_PATH)
                break
            del parent
    for directory, paths in closed.items():
        mount("tmpfs", directory, b"tmpfs", 0, b"mode=755")
        for path, descriptor in paths.items():
            os.makedirs(path)
            mount(f"/proc/self/fd/{descriptor}", path, None, _BIND | _REC, None)
    if mode == "bare":
        rules = seccompy.Filter()
        rules.errno("unshare", errno.EPERM)
        rules.load()
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
