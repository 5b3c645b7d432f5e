"""Listens for HTTP requests, with Hypercorn."""

import importlib
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

import anyio
import sniffio
import structlog
from anyio.abc import TaskStatus

from component.kernel.http_routes import HttpRoutes

if TYPE_CHECKING:
    from hypercorn.config import Config

_log = structlog.get_logger("component.http")

_HEADERS_S: Final = 5.0
"""Seconds in which the headers of a request have to arrive, and the next request on a connection
has to begin. Afterwards the connection is closed."""
_SILENCE_S: Final = 600
"""Seconds after which a connection is closed on which nothing arrives. Features bound the time of
their requests; a client that fetches a large file sends nothing meanwhile."""
_HEADER_BYTES: Final = 16_384
_BACKLOG: Final = 128
_LAST_S: Final = 3.0
"""Seconds for requests under way when the listener stops."""
_RESTART_S: Final = 1.0


class ListenError(Exception):
    """The address cannot be listened on, or the extra is missing; the message says what to do."""


class HttpListener:
    """Listens for the time of `run` on an IP address. `port` is 0 for any that is free; afterwards
    it is the port that is listened on. The headers of a request have to arrive in `headers_s`
    seconds; a connection on which nothing arrives is closed after `silence_s` seconds.
    """

    def __init__(
        self,
        routes: HttpRoutes,
        host: str,
        port: int,
        *,
        headers_s: float = _HEADERS_S,
        silence_s: int = _SILENCE_S,
    ) -> None:
        self._silence_s = silence_s
        self._routes = routes
        self._host = host
        self._headers_s = headers_s
        self.port = port

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; it has started once it listens. Raises ListenError."""
        check_extra()
        with listening_socket(self._host, self.port) as listener:
            self.port = listener.getsockname()[1]
            _log.info("listening for HTTP requests", host=self._host, port=self.port)
            task_status.started()
            while True:
                try:
                    await self._serve(listener)
                except Exception:  # noqa: BLE001 - a fault of one connection must not end the others
                    _log.exception("the HTTP listener failed, and starts again")
                await anyio.sleep(_RESTART_S)

    async def _serve(self, listener: socket.socket) -> None:
        """Run Hypercorn until this is cancelled. It is then told to stop instead of being
        cancelled, because it has tasks of its own to end.
        """
        stop = anyio.Event()
        with listener.dup() as own:  # Hypercorn closes the socket that it is given
            config = _config(own, self._headers_s, self._silence_s)
            async with anyio.create_task_group() as group:
                group.start_soon(self._hypercorn, config, stop)
                try:
                    await anyio.sleep_forever()
                finally:
                    stop.set()

    async def _hypercorn(self, config: "Config", stop: anyio.Event) -> None:
        backend = sniffio.current_async_library()
        # Its types name every event of ASGI, and differ between the two.
        serve: Any = importlib.import_module(f"hypercorn.{backend}").serve
        with anyio.CancelScope(shield=True):
            await serve(self._routes, config, shutdown_trigger=stop.wait)


def check_extra() -> None:
    """Raise ListenError if Hypercorn is not installed."""
    try:
        import hypercorn  # noqa: F401, PLC0415
    except ImportError:
        raise ListenError(
            "The HTTP listener needs the extra `webhooks`:"
            " pip install 'xmpp-agent-component[webhooks]', or remove port from [http]."
        ) from None


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an IP address. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise ListenError(
            f"HTTP requests cannot be received on {host} port {port}: {error.strerror or error}."
            " Set host and port in [http] to another address."
        ) from error
    return made


def _config(listener: socket.socket, headers_s: float, silence_s: int) -> "Config":
    from hypercorn.config import Config, Sockets  # noqa: PLC0415

    class OwnSocket(Config):
        """Listens on a socket that exists already."""

        def create_sockets(self) -> Sockets:
            return Sockets([], [listener], [])

    config = OwnSocket()
    config.errorlog = _hypercorn_log()
    config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout = headers_s
    config.read_timeout = silence_s
    config.h11_max_incomplete_size = _HEADER_BYTES
    config.h2_max_header_list_size = _HEADER_BYTES
    config.h2_max_concurrent_streams = 16
    config.graceful_timeout = _LAST_S
    config.backlog = _BACKLOG
    return config


def _hypercorn_log() -> logging.Logger:
    """Hypercorn's own log: errors only, because it names no request."""
    log = logging.getLogger("component.http.hypercorn")
    log.setLevel(logging.ERROR)
    return log
