"""A new Debian in a directory, in which packages are installed and programs run. Needs root."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tests.servers.watchdog import Watchdog

INCLUDED = ("python3", "adduser", "ca-certificates", "init-system-helpers")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}


def new_debian(archive: Path, included: Sequence[str] = INCLUDED) -> None:
    """Make an archive of the Debian of this machine, by default with what the package needs."""
    release = Path("/etc/os-release").read_text()
    (suite,) = [
        line.partition("=")[2]
        for line in release.splitlines()
        if line.startswith("VERSION_CODENAME=")
    ]
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase"]
    check([*command, f"--include={','.join(included)}", suite, str(archive)])


def check(command: Sequence[str | Path]) -> str:
    """Run a command; return its output."""
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


class Chroot:
    """A root directory; programs in it see only its files and their own processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def unpacked(cls, archive: Path, root: Path) -> "Chroot":
        """Unpack an archive of `new_debian`."""
        root.mkdir(mode=0o755)
        check(["tar", "--extract", "--file", archive, "--directory", root])
        return cls(root)

    def path(self, name: str) -> Path:
        """Return a file in it."""
        return self.root / name.lstrip("/")

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program as root, or by `setpriv` as another user."""
        return subprocess.run(
            self._inside(*command),
            env=ENVIRONMENT | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def check(self, *command: str, **environment: str) -> str:
        """The same for a program that succeeds; return its output."""
        done = self.run(*command, **environment)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def install(self, package: Path) -> str:
        """Install a package as an admin does who answers no questions."""
        shutil.copy(package, self.path("/tmp/package.deb"))
        return self.check("dpkg", "--install", "/tmp/package.deb")

    @contextlib.contextmanager
    def service(self, *command: str, **environment: str) -> Iterator[None]:
        """Run the service until the context ends; it is connected in it, and stops gracefully."""
        process = subprocess.Popen(
            self._inside(*command),
            env=ENVIRONMENT | environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        watchdog = Watchdog(process.pid)

        def terminate() -> None:
            (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(child), signal.SIGTERM)

        try:
            with connected(process, terminate):
                yield
        finally:
            watchdog.stop()

    def _inside(self, *command: str) -> list[str]:
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return [*alone, f"--root={self.root}", "--wd=/", "--mount-proc", *command]


@contextlib.contextmanager
def connected(process: subprocess.Popen[str], terminate: Callable[[], None]) -> Iterator[None]:
    """Wait until the service of a process is connected; `terminate` ends it gracefully after the
    context. No error leaves the process running.
    """
    log = process.stderr
    assert log is not None
    try:
        _wait_until_connected(log)
        yield
        terminate()
        said = log.read()
        assert process.wait() == 0, said
    finally:
        process.kill()
        process.wait()
        log.close()


def _wait_until_connected(log: IO[str]) -> None:
    """Read the log of a service until it is connected."""
    said = []
    for line in log:
        said.append(line)
        if '"event":"connected"' in line.replace(": ", ":"):
            return
    raise AssertionError(f"the service ended before it was connected: {''.join(said)}")
