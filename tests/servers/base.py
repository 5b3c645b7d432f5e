"""What the real servers of the tests have in common: ports, certificate, process, log.

A server process never outlives the test run, however that ends: it leads a process group of its
own, which a watchdog kills when the run is gone.
"""

import copy
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, ClassVar, Self

import trustme

from tests.servers import guides
from tests.servers.errors import ServerError
from tests.servers.watchdog import Watchdog

__all__ = ["PortLease", "Server", "ServerError"]

START_LIMIT = 120.0  # seconds; a bound for a busy machine, not an expectation
STOP_LIMIT = 120.0
LOG_TAIL = 8000  # characters of log shown with a failure


class PortLease:
    """A port that no other test run takes for as long as this object lives.

    Asking the kernel for a free port and closing it again leaves a gap in which anybody may get
    the same one. These ports lie below the range the kernel hands out, and a file lock keeps
    other runs on this machine away from them, also while the server is stopped.
    """

    def __init__(self, address: str) -> None:
        locks = Path(tempfile.gettempdir()) / f"xmpp-test-ports-{os.getuid()}"
        locks.mkdir(exist_ok=True)
        for port in random.sample(range(20000, 30000), 200):
            self._file: IO[str] = (locks / str(port)).open("w")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.create_server((address, port)):
                    self.port = port
                    return
            except OSError:
                self._file.close()
        raise ServerError(f"no free port on {address} between 20000 and 30000")

    def release(self) -> None:
        """Let other runs have the port. The lock's file stays: removing it would race."""
        self._file.close()


class Server(ABC):
    """One real XMPP server in a directory of its own, with one host, two accounts, one component.

    With `hosts` it has these as well, each with the same accounts and a component of its own: see
    `on`. Services on different hosts do not disturb each other, so one server is enough for them.

    It runs the configuration of its Debian package, with the message archive switched on.

    `directory` is the caller's, to be thrown away with everything in it. `guide` is the admin's
    guide whose component block is run. With `s2s_port` the server also federates, by dialback;
    without, it does not federate at all, so that no test asks a resolver.
    `second` is the domain of a component beside the agent's, which has the same secret.
    `additions` are blocks of guides that an admin adds later: a guide, and the name of the block.
    They are about `additions_host`, or about the first one.
    `unlimited` is the reason why clients may send faster than Debian's configuration lets them.
    Works as a context manager: starts on entering, is killed on leaving.
    """

    name: ClassVar[str]
    package: ClassVar[str]  # of Debian
    program: ClassVar[str]
    second_has_own_port: ClassVar[bool]  # whether each component has a listener of its own

    def __init__(
        self,
        directory: Path,
        host: str = "localhost",
        address: str = "127.0.0.1",
        *,
        hosts: Sequence[str] = (),
        guide: Path | None = None,
        s2s_port: int | None = None,
        second: str | None = None,
        additions: Sequence[tuple[str, str]] = (),
        additions_host: str = "",
        unlimited: str = "",
    ) -> None:
        self.directory = directory
        self.host = host
        self.hosts = (host, *hosts)
        self.address = address
        self.guide = guide or guides.DOCS / "how-to" / f"{self.name}.md"
        self.s2s_port = s2s_port
        self.component_domain = f"agent.{host}"
        self.secret = "secret of the component"
        self.accounts = {"juliet": "password of juliet", "romeo": "password of romeo"}
        self.ca_file = directory / "ca.pem"
        self.certificate = directory / "certificate.pem"
        self.key = directory / "key.pem"
        self.second = second
        self.additions = additions
        self.additions_host = additions_host or host
        self.unlimited = unlimited
        self._leases = [PortLease(address) for _ in range(3)]
        self.c2s_port, self.component_port, own = (lease.port for lease in self._leases)
        self.second_port = own if self.second_has_own_port else self.component_port
        self._component_ports = {host: self.component_port}
        for further in hosts:
            if self.second_has_own_port:
                self._leases.append(PortLease(address))
                self._component_ports[further] = self._leases[-1].port
            else:
                self._component_ports[further] = self.component_port
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None

    # What the two servers do differently.

    @abstractmethod
    def _configure(self, components: Sequence[str], added: str) -> None:
        """Write the configuration, with the guide's filled block where an admin would put it: one
        for each host. `added` are the blocks that come later.
        """

    @abstractmethod
    def _command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that runs the server in the foreground, and its extra environment."""

    @abstractmethod
    def _log_files(self) -> Iterable[Path]:
        """Return the files that the server logs to."""

    def _accounts_ready(self) -> bool:
        """Tell whether the accounts exist, once the ports are open."""
        return True

    # The face for tests.

    def on(self, host: str) -> Self:
        """Return this server as those see it who use this one of its hosts.

        A test that stops or starts it does that with the server itself.
        """
        seen = copy.copy(self)
        seen.host, seen.component_domain = host, f"agent.{host}"
        seen.component_port = self._component_ports[host]
        return seen

    def jid(self, account: str) -> str:
        """Return the bare JID of an account."""
        return f"{account}@{self.host}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerError(f"{self.name} is not running: call start() first")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server was started and not stopped since."""
        return self._process is not None

    def start(self) -> None:
        """Start the server and return when it accepts clients and components.

        Raises ServerError when it is not installed or not ready within START_LIMIT.
        """
        if self._process is not None:
            raise ServerError(f"{self.name} is running already, as process {self.pid}")
        if shutil.which(self.program) is None:
            raise ServerError(
                f"{self.program} is not there, and these tests run against a real {self.name}:"
                f" install the Debian package {self.package} (apt-get install {self.package})"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.key.exists():
            self._make_certificate()
        self._configure(
            [self.on(host)._fill("component", guides.SECRET) for host in self.hosts],
            "".join(self._added(guide, name) for guide, name in self.additions),
        )
        command, environment = self._command()
        with (self.directory / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watchdog = Watchdog(self.pid)
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask the server to shut down, as an admin would, and wait until it has.

        Raises ServerError, after killing it, when that takes longer than STOP_LIMIT.
        """
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            raise ServerError(
                f"{self.name} did not stop within {STOP_LIMIT} s of SIGTERM\n{self.log_tail()}"
            ) from None
        finally:
            self.kill()

    def kill(self) -> None:
        """End the server as a crash would, with SIGKILL. No harm if it is not running."""
        if self._process is None:
            return
        if self._watchdog is not None:
            self._watchdog.kill_group()  # even if its leader ended by itself
            self._watchdog = None
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop and start on the same ports, with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the server and give its ports back."""
        self.kill()
        for lease in self._leases:
            lease.release()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def agent_toml(self) -> str:
        """Return the guide's `agent.toml` for this server; ${AGENT_SECRET} stays as it is."""
        return self._fill("agent.toml")

    def cpu_seconds(self) -> float:
        """Return the CPU time, user and system, that the server has used since its start."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_text(self) -> str:
        """Return everything the server has logged or printed so far."""
        files = (self.directory / "console.log", *self._log_files())
        return "\n".join(f.read_text(errors="replace") for f in files if f.exists())

    def log_tail(self) -> str:
        """Return the end of the log, for a person who reads about a failure."""
        return self.log_text()[-LOG_TAIL:]

    def _fill(self, block: str, *required: str) -> str:
        values = {
            guides.HOST: self.host,
            guides.ADDRESS: self.address,
            guides.PORTS[self.name]: str(self.component_port),
            **dict.fromkeys(required, self.secret),
        }
        return guides.fill(guides.block(self.guide, block), values)

    def _added(self, guide: str, name: str) -> str:
        values = {guides.HOST: self.additions_host}
        return guides.fill(guides.block(guides.DOCS / guide, name), values)

    def _make_certificate(self) -> None:
        authority = trustme.CA()
        # ejabberd sets a timer for the end of a certificate and refuses one that never ends.
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        names = [name for host in self.hosts for name in (host, f"agent.{host}")]
        # Files of every server are at `localhost`, a name that all clients find.
        leaf = authority.issue_cert(*{*names, "localhost"}, not_after=tomorrow)
        authority.cert_pem.write_to_path(self.ca_file)
        leaf.private_key_pem.write_to_path(self.key)
        for part in leaf.cert_chain_pems:
            part.write_to_path(self.certificate, append=True)

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        waiting_for = [self.c2s_port, *set(self._component_ports.values())]
        waiting_for += [] if self.second is None else [self.second_port]
        give_up = time.monotonic() + START_LIMIT
        while True:
            if self._process.poll() is not None:
                raise ServerError(
                    f"{self.name} ended with {self._process.returncode} instead of starting"
                    f"\n{self.log_tail()}"
                )
            waiting_for = [port for port in waiting_for if not self._accepts(port)]
            if not waiting_for and self._accounts_ready():
                return
            if time.monotonic() > give_up:
                raise ServerError(
                    f"{self.name} was not ready after {START_LIMIT} s; closed on {self.address}:"
                    f" {waiting_for}\n{self.log_tail()}"
                )
            time.sleep(0.02)  # between two looks; what ends the wait is the open port

    def _accepts(self, port: int) -> bool:
        try:
            socket.create_connection((self.address, port), timeout=1).close()
        except OSError:
            return False
        return True
