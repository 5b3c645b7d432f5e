"""Runs the hostile module in confined children, and says what came of each attack.

`python -m tests.hostile.escapes.process_campaign` runs all as the user that starts it, beside the
calls of an honest principal, and writes an array of `Outcome` as JSON.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog

from component.sandbox.launch import confined_command
from component.sandbox.process_skills import ChildPool, ProcessSkills
from component.sandbox.profile import Limits, Profile
from component.skills import Context, SkillLoadError, call
from component.skills.calling import Threads
from tests.component.sandbox.plain_functions import plain_functions

MODULE = Path(__file__).with_name("process_module.py")
SECRET = "confidential"
LIMITS = Limits(
    memory=256 << 20,
    cpu_s=20,
    tasks=32,
    files=64,
    file_bytes=8 << 20,
    work_bytes=16 << 20,
    output_bytes=4 << 20,
    wall_s=300,
)
"""More time than a child needs on the slowest machine, so that attacks end for other reasons."""
BRIEF = msgspec.structs.replace(LIMITS, cpu_s=2)
"""Those of attacks that use up their processor time."""
BUSY = {"endless_loop", "ignored_signals", "recursion", "import_loops"}

KILLED: dict[str, str] = {
    "old_gate": "system call|SIGSEGV",
    "memory_bomb": "memory",
    "endless_loop": "processor time",
    "ignored_signals": "processor time",
    "ignored_deadline": "2 seconds",
    "ignored_cancellation": "2 seconds",
    "recursion": "internal error|SIGSEGV|memory|processor time",
    "big_answer": "bytes",
    "printed": "prints more than",
    "noise": "bytes|not valid",
    "long_message": "bytes",
    "deep_message": "not valid",
    "half_message": "3 seconds",
    "closed_pipe": "pipe",
    "many_requests": "times|bytes|takes more than",
    "undeclared_request": "network",
    "denied_taint": "internal error",
}
"""Attacks that end a call, with what its error says. All others return the empty string."""

QUIET = (
    *("absolute", "traversal", "links", "opened_by_handle", "changed", "own_code"),
    *("shared_memory_files", "big_file", "sparse_file", "reserved_space", "writable_files"),
    *("proc", "variables", "signals", "scheduling_of_others", "clocks_of_others", "set_clock"),
    *(
        "others_named",
        "signals_by_pipes",
        "limits_of_others",
        "traced",
        "stolen_descriptor",
        "leaked_descriptor",
    ),
    *("fork_bomb", "thread_bomb", "raw_clone", "other_program", "left_session"),
    *("survives_the_service", "becomes_root", "mounts", "namespaces", "kernel", "other_numbers"),
    *("terminal", "tcp", "udp", "unix_path", "unix_abstract", "unix_by_pair", "netlink"),
    *("raw_socket", "ring", "mapped_memory", "descriptors"),
)

_SKILL = "from component.skills import skill\n@skill\ndef one() -> None: ...\n"

IMPORTS: dict[str, tuple[str, str]] = {
    "import_loops": ("while True: pass", "processor time"),
    "import_exits": ("import os; os._exit(0)", "ended with status 0"),
    "import_reads": ("open('/etc/passwd').read()", "Permission|No such file"),
    "import_connects": (
        "import socket; socket.create_connection(('127.0.0.1', 1))",
        "Permission",
    ),
    "import_fills_memory": ("x = bytearray(1 << 40)", "memory"),
    "description_is_huge": (
        _SKILL + "@skill(description='x' * (8 << 20))\ndef two() -> None: ...",
        "bytes",
    ),
    "description_has_many_values": (
        "import component.sandbox.guest\n"
        "component.sandbox.guest.spec_json = lambda one: '[' + '[],' * 200_000 + '[]]'\n" + _SKILL,
        "at most 10000 values",
    ),
    "many_descriptions": (
        "import component.sandbox.guest as guest\n"
        "guest.Described = lambda _, made=guest.Described: made((b'',) * 100_000)\n" + _SKILL,
        "length <= 1000",
    ),
    "description_lies": (
        "import component.sandbox.guest\n"
        'component.sandbox.guest.spec_json = lambda one: \'{"name": "one"}\'\n' + _SKILL,
        "describes no skill",
    ),
}
"""Modules that attack while they are imported or described."""

COMMANDS: dict[str, tuple[str, str]] = {
    "command_forks": (
        "f() { f | f & f; }; f; sleep 20",
        "",
    ),
    "command_hides": (
        "(setsid sleep 3000 || sleep 3000) </dev/null >/dev/null 2>&1 & sleep 3000 & echo started",
        "",
    ),
    "command_reads": ("cat /etc/passwd /etc/shadow", "No such file|Permission denied"),
    "command_becomes_root": ("su -c id; sudo id; mount -t tmpfs none /", ""),
}
"""Commands that may start processes."""

TOGETHER = "one_after_the_other"
"""All `QUIET` ones in one call."""

NAMES = (
    *QUIET,
    TOGETHER,
    *KILLED,
    *IMPORTS,
    *COMMANDS,
    *("many_files", "other_principal", "other_skill"),
)


class Outcome(msgspec.Struct, frozen=True):
    """What came of an attack: whether it was stopped as it should be, and what was said.

    `honest` is whether the calls of the honest principal succeeded meanwhile.
    """

    name: str
    stopped: bool
    said: str
    honest: bool


class Campaign:
    """Attacks, one after the other, on one service."""

    def __init__(self, directory: Path, children: ChildPool) -> None:
        self.directory = directory
        self.children = children
        self.secret = directory / "secret.txt"
        self.secret.write_text(SECRET)
        self.secret.chmod(0o600)
        self.module = directory / "skills" / "hostile.py"
        self.module.parent.mkdir(mode=0o755)
        shutil.copy(MODULE, self.module)
        self.module.chmod(0o644)
        self.names: dict[Limits, dict[str, Any]] = {}
        self.stack = ExitStack()
        self.opened = os.open(self.secret, os.O_RDONLY)
        os.set_inheritable(self.opened, True)
        self.targets = self._listen()

    def _of(self, module: Path, limits: Limits = LIMITS) -> ProcessSkills:
        return ProcessSkills(self.children, Profile(limits=limits), str(module), plain_functions)

    def _listen(self) -> dict[str, str]:
        tcp = self.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = self.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        path = self.stack.enter_context(socket.socket(socket.AF_UNIX))
        path.bind(str(self.directory / "socket"))
        path.listen()
        name = f"hostile-{os.getpid()}"
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            abstract = self.stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            abstract.bind(f"\0{name}" if kind == socket.SOCK_STREAM else f"\0{name}-datagrams")
            if kind == socket.SOCK_STREAM:
                abstract.listen()
        return {
            "tcp": str(tcp.getsockname()[1]),
            "udp": str(udp.getsockname()[1]),
            "unix_path": str(self.directory / "socket"),
            "unix_abstract": name,
            "unix_by_pair": f"{name}-datagrams",
        }

    async def skill(self, name: str) -> Any:
        """A skill, with as much time as it is to have."""
        limits = BRIEF if name in BUSY else LIMITS
        if limits not in self.names:
            described = await self._of(self.module, limits).describe()
            self.names[limits] = {one.name: one for one in described}
        return self.names[limits][name]

    async def said(self, name: str, target: str, principal: str = "mallory@test") -> str:
        """What a call returns or what its error says."""
        context = Context(principal=principal, sender=f"{principal}/x", skill=name)
        share = Threads(4, 4).share(principal)
        try:
            result = await call(await self.skill(name), {"target": target}, context, share)
        except Exception as error:  # noqa: BLE001 - what it is, is compared
            return f"{type(error).__name__}: {error}"
        return "".join(output.text for output in result.outputs)

    async def attack(self, name: str) -> tuple[bool, str]:
        """Run one attack, and return whether it was stopped, and what was said."""
        if name in IMPORTS:
            return await self._import(name)
        if name in COMMANDS:
            return await self._command(name)
        if name == "other_principal":
            left = await self.said("leaves_behind", SECRET)
            found = await self.said("finds_left", left, "eve@test")
            return left.startswith("/") and not found, found
        if name == "other_skill":
            other = self.directory / "another"
            other.mkdir(mode=0o755)
            (other / "skill.toml").write_text(SECRET)
            found = await self.said("absolute", str(other / "skill.toml"))
            return not found, found
        if name == TOGETHER:
            targets = {each: self.targets.get(each, str(self.secret)) for each in QUIET}
            said = await self.said(name, json.dumps(targets | {"honest": "ok"}))
            return said == "honest: OK", said
        said = await self.said(name, self.targets.get(name, str(self.secret)))
        if name in KILLED:
            return re.search(f": .*({KILLED[name]})", said) is not None, said
        return not said, said

    async def _import(self, name: str) -> tuple[bool, str]:
        source, expected = IMPORTS[name]
        module = self.directory / f"{name}.py"
        module.write_text(source)
        module.chmod(0o644)
        try:
            await self._of(module, BRIEF if name in BUSY else LIMITS).describe()
        except SkillLoadError as error:
            return re.search(expected, str(error)) is not None, str(error)
        return False, "described"

    async def _command(self, name: str) -> tuple[bool, str]:
        script, expected = COMMANDS[name]
        command = confined_command(
            Profile(processes=True, limits=LIMITS),
            ["sh", "-c", f": {name}-{os.getpid()}; {script}"],
        )
        process = subprocess.Popen(  # noqa: ASYNC220 - it starts quickly, and nobody else is here
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={},
            start_new_session=True,
        )
        assert process.stdout is not None
        said = ""
        with anyio.move_on_after(60):
            if name in ("command_forks", "command_hides"):
                said = (await anyio.to_thread.run_sync(process.stdout.readline)).decode()
            else:
                data = await anyio.to_thread.run_sync(process.stdout.read)
                said = data.decode(errors="replace")
        group = _group(process.pid)
        with_limit = len(group) <= LIMITS.tasks + 1
        os.killpg(process.pid, signal.SIGKILL)
        await anyio.to_thread.run_sync(process.wait)
        await _until(lambda: not _group(process.pid))
        alone = all(_session(pid) != process.pid for pid in group)
        root = "uid=0" in said
        fits = re.search(expected, said) is not None and SECRET not in said and not root
        return fits and with_limit and alone, f"{said[:300]} ({len(group)} processes)"


def _group(leader: int) -> list[int]:
    """The processes of a session."""
    return [
        int(name)
        for name in os.listdir("/proc")  # noqa: PTH208 - names are wanted
        if name.isdigit() and _session(int(name)) == leader
    ]


def _session(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[3])


async def _until(done: Callable[[], bool]) -> None:
    """Wait until something is so; the kernel tells nobody."""
    with anyio.fail_after(120):
        while not done():  # noqa: ASYNC110 - as the docstring says
            await anyio.sleep(0.01)


@asynccontextmanager
async def campaign() -> AsyncIterator[Campaign]:
    """A service with children, and a directory that others can enter."""
    children = ChildPool(most=8, per_principal=4)
    with tempfile.TemporaryDirectory(prefix="escapes-") as directory:
        os.chmod(directory, 0o755)  # noqa: PTH101 - it is a string
        async with anyio.create_task_group() as group:
            await group.start(children.run)
            made = Campaign(Path(directory), children)
            with made.stack:
                yield made
            group.cancel_scope.cancel()
        os.close(made.opened)


async def attacked(one: Campaign, name: str) -> Outcome:
    """One attack, beside calls of an honest principal."""
    honest: list[str] = []
    over = anyio.Event()
    # Before the attack, so that its child and thread are there already: where the kernel counts the
    # tasks of a user, an attack may use up those that are left.
    honest.append(await one.said("honest", "ok", "alice@test"))

    async def be_honest() -> None:
        while not over.is_set():
            honest.append(await one.said("honest", "ok", "alice@test"))
            await anyio.sleep(0.1)

    async with anyio.create_task_group() as group:
        group.start_soon(be_honest)
        stopped, said = await one.attack(name)
        over.set()
    intact = one.secret.read_text() == SECRET and one.module.read_bytes() == MODULE.read_bytes()
    well = set(honest) == {"OK"}
    return Outcome(name, stopped and intact, said[:400], well)


async def main(names: list[str]) -> None:
    """Run the attacks with these names, or all."""
    os.environ["HOSTILE_CAMPAIGN"] = "1"
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    outcomes = []
    async with campaign() as one:
        for name in names or NAMES:
            began = time.monotonic()
            outcomes.append(await attacked(one, name))
            if names:
                print(outcomes[-1], round(time.monotonic() - began, 2), file=sys.stderr)
    sys.stdout.buffer.write(msgspec.json.encode(outcomes))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
