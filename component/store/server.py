"""The PostgreSQL server: how to connect to it, and messages for its errors."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from component.store.errors import (
    ConflictError,
    ConnectionLostError,
    StorageError,
    UnavailableError,
    UnstorableError,
)

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg import Error as PostgresError

_SESSION: Final = """
SET idle_in_transaction_session_timeout = '5s';
SET lock_timeout = '10s';
SELECT CASE WHEN current_setting('synchronous_commit') = 'off'
       THEN set_config('synchronous_commit', 'on', false) END
"""
"""A suspended process must not hold locks, and acknowledged writes must be on disk."""


class PostgresServer:
    """The address of the database; its text names host, database and user, never the password."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        """Use `PostgresServer.of`."""
        self._parameters = parameters
        self._password = str(parameters.get("password") or "")
        self._text = _described(parameters)

    def __str__(self) -> str:
        """Return the subject of a sentence about the database."""
        return self._text

    @classmethod
    def of(cls, conninfo: str) -> "PostgresServer":
        """Parse a connection string or URI of libpq.

        Raises StorageError if it is invalid, or if psycopg is not installed.
        """
        try:
            import psycopg  # noqa: PLC0415 - only if PostgreSQL is configured
        except ImportError as error:
            raise StorageError(
                "postgres in [storage] is set, but the driver for PostgreSQL is not installed"
                f' ({error}). Install it: pip install "xmpp-agent-component[postgres]"'
                " - or remove postgres to use SQLite in the data directory."
            ) from error
        try:
            given = psycopg.conninfo.conninfo_to_dict(conninfo)
        except psycopg.ProgrammingError:
            # The reason quotes the text that it could not parse, which may be the password.
            raise StorageError(
                "postgres in [storage] is not a valid connection string for PostgreSQL. Write it as"
                " postgresql://user:password@host/database with %-escapes for special characters,"
                " or as host=… dbname=… user=… password=…."
            ) from None
        defaults = {
            "connect_timeout": 5,
            "tcp_user_timeout": 10_000,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "fallback_application_name": "xmpp-agent",
        }
        return cls({**defaults, **given, "client_encoding": "UTF8"})

    def connect(self) -> "Connection":
        """Open a connection in autocommit mode.

        Raises StorageError.
        """
        import psycopg  # noqa: PLC0415

        with self.explained(), ExitStack() as stack:
            try:
                connection = psycopg.connect(**self._parameters, autocommit=True)
            except psycopg.OperationalError as error:
                raise UnavailableError(
                    f"{self} cannot be opened: {self._without_password(error)}."
                    " Check that the server is running, and that user, password and database are"
                    " correct."
                ) from None  # its frames contain the password
            stack.callback(connection.close)
            _adapt(connection)
            connection.execute(_SESSION)
            self._check_encoding(connection)
            stack.pop_all()
        return connection

    def _check_encoding(self, connection: "Connection") -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StorageError(
                f"{self} has the encoding {encoding}, which cannot store all characters. Create a"
                " database for the agent: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
            )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Convert errors of server and network to StorageError.

        Errors that only a bug in this program can cause are not converted.
        """
        import psycopg  # noqa: PLC0415

        try:
            yield
        except psycopg.Error as error:
            if (why := self.surroundings(error)) is None:
                raise
            raise why from error

    def surroundings(self, error: BaseException) -> StorageError | None:
        """Return the error of server or network behind `error`; None if the operation caused it."""
        import psycopg  # noqa: PLC0415

        if not isinstance(error, psycopg.Error):
            return None
        if isinstance(error, psycopg.errors.PipelineAborted):
            return None  # an earlier statement failed, and its error has the reason
        lost = isinstance(
            error,
            psycopg.errors.IdleInTransactionSessionTimeout
            | psycopg.errors.AdminShutdown
            | psycopg.errors.CrashShutdown,
        ) or (error.sqlstate is None and isinstance(error, psycopg.OperationalError))
        conflict = isinstance(
            error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure
        )
        if not lost and not conflict and not _is_surroundings(error):
            return None
        kind = ConnectionLostError if lost else ConflictError if conflict else StorageError
        said = f" (PostgreSQL says: {self._without_password(error)})."
        return kind(f"{self} {_explain(error.sqlstate)}{said}")

    def unstorable(self, error: BaseException) -> UnstorableError | None:
        """The error to raise if `error` says that a value cannot be stored; None otherwise."""
        import psycopg  # noqa: PLC0415

        if isinstance(error, psycopg.DataError | UnicodeEncodeError) or _is_too_large(error):
            return UnstorableError(str(error).partition("\nCONTEXT:")[0])
        return None

    def _without_password(self, error: BaseException) -> str:
        text = " ".join(str(error).split()).rstrip(".")
        return text.replace(self._password, "***") if self._password else text


def _is_surroundings(error: "PostgresError") -> bool:
    import psycopg  # noqa: PLC0415

    if isinstance(error, psycopg.errors.InFailedSqlTransaction):
        return False  # an operation continued after an error
    if _is_too_large(error):
        return False
    return isinstance(
        error,
        psycopg.OperationalError
        | psycopg.InternalError
        | psycopg.errors.InsufficientPrivilege
        | psycopg.errors.FeatureNotSupported,
    )


def _is_too_large(error: BaseException) -> bool:
    """Whether a value exceeds a limit of the server, such as 2,704 bytes for an index entry.

    Class 54 of https://www.postgresql.org/docs/current/errcodes-appendix.html; psycopg counts it
    among the errors of the server's operation.
    """
    return (getattr(error, "sqlstate", None) or "").startswith("54")


def _explain(sqlstate: str | None) -> str:
    match sqlstate:
        case "53100":
            return "has no space left on its disk. Free some space there"
        case "53300":
            return "accepts no more connections. Raise its max_connections, or close some"
        case "55P03":
            return "holds a lock for another client. Look for long transactions in pg_stat_activity"
        case "25006":
            return "is read-only, like a standby. Use the primary server"
        case "42501":
            return (
                "denies the user a required permission. Make the user the owner of the database,"
                " or GRANT CREATE, USAGE on the schema"
            )
        case "XX001" | "XX002":
            return "is damaged. Restore a backup"
        case None | "57P01" | "57P02" | "57P03" | "25P03":
            return "has closed the connection. Check that the server is running and can be reached"
        case _:
            return "cannot execute the statement now"


def _described(parameters: dict[str, Any]) -> str:
    host = parameters.get("host") or parameters.get("hostaddr") or "this machine"
    port = f":{parameters['port']}" if parameters.get("port") else ""
    user = f" for user {parameters['user']}" if parameters.get("user") else ""
    name = parameters.get("dbname") or parameters.get("user") or "of the user's name"
    return f"The PostgreSQL database {name} on {host}{port}{user}"


def _adapt(connection: "Connection") -> None:
    """Make values behave as on SQLite."""
    from psycopg.adapt import Dumper, Loader  # noqa: PLC0415
    from psycopg.types.numeric import Int8Dumper  # noqa: PLC0415

    class BoolDumper(Dumper):
        oid = connection.adapters.types["int8"].oid

        def dump(self, obj: bool) -> bytes:
            return b"1" if obj else b"0"

    class NumericLoader(Loader):
        def load(self, data: Any) -> int | float:
            text = bytes(data).decode()
            return int(text) if text.lstrip("-").isdecimal() else float(text)

    # One type for all integers; otherwise each width would need its own prepared statement.
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(bool, BoolDumper)
    connection.adapters.register_loader("numeric", NumericLoader)  # sum() of bigint
