"""What a confined process may do, and how much it may use."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

Network: TypeAlias = Literal["none", "tcp", "any"]
"""`none` means no socket of any kind, `tcp` connections to the ports of the profile, and `any` TCP
and UDP. Unix sockets, netlink and raw sockets are never possible."""

MIB: Final = 1 << 20


class ConfinementError(Exception):
    """A process cannot be confined: the kernel cannot do it, or its profile is wrong."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a process may use.

    Attributes:
        memory: bytes of memory, for each process.
        address_space: whether `memory` bounds all addresses too. Programs that reserve much more
            than they use (Node.js) need False; then only the memory that they can write counts.
        cpu_s: seconds of processor time, for each process.
        tasks: processes and threads together.
        files: open files.
        file_bytes: size of one file that it writes.
        work_bytes: size of its working directory, where the kernel has mount namespaces.
        output_bytes: bytes that it may write to its standard output, or to the service in one call.
        wall_s: seconds that it may run, or that one call may take.
        nice: by how much its priority is lower than that of the service.
    """

    memory: int = 512 * MIB
    address_space: bool = True
    cpu_s: int = 60
    tasks: int = 32
    files: int = 128
    file_bytes: int = 64 * MIB
    work_bytes: int = 64 * MIB
    output_bytes: int = 16 * MIB
    wall_s: float = 300.0
    nice: int = 0


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a process may do. Libraries, programs and Python's own files can always be read.

    Attributes:
        read: files and directories that it may read, and whose programs it may run. Absolute.
        write: files and directories that it may change. Absolute.
        work: a directory that is empty, and belongs to this process alone; its working directory.
            With mount namespaces its files are gone when the process ends. Without one, the
            working directory is `/`, or a directory in memory where there are mount namespaces.
        network: which connections it may make.
        ports: TCP ports that it may connect to, with `network="tcp"`.
        processes: whether it may start other processes.
        environment: names of variables that it inherits. Their values are not part of the profile,
            because everybody on the machine can read the arguments of a command.
        limits: what it may use.
        end_with_parent: whether it is killed when the thread ends that started it.
        weaker: whether it may run on a system that has neither seccomp nor Landlock, with resource
            limits only. For programs of this project that parse untrusted data, never for
            untrusted programs.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    work: str = ""
    network: Network = "none"
    ports: tuple[int, ...] = ()
    processes: bool = False
    environment: tuple[str, ...] = ()
    limits: Limits = Limits()
    end_with_parent: bool = False
    weaker: bool = False

    def __post_init__(self) -> None:
        """Raise ConfinementError for a profile that contradicts itself."""
        for path in (*self.read, *self.write, *filter(None, (self.work,))):
            if not path.startswith("/") or "\0" in path or path == "/":
                raise ConfinementError(f"{path!r} is not an absolute path below the root directory")
        if self.ports and self.network != "tcp":
            raise ConfinementError('ports can be named only with network="tcp"')
        for port in self.ports:
            if not 0 < port < 1 << 16:
                raise ConfinementError(f"{port} is not a port")

    def encode(self) -> str:
        """Return it as JSON, an argument of `component.sandbox.launch`."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Profile:
        """Return the profile in a JSON text. Raises ConfinementError."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise ConfinementError(f"the profile is not valid: {error}") from error
