"""Namespaces of a confined process: files, network, users and System V objects of its own.

They are an addition to Landlock and seccomp where the kernel has them: for root with
CAP_SYS_ADMIN, or where processes without privileges may make user namespaces.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Final

_NEWNS: Final = 0x00020000
_NEWCGROUP: Final = 0x02000000
_NEWUTS: Final = 0x04000000
_NEWIPC: Final = 0x08000000
_NEWUSER: Final = 0x10000000
_NEWNET: Final = 0x40000000

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT: Final = 32
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_MNT_DETACH: Final = 2
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
_STAND: Final = "/tmp"  # noqa: S108 - the new root is mounted there, in a namespace of its own
_OLD: Final = "/.old"
_MOST_LINKS: Final = 40
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_ROOT_BYTES: Final = 1 << 20


def enter(*, network: bool) -> bool:
    """Move this process into new namespaces, and return whether that is possible.

    Args:
        network: whether it keeps the network of the service.
    """
    kinds = _NEWNS | _NEWUTS | _NEWIPC | _NEWCGROUP | (0 if network else _NEWNET)
    user, group = os.getuid(), os.getgid()
    libc = _libc()
    if user == 0 and libc.unshare(kinds) == 0:
        return True
    if libc.unshare(kinds | _NEWUSER) != 0:
        return False
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    except OSError:
        return False
    return True


def own_root(read: Iterable[str], write: Iterable[str], work: str, work_bytes: int) -> bool:
    """Give this process a root directory that contains these paths and nothing else.

    `work` becomes an empty directory in memory, for at most `work_bytes`. Returns whether the
    system allows that at all. Raises OSError if it fails half-way, or a path does not exist.
    """
    if os.uname().machine not in _PIVOT_ROOT:
        return False
    try:
        _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
        _mount("tmpfs", _STAND, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={_ROOT_BYTES},mode=755")
    except OSError:
        return False  # AppArmor may give namespaces in which nothing can be mounted
    os.umask(0o022)
    os.mkdir(_STAND + _OLD)
    os.chdir(_STAND)
    old = _OLD[1:].encode()
    _checked(_libc().syscall(_PIVOT_ROOT[os.uname().machine], b".", old), "pivot_root")
    os.chdir("/")
    _mount_all(read, write, work, work_bytes)
    _checked(_libc().umount2(_OLD.encode(), _MNT_DETACH), "umount")
    os.rmdir(_OLD)
    _mount("none", "/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    return True


def _mount_all(read: Iterable[str], write: Iterable[str], work: str, work_bytes: int) -> None:
    """Mount each path, directories before what is in them. Read paths are mounted only if nothing
    above them is. Symbolic links on the way to a path are made in their turn, too: earlier, a mount
    above them would hide them.
    """
    links: dict[str, str] = {}
    wanted = {_place(path, links): "read" for path in (*read, *DEVICES)}
    wanted |= {_place(path, links): "write" for path in write}
    wanted[_place(work, links)] = "work"
    done: dict[str, str] = {}
    for path in sorted({*wanted, *links}):
        if path in links:
            if not os.path.lexists(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.symlink(links[path], path)
            continue
        kind, above = wanted[path], path
        while above != "/" and above not in done:
            above = os.path.dirname(above)
        if kind == "work":
            os.makedirs(path, exist_ok=True)
            options = f"size={work_bytes},nr_inodes={max(64, work_bytes >> 12)},mode=700"
            _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
        elif done.get(above) in (None, "work") or (kind, done[above]) == ("write", "read"):
            _bind(path, read_only=kind == "read" and not path.startswith("/dev/"))
        else:
            continue
        done[path] = kind
    for path, kind in wanted.items():
        if kind != "work" and not _is_there(path):
            raise OSError(f"{path} is hidden by a mount above it in the new root directory")


def _is_there(path: str) -> bool:
    """Return whether a path is the same file as before."""
    try:
        return os.path.samestat(os.lstat(path), os.lstat(_OLD + path))
    except FileNotFoundError:
        return False


def _bind(path: str, *, read_only: bool) -> None:
    source = _OLD + path
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    elif not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    _mount(source, path, None, _MS_BIND | _MS_REC)
    if read_only:
        # Flags that the mount has already must stay, or a user namespace may not change it.
        flags = os.statvfs(path).f_flag & (_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        _mount("none", path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | flags)


def _place(path: str, links: dict[str, str]) -> str:
    """Return where a path lies. Adds the symbolic links on the way, with targets, to `links`."""
    done, left = "", _parts(path)
    for _ in range(_MOST_LINKS):
        while left:
            done = f"{done}/{left.pop(0)}"
            if os.path.islink(_OLD + done):
                break
        else:
            return done
        target = os.readlink(_OLD + done)
        above = os.path.dirname(done)
        links[done] = target
        done, left = "", _parts(os.path.normpath(os.path.join(above, target))) + left
    raise OSError(f"{path} has too many symbolic links")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def bound_capabilities() -> None:
    """Bound the capabilities of later programs, where this process has the right to."""
    for number in range(64):
        _libc().prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP


def drop_capabilities() -> None:
    """Give up every capability. Raises OSError."""
    libc = _libc()
    libc.prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _checked(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def no_new_privileges() -> None:
    """Make sure that no program that it runs gets more rights than it has."""
    _checked(_libc().prctl(38, 1, 0, 0, 0), "prctl")


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread ends that started it."""
    _checked(_libc().prctl(1, 9, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    answer = _libc().mount(
        os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _checked(answer, f"mount {target}")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _checked(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
