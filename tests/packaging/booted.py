"""A Debian that systemd has booted, with the servers that Debian ships. Needs root."""

import contextlib
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.servers.watchdog import Watchdog

BOOT = Path(__file__).with_name("boot.sh")
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "python3-venv", "adduser", "ca-certificates", "sudo"),
    *("init-system-helpers", "iproute2", "procps", "openssl", "curl", "man-db", "git", "sqlite3"),
    *("prosody", "prosody-modules", "ejabberd", "postgresql"),
)
LIMIT_S = 60.0
"""A bound for a busy machine, not an expectation."""


class Booted:
    """A machine; commands run in it as one of its users."""

    def __init__(self, root: Path, init: int) -> None:
        self.root = root
        self._init = init

    def run(
        self, script: str, user: str = "root", directory: str = "", said: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a script in the login shell of a user, from their home directory or another one;
        `said` is its standard input.
        """
        return subprocess.run(
            self.command(script, user, directory),
            input=said,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def check(self, script: str, user: str = "root", directory: str = "", said: str = "") -> str:
        """The same for a script of which every command succeeds; return its output."""
        done = self.run(f"set -e\n{script}", user, directory, said)
        assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def command(self, script: str, user: str = "root", directory: str = "") -> list[str]:
        """Return the command outside that runs the script inside."""
        inside = ["nsenter", f"--target={self._init}", "--all", "--root", "--wd"]
        there = f"cd {shlex.quote(directory)}\n" if directory else ""
        return [*inside, "env", "-C", "/", "-i", "su", "--login", user, "-c", there + script]

    def write(self, path: str, text: str, user: str = "root") -> None:
        """Write a file as a user does in an editor."""
        self.check(f"cat > {shlex.quote(path)}", user, said=text)

    def read(self, path: str) -> str:
        """Return the text of a file."""
        return self.check(f"cat {shlex.quote(path)}")

    @contextlib.contextmanager
    def running(self, script: str, user: str, directory: str, until: str) -> Iterator[list[str]]:
        """Run a script that runs until Ctrl-C, which the end of the context is. It begins when a
        line of its output contains `until`; yields the lines up to that one.
        """
        process = subprocess.Popen(
            self.command(f"{script} 2>&1", user, directory),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if until in line:
                    break
            else:
                raise AssertionError("".join(lines))
            limit.cancel()
            yield lines
        finally:
            limit.cancel()
            self.run(f"pkill --signal INT --uid {user} --full 'xmpp-agent (run|demo|worker)'")
            assert process.stdout is not None
            process.stdout.close()
            process.wait(LIMIT_S)


@contextlib.contextmanager
def booted(root: Path, cgroup: Path) -> Iterator[Booted]:
    """Boot what is in `root`, which stays as it is; the machine ends with the context."""
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    (root / "booted").unlink(missing_ok=True)
    ready.bind(str(root / "booted"))
    ready.settimeout(LIMIT_S)
    process = subprocess.Popen(
        [BOOT, root, cgroup],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    watchdog = Watchdog(process.pid)
    try:
        while b"READY=1" not in ready.recv(4096):
            pass
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield Booted(root, int(children[0]))
    finally:
        watchdog.kill_group()
        process.wait()
        ready.close()


@contextlib.contextmanager
def control_group(name: str) -> Iterator[Path]:
    """Make a control group for a machine, and remove what the machine has made in it."""
    (mounted,) = [
        Path(line.split()[1])
        for line in Path("/proc/mounts").read_text().splitlines()
        if line.split()[2] == "cgroup2"
    ][:1]
    group = mounted / name
    group.mkdir(exist_ok=True)
    try:
        yield group
    finally:
        deadline = time.monotonic() + LIMIT_S
        while (group / "cgroup.events").read_text().startswith("populated 1"):
            assert time.monotonic() < deadline, "processes of the machine are left"
            time.sleep(0.05)  # the kernel ends them
        for each in sorted(group.rglob("*/"), reverse=True):
            each.rmdir()
        group.rmdir()
