"""The service as an admin runs it: `xmpp-agent run --config agent.toml`, a process of its own.

It is a fork of a process that has imported what a service needs, which the program itself takes a
second for; a thorough run starts the program, and so do tests that say `program=True`.

The file is the guide's, as it stands; what a test wants otherwise is said by environment variables.
Every wait is bounded. When the process is closed, all that it ever wrote is looked at: nothing on
stdout, on stderr a JSON object in each line, and no secret in any.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol, Self

from tests.profiles import THOROUGH
from tests.servers.forked import Forked
from tests.servers.watchdog import Watchdog

PROGRAM = Path(sys.executable).with_name("xmpp-agent")
TIMEOUT = 120.0  # seconds; a bound for a busy machine, not an expectation
Line = dict[str, Any]

# How long is waited for a server that is away; the tests have no time for the defaults.
# Tests run at night, too, and one person gets the results of many of them.
UNDISTURBED = {
    "agent__notice": "",
    "notifications__quiet": "",
    "notifications__per_window": 1000,
}
QUICK = {"server__reconnect_min_s": 0.05, "server__reconnect_max_s": 0.3}


def environment(**settings: object) -> dict[str, str]:
    """Return the environment of a command: ours, and settings such as `server__port=1`.

    A value that is not text is written as JSON, as the settings read it.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("XMPP_AGENT_")}
    settings = {"limits__messages_per_sender": 1_000_000} | settings  # tests write in a hurry
    given = {
        f"XMPP_AGENT_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
    }
    return own | given


class Attachable(Protocol):
    """A server that the service can be attached to: a real one, or the embedded one."""

    component_domain: str
    secret: str
    accounts: dict[str, str]

    def agent_toml(self) -> str:
        """Return the configuration for it, with ${AGENT_SECRET} in it."""


class AgentProcess:
    """One `xmpp-agent run`, from `start` to `close`; it may be started again in between.

    `directory` holds its agent.toml and its data. `secret` is what the process believes the
    server's to be. `toml` stands in for the server's file. `settings` are overrides, as
    `environment` takes them.
    """

    def __init__(
        self,
        server: Attachable,
        directory: Path,
        *,
        secret: str | None = None,
        toml: str | None = None,
        program: bool = THOROUGH,
        **settings: object,
    ) -> None:
        self.server = server
        self._program = program
        self._toml = toml
        self.directory = directory
        self.domain = str(settings.get("server__component_domain", server.component_domain))
        self.secret = server.secret if secret is None else secret
        # Most tests are about the answers, not about the notice before the first one.
        self._settings = {**QUICK, "log__level": "debug", **UNDISTURBED, **settings}
        self._process: subprocess.Popen[str] | Forked | None = None
        self._watchdog: Watchdog | None = None
        self._readers: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._errors: list[str] = []  # lines of stderr, of every start
        self._output: list[str] = []  # and of stdout
        self._seen = 0
        self._ended = True

    # From start to end.

    def set(self, **settings: object) -> None:
        """Override settings, from the next start on."""
        self._settings |= settings

    def configure(self, toml: str) -> None:
        """Have this file, from the next start on."""
        self._toml = toml

    def start(self) -> Self:
        """Start the process; it is not connected yet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "agent.toml").write_text(self._toml or self.server.agent_toml())
        self._ended = False
        self._process = process = self._start()
        self._watchdog = Watchdog(process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(process.stdout, self._output)),
            threading.Thread(target=self._read, args=(process.stderr, self._errors)),
        ]
        for reader in self._readers:
            reader.start()
        return self

    def _start(self) -> subprocess.Popen[str] | Forked:
        words = [str(PROGRAM), "run", "--config", "agent.toml"]
        given = {**environment(**self._settings), "AGENT_SECRET": self.secret}
        if not self._program:
            return Forked(words, self.directory, given)
        return subprocess.Popen(
            words,
            cwd=self.directory,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id of the running process."""
        assert self._process is not None, "it is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        assert self._process is not None, "it is not running"
        self._process.send_signal(number)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let the process do nothing in this context."""
        self.send(signal.SIGSTOP)
        try:
            if isinstance(self._process, Forked):
                self._process.wait_stopped()
            else:
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield
        finally:
            self.send(signal.SIGCONT)

    def wait(self) -> int:
        """Wait until the process has ended by itself; return its exit code."""
        assert self._process is not None, "it is not running"
        try:
            code = self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"still running after {TIMEOUT} s\n{self.tail()}") from None
        self._finish()
        return code

    def stop(self) -> int:
        """End the process as a service manager does; return its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End the process with SIGKILL, as the kernel does when memory is short."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._finish()

    def close(self) -> None:
        """End the process if it runs, and look at all that it wrote."""
        self.kill()
        with self._changed:
            print(f"--- log of the service in {self.directory.name}", *self._errors, sep="\n")
            print(*self._output, sep="\n")
            assert self._output == [], "the service writes its log to stderr, and nothing else"
            wrote = "\n".join(self._errors)
        secrets = {self.secret, self.server.secret, *self.server.accounts.values()}
        assert not [secret for secret in secrets if secret in wrote], "a secret is in the log"
        for line in wrote.splitlines():
            if line.startswith("error: "):  # why it did not start, for whoever typed the command
                continue
            entry = json.loads(line)
            assert {"event", "level", "logger", "timestamp"} <= entry.keys(), line

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # What it says.

    def wait_log(self, event: str, **fields: object) -> Line:
        """Wait for the next line of the log with this event and these fields.

        Lines up to it count as read. Raises TimeoutError when none comes, and AssertionError when
        the process ends instead.
        """
        give_up = time.monotonic() + TIMEOUT
        wanted = {"event": event, **fields}
        with self._changed:
            at = self._seen
            while True:
                while at < len(self._errors):
                    line = _parsed(self._errors[at])
                    at += 1
                    if wanted.items() <= line.items():
                        self._seen = at
                        return line
                assert not self._ended, f"it ended before it said {wanted}\n{self.tail()}"
                if not self._changed.wait(give_up - time.monotonic()):
                    raise TimeoutError(f"it did not say {wanted}\n{self.tail()}")

    def log(self, event: str | None = None, **fields: object) -> list[Line]:
        """Return the lines so far with this event and these fields, read or not."""
        wanted = fields if event is None else {"event": event, **fields}
        with self._changed:
            lines = [_parsed(text) for text in self._errors]
        return [line for line in lines if wanted.items() <= line.items()]

    @property
    def errors(self) -> list[str]:
        """The lines of stderr so far, as they are."""
        with self._changed:
            return list(self._errors)

    def connected(self) -> Self:
        """Wait until it says that it is connected, counting from what has been read."""
        self.wait_log("connected")
        return self

    def tail(self) -> str:
        """Return the end of what it wrote to stderr, for a person who reads about a failure."""
        return "\n".join(self._errors[-60:])

    # Inside.

    def _read(self, pipe: IO[str], lines: list[str]) -> None:
        with pipe:
            for line in pipe:
                with self._changed:
                    lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _finish(self) -> None:
        # The pipes end with the process; only then is everything there that it wrote.
        for reader in self._readers:
            reader.join(TIMEOUT)
        if self._watchdog is not None:
            self._watchdog.kill_group()
            self._watchdog = None
        self._process = None


def _parsed(text: str) -> Line:
    with contextlib.suppress(ValueError):
        line = json.loads(text)
        if isinstance(line, dict):
            return line
    return {"event": text}
