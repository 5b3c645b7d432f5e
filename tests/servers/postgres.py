"""A real PostgreSQL: one for the whole run, a fresh database for each test.

`migrated_url` is the URI of a database with the tables of this release and no rows of other tests;
`open_storage` opens it. Emptying one takes milliseconds, and making one half a second.
`postgres_url` is the URI of a new database without tables. A test that stops or kills the server
takes `make_postgres` and gets one of its own. Nothing here is durable but what a test restarts: the
files are thrown away.
"""

import contextlib
import fcntl
import hashlib
import hmac
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

import psycopg
import pytest

from component.app.schema import SCHEMA
from component.store import Storage
from component.store.schema import make_postgres as make_tables
from tests.servers.base import LOG_TAIL, START_LIMIT, STOP_LIMIT, PortLease, ServerError
from tests.servers.watchdog import Watchdog

USER = "agent"
_KEEP = """
DO $$ DECLARE name text; used bool; BEGIN
  CREATE SCHEMA pristine;
  CREATE VIEW pristine.tables AS SELECT tablename FROM pg_tables WHERE schemaname = 'public';
  CREATE TABLE pristine.names AS TABLE pristine.tables;
  FOR name IN TABLE pristine.names LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO used;
    IF used THEN EXECUTE format('CREATE TABLE pristine.%1$I AS TABLE public.%1$I', name); END IF;
  END LOOP;
END $$"""
"""Keeps the rows of a new database."""
_EMPTY = """
DO $$ DECLARE name text; BEGIN
  SET LOCAL session_replication_role = replica;  -- no triggers, no foreign keys
  FOR name IN TABLE pristine.tables EXCEPT TABLE pristine.names LOOP
    EXECUTE format('DROP TABLE public.%I CASCADE', name);
  END LOOP;
  FOR name IN TABLE pristine.names LOOP
    IF pg_relation_size(format('public.%I', name)) > 65536
    THEN EXECUTE format('TRUNCATE public.%I CASCADE', name);
    ELSE EXECUTE format('DELETE FROM public.%I', name); END IF;
  END LOOP;
  FOR name IN SELECT tablename FROM pg_tables
      WHERE schemaname = 'pristine' AND tablename <> 'names' LOOP
    EXECUTE format('INSERT INTO public.%1$I SELECT * FROM pristine.%1$I', name);
  END LOOP;
  FOR name IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' LOOP
    PERFORM setval(format('public.%I', name)::regclass, 1, false);
  END LOOP;
END $$"""
"""Restores the rows of a new database."""
_TABLES = """
SELECT string_agg(relname || attname || coalesce(reloptions::text, ''), ' '
                  ORDER BY relname, attnum)
FROM pg_class class JOIN pg_attribute ON attrelid = class.oid
WHERE relnamespace = 'public'::regnamespace AND NOT attisdropped"""
"""What distinguishes the tables, columns and indexes of two databases."""
_DISCONNECT = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""
PASSWORD = "pass word of the agent: 100%"


class Databases:
    """The databases of a running server, whose sockets are in a directory and on a port."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self._programs = _programs()
        self._as: list[str] = []
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            self._as = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
            self._as.append("--clear-groups")
        self._databases = 0
        self._empty: list[str] = []
        """Names of databases with tables and no rows of tests."""
        self._connections: dict[str, psycopg.Connection[tuple[Any, ...]]] = {}
        """Those that empty databases."""
        self._tables: object = None

    def url(self, database: str, password: str = PASSWORD) -> str:
        """The URI of a database of this server."""
        secret = quote(password, safe="")
        return f"postgresql://{USER}:{secret}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database and return its URI."""
        name = self._new_name()
        with self._superuser() as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER {USER}")
        return self.url(name)

    @contextmanager
    def migrated_database(self) -> Iterator[str]:
        """Give the URI of a database with the tables and rows that a new one of this release has.

        It is used again afterwards, unless its tables were changed.
        """
        name = self._empty.pop() if self._empty else self._new_migrated()
        try:
            yield self.url(name)
        finally:
            connection = self._emptying(name)
            connection.execute(_DISCONNECT)
            connection.execute(_EMPTY)
            if connection.execute(_TABLES).fetchone() == self._tables:
                self._empty.append(name)
            else:
                self._connections.pop(name).close()

    def _emptying(self, name: str) -> psycopg.Connection[tuple[Any, ...]]:
        """The connection that empties a database after each test, as long as it is used.

        A new one has to plan all statements again, which takes most of the time.
        """
        if name not in self._connections:
            self._connections[name] = self._superuser(name)
        return self._connections[name]

    def disconnect(self) -> None:
        """Close the connections of its own."""
        while self._connections:
            self._connections.popitem()[1].close()

    def _new_migrated(self) -> str:
        name = self._new_name()
        with self._superuser() as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER {USER}")
        with psycopg.connect(self.url(name)) as migrating:
            make_tables(migrating, "the database", SCHEMA)
        with self._superuser(name) as connection:
            connection.execute(_KEEP)
            self._tables = connection.execute(_TABLES).fetchone()
        return name

    def _new_name(self) -> str:
        self._databases += 1
        return f"test_{os.getpid()}_{self._databases}"

    def _superuser(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        address = f"host={self.directory} port={self.port} user=postgres dbname={database}"
        return psycopg.connect(address, autocommit=True)

    def psql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as the superuser and return what it gave."""
        return self._run(
            *("psql", "-h", self.directory, "-p", str(self.port), "-U", "postgres"),
            *("-d", database, "-AtXq", "-v", "ON_ERROR_STOP=1", "-c", statement),
        )

    def log_tail(self) -> str:
        """The end of the log, for a person who reads about a failure."""
        log = self.directory / "log"
        return log.read_text(errors="replace")[-LOG_TAIL:] if log.exists() else ""

    def _run(self, program: str, *arguments: str | Path) -> str:
        command = [*self._as, str(self._programs / program), *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise ServerError(f"{program} failed: {done.stdout}{done.stderr}\n{self.log_tail()}")
        return done.stdout.strip()


class Postgres(Databases):
    """One server, on loopback. Starts on entering; is killed, and its files removed, on leaving.

    The server refuses to run as root: then it runs as the user `postgres` of Debian's package. So
    its directory is not one of those of pytest, which are closed to other users again and again.
    """

    def __init__(self, new: Path | None = None) -> None:
        """With `new`, the data directory is a copy of that one, which takes a tenth of the time."""
        self._lease = PortLease("127.0.0.1")
        super().__init__(Path(tempfile.mkdtemp(prefix="postgres-")), self._lease.port)
        self._new = new
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None

    def start(self) -> None:
        """Start it, and return when it lets clients in.

        Raises ServerError if it has not after START_LIMIT.
        """
        data = self.directory / "data"
        if not data.exists():
            self._own_directory()
            if self._new is None:
                self._make(data)
            else:
                _copy(self._new, data)
        self._launch(data)

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerError("PostgreSQL is not running: call start() first")
        return self._process.pid

    def stop(self, how: Literal["immediate", "fast"] = "immediate") -> None:
        """Stop it: `immediate` as a crash would, `fast` as an admin does.

        Raises subprocess.TimeoutExpired if it does not obey an admin within STOP_LIMIT.
        """
        self.disconnect()
        if self._process is None or self._watchdog is None:
            return
        try:
            if how == "immediate":
                _kill_with_children(self.pid)
            else:
                self._process.send_signal(signal.SIGINT)
            self._process.wait(STOP_LIMIT)
        finally:
            self._watchdog.kill_group()  # also if it did not obey
            self._process.wait()
            self._process = self._watchdog = None

    def restart(self, how: Literal["immediate", "fast"] = "immediate") -> None:
        """Stop and start on the same port, with the same data."""
        self.stop(how)
        self.start()

    def close(self) -> None:
        """Stop it, remove its files, and give the port back."""
        self.stop()
        shutil.rmtree(self.directory)
        self._lease.release()

    def leave_to(self, users: Path, state: Path) -> None:
        """Let it run until no process has a lock on the file `users`; then delete `state`."""
        assert self._process is not None
        assert self._watchdog is not None
        self._watchdog.stop()
        end = f"kill -9 -{self.pid}; rm -rf '{self.directory}' '{state}'"
        ending = subprocess.Popen(
            ["flock", "--exclusive", str(users), "sh", "-c", end],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Both outlive this process, which need not wait for them.
        self._process.returncode = ending.returncode = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def keep_new(self) -> None:
        """Make the data directory, and keep a copy of it that other servers can begin with."""
        self._own_directory()
        self._make(self.directory / "data")
        _copy(self.directory / "data", new_data(self))

    def _own_directory(self) -> None:
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.directory, user.pw_uid, user.pw_gid)

    def _make(self, data: Path) -> None:
        # Small segments of the log: it is copied with the rest.
        options = ("-A", "trust", "-E", "UTF8", "-N", "--wal-segsize=1")
        self._run("initdb", "-D", data, "-U", "postgres", *options)
        (data / "pg_hba.conf").write_text(
            "local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        # Without `fsync`, commits survive the end of the server, and not that of the machine.
        with (data / "postgresql.conf").open("a") as conf:
            conf.write(
                "listen_addresses = '127.0.0.1'\n"
                "max_connections = 120\nshared_buffers = 32MB\nautovacuum = off\n"
                "max_wal_size = 1GB\n"
                "fsync = off\nfull_page_writes = off\n"
            )
        self._launch(data)
        self.psql(f"CREATE ROLE {USER} LOGIN PASSWORD '{_verifier(PASSWORD)}'")
        self.stop("fast")

    def _launch(self, data: Path) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(*self._as, str(self._programs / "postgres"), "-D", str(data)),
                    # Not in a file: data directories are copies of each other.
                    *("-p", str(self.port), "-k", str(self.directory)),
                ],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watchdog = Watchdog(self.pid)
        give_up = time.monotonic() + START_LIMIT
        # https://www.postgresql.org/docs/15/storage-file-layout.html: the last line is its state
        while not self._ready(data / "postmaster.pid"):
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise ServerError(f"PostgreSQL does not start\n{self.log_tail()}")
            time.sleep(0.02)  # between two looks

    def _ready(self, file: Path) -> bool:
        try:
            lines = file.read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"


def _kill_with_children(parent: int) -> None:
    """Kill a server and its children, which are in sessions of their own.

    SIGQUIT would do nearly that; but a client that is just connecting holds the server up then,
    for as long as it may take to authenticate.
    """
    os.kill(parent, signal.SIGSTOP)  # no new children
    children = {child: os.pidfd_open(child) for child in _children(parent)}
    for pid in (parent, *children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for end in children.values():
        select.select([end], [], [])
        os.close(end)


def new_data(server: Databases) -> Path:
    """Where a server of a run keeps the data directory of a new server."""
    return server.directory / "new"


def _verifier(password: str) -> str:
    """What PostgreSQL stores of a password (RFC 5803), after one iteration instead of thousands:
    each connection would have to do them, too.
    """
    salt = b"salt of the tests"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [b64encode(part).decode() for part in (salt, stored, server)]
    return "SCRAM-SHA-256$1:{}${}:{}".format(*encoded)


def _copy(data: Path, to: Path) -> None:
    """Copy the data directory of a server that is not running, with its owner."""
    subprocess.run(["cp", "--archive", str(data), str(to)], check=True)


def _children(parent: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # proc_pid_stat(5): the name may hold anything; the state and the parent follow it
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                yield int(stat.parent.name)


def _programs() -> Path:
    """Where Debian keeps them: not on the PATH, and one directory for each version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))
    if found:
        return found[-1]
    if there := shutil.which("postgres"):
        return Path(there).resolve().parent
    raise ServerError(
        "PostgreSQL is not there, and these tests run against a real one: install the Debian"
        " package postgresql (make servers)"
    )


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """One PostgreSQL for the whole run."""
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent  # one directory for all processes of the run
    with _of_the_run(run) as databases:
        yield databases


@contextmanager
def _of_the_run(run: Path) -> Iterator[Databases]:
    """Give the server of a run. The first process that needs it starts it; it ends with the last
    one that does, however that ends.
    """
    state = run / "postgres"
    with (run / "postgres-users").open("a") as users:
        with (run / "postgres-starts").open("a") as starts:
            fcntl.flock(starts, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            if not state.exists():
                server = Postgres()
                server.keep_new()
                server.start()
                server.leave_to(Path(users.name), state)
                state.write_text(f"{server.directory} {server.port}")
        directory, port = state.read_text().split()
        databases = Databases(Path(directory), int(port))
        yield databases
        databases.disconnect()


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> str:
    """The URI of a fresh database."""
    return postgres_server.new_database()


@pytest.fixture
def migrated_url(postgres_server: Postgres) -> Iterator[str]:
    """The URI of a fresh database with the tables of this release."""
    with postgres_server.migrated_database() as url:
        yield url


@pytest.fixture
def make_postgres(postgres_server: Databases) -> Iterator[Callable[[], Postgres]]:
    """Make servers of the test's own, started."""
    servers: list[Postgres] = []

    def make() -> Postgres:
        server = Postgres(new_data(postgres_server))
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def database_kind(request: pytest.FixtureRequest) -> str:
    """`sqlite` or `postgresql`: which one depends on the ring of the test (`tests/rings.py`)."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def open_storage(
    request: pytest.FixtureRequest, database_kind: str, tmp_path: Path
) -> Callable[..., AbstractAsyncContextManager[Storage]]:
    """Opens the test's storage, again and again if need be.

    Called with a `name` it has another data directory; on PostgreSQL both are one database then,
    as those of two instances. Other arguments are those of `Storage.open`.
    """
    where: dict[str, Any] = {}
    if database_kind == "postgresql":
        where["postgres"] = request.getfixturevalue("migrated_url")

    def open_one(name: str = "data", **options: Any) -> AbstractAsyncContextManager[Storage]:
        return Storage.open(SCHEMA, tmp_path / name, **where, **options)

    return open_one


@pytest.fixture
async def storage(
    open_storage: Callable[..., AbstractAsyncContextManager[Storage]],
) -> AsyncIterator[Storage]:
    """Run the test on a new storage of each kind."""
    async with open_storage() as storage:
        yield storage


if __name__ == "__main__":  # for a person or a benchmark: prints the URI, runs until Enter
    with Postgres() as running:
        print(running.new_database(), flush=True)
        sys.stdin.readline()
