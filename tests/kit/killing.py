"""Kills processes with SIGKILL, one after each change of their files.

`python -m tests.kit.killing DIRECTORY` runs `disk_script.live` again and again, each time in a new
directory `DIRECTORY/0`, `DIRECTORY/1` …, until one comes to its end. The n-th process is killed at
the first system call after which its files have changed n times.
"""

import ctypes
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Final

from tests.kit.disk_script import contents, live

# ptrace(2)
_TRACEME: Final = 0
_SYSCALL: Final = 24
_SETOPTIONS: Final = 0x4200
_EXITKILL: Final = 0x100000

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, pid: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, pid, None, data) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _child(data: Path) -> None:
    code = 1
    try:
        _ptrace(_TRACEME)
        os.kill(os.getpid(), signal.SIGSTOP)
        live(data)
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may get out of the fork
        traceback.print_exc()
    finally:
        os._exit(code)


def ends(data: Path, changes: int) -> bool:
    """Run the script; kill it after so many changes. Return whether it has ended before."""
    pid = os.fork()
    if not pid:
        _child(data)
    os.waitpid(pid, 0)
    _ptrace(_SETOPTIONS, pid, _EXITKILL)
    seen, last = 0, contents(data)
    while seen < changes:
        _ptrace(_SYSCALL, pid)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "the script has failed"
            return True
        now = contents(data)
        seen, last = seen + (now != last), now
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), status
    return False


def main(root: Path) -> None:
    """Kill at every change."""
    changes = 0
    while True:
        data = root / str(changes)
        data.mkdir(mode=0o700)
        if ends(data, changes):
            return
        changes += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
