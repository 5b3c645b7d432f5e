"""Files and directories that nobody but the owner may read, whatever the umask is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, Literal

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077


def make_directory(path: Path) -> list[Path]:
    """Make a directory, and those above it, as far as they are missing; return what was made.

    A directory that exists keeps its mode: it is the operator's. Raises OSError.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        if path == path.parent:
            break
        path = path.parent
    for each in reversed(missing):
        each.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    return missing


def open_private(path: Path, mode: Literal["w", "wb", "x"]) -> IO[Any]:
    """Open a file for writing as `open` does; at no moment can others read it.

    A device or a pipe, such as /dev/null, keeps its mode. Raises OSError.
    """

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_CLOEXEC, FILE_MODE)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, FILE_MODE)  # one that was there may have had another mode
        return descriptor

    return open(path, mode, opener=opener, encoding=None if "b" in mode else "utf-8")


def exposed(root: Path) -> Iterator[Path]:
    """Yield what others than the owner may read, write or enter: the path itself and all below it.

    What cannot be looked at is passed over, and symbolic links are not followed.
    """
    if _is_exposed(root):
        yield root
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            if _is_exposed(path):
                yield path


def _is_exposed(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not stat.S_ISLNK(mode) and bool(mode & _OTHERS)


def close_to_others(path: Path) -> None:
    """Take every permission of group and others away. Raises OSError."""
    path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~_OTHERS)
