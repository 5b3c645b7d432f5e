"""The system calls of a confined process: seccomp, through the package seccompy.

All system calls are refused but those listed here. An unknown one fails with ENOSYS, so that C
libraries use an older one instead, and one that would be an escape with EPERM.

Arguments can be compared only where they are numbers. Paths are Landlock's part.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

import seccompy
from seccompy import Action, ArgCmp, CmpOp, Filter

from component.sandbox.profile import ConfinementError, Profile

_ALLOWED: Final = """
    read write open close stat fstat lstat newfstatat poll lseek mmap mprotect munmap brk
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack
    signalfd signalfd4 pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 access
    faccessat faccessat2 pipe pipe2 select pselect6 ppoll sched_yield mremap msync mincore madvise
    dup dup2 dup3 pause nanosleep gettimeofday time times getitimer setitimer alarm timer_settime
    timer_gettime timer_getoverrun timer_delete timerfd_create timerfd_settime timerfd_gettime
    getpid gettid getppid getpgrp getuid geteuid getgid getegid getresuid getresgid getgroups
    sendfile splice tee copy_file_range exit exit_group wait4 waitid uname fsync fdatasync
    sync_file_range flock truncate ftruncate fadvise64 readahead getdents getdents64 getcwd chdir
    fchdir rename renameat renameat2 mkdir mkdirat rmdir creat link linkat unlink unlinkat symlink
    symlinkat readlink readlinkat umask getrlimit setrlimit getrusage sysinfo statfs fstatfs statx
    sched_get_priority_max sched_get_priority_min mlock munlock arch_prctl futex futex_waitv
    set_tid_address set_robust_list epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
    epoll_pwait2 openat openat2 eventfd eventfd2 inotify_init inotify_init1 inotify_add_watch
    inotify_rm_watch getrandom membarrier rseq close_range getcpu restart_syscall sendto recvfrom
    sendmsg recvmsg sendmmsg recvmmsg shutdown getsockname getpeername getsockopt setsockopt
    landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp
"""

_OF_A_PROCESS: Final = """
    getpgid getsid prlimit64 sched_getparam sched_getscheduler sched_rr_get_interval
    sched_setaffinity get_robust_list
"""
"""Their first argument is a process or a thread. Each is allowed for the caller, which is 0, and
for the process that loads the filter."""

_OF_A_CLOCK: Final = "clock_gettime clock_getres clock_nanosleep timer_create"
"""Their first argument is a clock, which can be that of the processor time of any process."""

_OTHERS_FILES: Final = """
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat
"""
"""Landlock does not look at these, so they could change files that the process may not even read.
They are possible only for a process with a user id of its own."""

_REFUSED: Final = """
    ptrace process_vm_readv process_vm_writev process_madvise kcmp mount umount2 pivot_root chroot
    move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick mount_setattr unshare setns
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register keyctl add_key
    request_key memfd_create memfd_secret shmget shmat shmctl msgget semget mq_open setuid setgid
    setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset setsid setpgid
    sethostname setdomainname reboot kexec_load kexec_file_load init_module finit_module
    delete_module swapon swapoff sync syncfs quotactl acct settimeofday clock_settime clock_adjtime
    adjtimex iopl ioperm open_by_handle_at name_to_handle_at fanotify_init mknod mknodat personality
    pidfd_open pidfd_getfd pidfd_send_signal tkill capget sched_setscheduler sched_setparam
    sched_setattr setpriority ioprio_set mbind set_mempolicy migrate_pages move_pages vhangup syslog
    modify_ldt vmsplice connect bind listen accept accept4
"""

_NO_ATTRIBUTES: Final = """
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr
    removexattr lremovexattr fremovexattr
"""

_NEW_NAMESPACES: Final = (
    0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
)
_CLONE_THREAD: Final = 0x10000
_IOCTLS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
_FCNTLS_REFUSED: Final = (8, 10, 15, 1024, 1026)
"""F_SETOWN, F_SETSIG and F_SETOWN_EX send signals, F_SETLEASE and F_NOTIFY stop others."""
_PRCTLS_REFUSED: Final = (1, 35, 36, 62, 0x59616D61)
"""PR_SET_PDEATHSIG would let it outlive the service; PR_SET_MM, PR_SET_CHILD_SUBREAPER,
PR_SCHED_CORE (which names another process), PR_SET_PTRACER."""
_OF_ANY_PROCESS: Final = 0x80000000
"""The sign of a clock that belongs to a process, a thread or a device."""
_OF_OWN_THREAD: Final = 0x80000004
"""Such a clock of a thread, which the kernel reads for threads of the caller only."""
_UNIX, _INET, _INET6 = 1, 2, 10
_TYPE: Final = 0xF
_STREAM, _DATAGRAM = 1, 2
_INT: Final = 0xFFFFFFFF
_SHARED_ANONYMOUS: Final = 0x21


def load_filter(
    profile: Profile, *, own_user: bool, signals_scoped: bool, runs_command: bool
) -> None:
    """Restrict the system calls of this thread, and of what it starts, for ever.

    Args:
        own_user: whether no other process has the user id of this one.
        signals_scoped: whether Landlock will restrict signals.
        runs_command: whether it is to become another program.

    Raises ConfinementError.
    """
    try:
        rules = _made(profile, own_user=own_user, signals_scoped=signals_scoped)
        if runs_command or profile.processes:
            rules.allow("execve")
        rules.load()
    except (seccompy.SeccompError, OSError, ValueError) as error:
        raise ConfinementError(f"seccomp refuses the filter: {error}") from error


def _made(profile: Profile, *, own_user: bool, signals_scoped: bool) -> Filter:
    rules = Filter(int(Action.ERRNO) | errno.ENOSYS)
    _processes(rules, profile, signals_scoped=signals_scoped)
    _network(rules, profile)
    _restricted(rules, profile)
    for name in _ALLOWED.split():
        _known(rules.allow, name)
    for name in _OTHERS_FILES.split():
        if own_user:
            _known(rules.allow, name)
        else:
            _refuse(rules, name)
    for name in _NO_ATTRIBUTES.split():
        _refuse(rules, name, errno.ENOTSUP)
    for name in _REFUSED.split():
        _refuse(rules, name)
    return rules


def _processes(rules: Filter, profile: Profile, *, signals_scoped: bool) -> None:
    own = os.getpid()
    if profile.processes:
        rules.allow("clone", args=[_masked(0, _NEW_NAMESPACES, 0)])
        for name in ("fork", "vfork", "execveat"):
            _known(rules.allow, name)
    else:
        rules.allow("clone", args=[_masked(0, _NEW_NAMESPACES | _CLONE_THREAD, _CLONE_THREAD)])
        for name in ("fork", "vfork"):
            _refuse(rules, name, errno.EAGAIN)
    _refuse(rules, "clone")
    if profile.processes and signals_scoped:
        rules.allow("kill")
        rules.allow("tgkill")
    for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        rules.allow(name, args=[_masked(0, _INT, own)])
        _refuse(rules, name)
    for pid in (0, own):
        for name in (*_OF_A_PROCESS.split(), "sched_getaffinity"):
            rules.allow(name, args=[_masked(0, _INT, pid)])
        rules.allow("getpriority", args=[_masked(0, _INT, 0), _masked(1, _INT, pid)])
    for name in (*_OF_A_PROCESS.split(), "getpriority"):
        _refuse(rules, name)
    # The C library asks for threads too, and takes this error for a kernel that knows none.
    _refuse(rules, "sched_getaffinity", errno.ENOSYS)
    for name in _OF_A_CLOCK.split():
        rules.allow(name, args=[_masked(0, _OF_ANY_PROCESS, 0)])
        rules.allow(name, args=[_masked(0, _OF_OWN_THREAD, _OF_OWN_THREAD)])
        _refuse(rules, name)


def _network(rules: Filter, profile: Profile) -> None:
    # A datagram socket could send to any address, even one of a pair.
    rules.allow("socketpair", args=[_masked(0, _INT, _UNIX), _masked(1, _TYPE, _STREAM)])
    _refuse(rules, "socketpair", errno.EACCES)
    if profile.network == "none":
        _refuse(rules, "socket", errno.EACCES)
        return
    kinds = [(_STREAM, 6)]  # Landlock's rules for ports know TCP only, not MPTCP or SCTP
    if profile.network == "any":
        kinds.append((_DATAGRAM, 17))
    for family in (_INET, _INET6):
        for kind, protocol in kinds:
            for number in (0, protocol):
                rules.allow(
                    "socket",
                    args=[
                        _masked(0, _INT, family),
                        _masked(1, _TYPE, kind),
                        _masked(2, _INT, number),
                    ],
                )
    _refuse(rules, "socket", errno.EACCES)
    rules.allow("connect")
    if profile.network == "any":
        for name in ("bind", "listen", "accept", "accept4"):
            _known(rules.allow, name)


def _restricted(rules: Filter, profile: Profile) -> None:
    if not profile.limits.address_space:
        rules.errno("mmap", errno.ENOMEM, args=[_masked(3, _SHARED_ANONYMOUS, _SHARED_ANONYMOUS)])
    # Other modes can take space of the disk beyond the size of a file, which is what is limited.
    rules.allow("fallocate", args=[_masked(1, _INT, 0)])
    _refuse(rules, "fallocate", errno.EOPNOTSUPP)
    for request in _IOCTLS:
        rules.allow("ioctl", args=[_masked(1, _INT, request)])
    _refuse(rules, "ioctl", errno.ENOTTY)
    for command in _FCNTLS_REFUSED:
        rules.errno("fcntl", errno.EPERM, args=[_masked(1, _INT, command)])
    rules.allow("fcntl")
    for option in _PRCTLS_REFUSED:
        rules.errno("prctl", errno.EPERM, args=[_masked(0, _INT, option)])
    rules.allow("prctl")


def _masked(index: int, mask: int, value: int) -> ArgCmp:
    return ArgCmp(index, CmpOp.MASKED_EQ, value, mask)


def _refuse(rules: Filter, name: str, error: int = errno.EPERM) -> None:
    _known(lambda known: rules.errno(known, error), name)


def _known(add: Callable[[str], None], name: str) -> None:
    """Add a rule for a system call if this architecture has it: arm64 has no `open`."""
    try:
        seccompy.syscall_nr(name)
    except ValueError:
        return
    add(name)
