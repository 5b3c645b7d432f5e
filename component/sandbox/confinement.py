"""Confines the process that calls it, for ever: a fresh one, which has not begun its work.

The order matters. Namespaces and another user need privileges, so they come first; then all
privileges are given up; then seccomp, and Landlock last, because what it forbids includes files
that the steps before it use.

Landlock restricts the calling thread and what it starts. It knows nothing of UDP (before ABI 10),
of Unix sockets with a path (before ABI 9), netlink and raw sockets: seccomp refuses those.
"""

from __future__ import annotations

import ctypes.util
import os
import resource
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Final

import landlockpy
from landlockpy import AccessFS, AccessNet, Scope

from component.sandbox import namespaces, seccomp
from component.sandbox.profile import ConfinementError, Profile

_SYSTEM: Final = (
    *("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr/bin", "/usr/lib", "/usr/lib32"),
    *("/usr/lib64", "/usr/libexec", "/usr/libx32", "/usr/sbin", "/usr/share", "/usr/include"),
    *("/usr/local/bin", "/usr/local/include", "/usr/local/lib", "/usr/local/share", "/nix/store"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *(
        "/etc/localtime",
        "/etc/mime.types",
        "/etc/ssl/certs",
        "/etc/ssl/openssl.cnf",
        "/etc/pki/tls",
    ),
)
_OF_NETWORK: Final = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/services"),
    *("/etc/gai.conf", "/etc/protocols"),
)
_PACKAGES: Final = ("component", "xep", "protocol_schemas", "xmpp_agent")
_WORK: Final = "/tmp"  # noqa: S108 - in a root directory of its own
_FIRST_USER: Final = 1 << 30
_FIRST_SHORT_USER: Final = 61184  # of the range in which systemd allocates users of one service
_SHORT_USERS: Final = 4336
_PORTS_ABI: Final = 4
_SIGNALS_ABI: Final = 6

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


def confine(profile: Profile, *, command: str = "", parent: int = 0) -> str:
    """Confine this process, and all that it starts, for ever; return its working directory.

    Args:
        command: the program that it will become, or nothing.
        parent: id of the process that started it, for `end_with_parent`.

    Raises ConfinementError if the kernel lacks seccomp, if it has neither Landlock nor mount
    namespaces, or if a path does not exist. The process must end then.
    """
    abi = _landlock_abi()
    read, write = _paths(profile, command)
    if profile.network == "tcp" and abi < _PORTS_ABI:
        raise ConfinementError("this kernel cannot restrict connections to ports (Landlock ABI 4)")
    _end_inheritance()
    try:
        entered = namespaces.enter(network=profile.network != "none")
        work = profile.work or _WORK
        rooted = entered and namespaces.own_root(read, write, work, profile.limits.work_bytes)
        if not abi and not rooted and not profile.weaker:
            raise ConfinementError(
                "this kernel has neither Landlock nor mount namespaces for this user, so files"
                " cannot be protected"
            )
        work = work if rooted else profile.work
        namespaces.bound_capabilities()
        own_user = _change_user(read, write, work, rooted=rooted)
        os.chdir(work or "/")
        os.umask(0o077)
        _limit(profile, counted=own_user or entered)
        namespaces.drop_capabilities()
        namespaces.no_new_privileges()
        if profile.end_with_parent:
            namespaces.end_with_parent(parent)
        writable = (*write, *filter(None, (work,)), *namespaces.DEVICES)
        try:
            seccomp.load_filter(
                profile,
                own_user=own_user,
                signals_scoped=abi >= _SIGNALS_ABI,
                runs_command=bool(command),
            )
            if abi:
                _restrict_files(profile, read, writable)
        except ConfinementError:
            if not profile.weaker:
                raise
    except OSError as error:
        raise ConfinementError(f"the process cannot be confined: {error}") from error
    return work


def _paths(profile: Profile, command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for path in (*profile.read, *profile.write, *filter(None, (profile.work,))):
        if not os.path.exists(path):
            raise ConfinementError(f"{path} does not exist")
    known = [*_SYSTEM, *python_paths(), *(_OF_NETWORK if profile.network != "none" else ())]
    found = {path for path in known if os.path.exists(path)}
    return tuple({*found, *profile.read, *filter(None, (command,))}), profile.write


def python_paths() -> Iterator[str]:
    """Return the files of this Python, its packages, and this one."""
    yield from (
        path
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "platstdlib", "purelib", "platlib")
    )
    library = sysconfig.get_config_var("LIBDIR")
    yield from (f"{library}/{sysconfig.get_config_var('LDLIBRARY')}", sys.executable)
    yield os.path.join(sys.prefix, "pyvenv.cfg")
    for package in _PACKAGES:
        spec = find_spec(package)
        if spec is not None:
            yield from spec.submodule_search_locations or ()


def _end_inheritance() -> None:
    """Close all but the standard streams, and leave the session of the service."""
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if os.getsid(0) != os.getpid():
        os.setsid()


def _change_user(read: Iterable[str], write: Iterable[str], work: str, *, rooted: bool) -> bool:
    """Take a user id that no other process has, if this one is root and its files allow that."""
    if os.getuid() != 0 or os.geteuid() != 0:
        return False
    if not all(_open_to_all(path, stat.S_IROTH, rooted=rooted) for path in read):
        return False
    if not all(_open_to_all(path, stat.S_IWOTH, rooted=rooted) for path in write):
        return False
    for user in (_FIRST_USER + os.getpid(), _FIRST_SHORT_USER + os.getpid() % _SHORT_USERS):
        try:
            os.setgroups([])
            if work:
                os.chown(work, user, user)
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError:
            continue
        return True
    return False


def _open_to_all(path: str, bits: int, *, rooted: bool) -> bool:
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        bits |= stat.S_IXOTH
    if mode & bits != bits:
        return False
    above = os.path.realpath(path)
    while not rooted and above != "/":
        above = os.path.dirname(above)
        if not os.stat(above).st_mode & stat.S_IXOTH:
            return False
    return True


def _limit(profile: Profile, *, counted: bool) -> None:
    """Set the resource limits. Tasks are counted per user, so those of the service may be in it."""
    limits = profile.limits
    os.nice(limits.nice)
    tasks = limits.tasks if counted else limits.tasks + _tasks_of_user()
    memory = limits.memory
    for kind, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1),
        (resource.RLIMIT_DATA, memory, memory),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        (resource.RLIMIT_NOFILE, limits.files, limits.files),
        (resource.RLIMIT_NPROC, tasks, tasks),
        (resource.RLIMIT_SIGPENDING, 256, 256),
        *([(resource.RLIMIT_AS, memory, memory)] if limits.address_space else []),
    ):
        highest = resource.getrlimit(kind)[1]
        if highest == resource.RLIM_INFINITY:
            highest = hard
        resource.setrlimit(kind, (min(soft, highest), min(hard, highest)))


def _tasks_of_user() -> int:
    user, found = os.getuid(), 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == user:
                found += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return found


def _landlock_abi() -> int:
    """Return the version of the kernel's Landlock, or 0 without it."""
    # Both packages ask find_library for the C library, which runs other programs to find it; the
    # library is in the process already.
    ctypes.util.find_library = lambda name: None
    try:
        return landlockpy.abi_version()
    except landlockpy.LandlockError:
        return 0


def _restrict_files(profile: Profile, read: Iterable[str], write: Iterable[str]) -> None:
    """Restrict this thread, and what it starts, for ever.

    Args:
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
