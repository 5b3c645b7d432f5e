"""Where the pictures are taken: a Prosody for browsers too, and a service with a scripted model."""

import functools
import http.server
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from component.config.policy import Agent
from tests.component.models.endpoint import Answer, Calls, Request, Text
from tests.servers import shipped
from tests.servers.base import PortLease
from tests.servers.chatting import Chat, chatting
from tests.servers.prosody import Prosody
from tests.servers.test_uploads import UploadsOnEjabberd
from tests.servers.watching import with_rooms

HOST = "example.com"
LOOPBACK = "127.0.0.1"
LIMIT_S = 30.0
ARRIVES_S = 2.0
"""Seconds until a message that a client shows as sent has arrived, on a busy machine too."""
SKILLS = '''
from pathlib import Path
from typing import Annotated, Literal
import anyio
from msgspec import Meta
from component.skills import skill

@skill(name="weather", read_only=True, open_world=False)
async def weather(city: str) -> str:
    """Say how the weather is in a city."""
    Path("weather.begun").touch()
    while not Path("weather.go").exists():
        await anyio.sleep(0.02)
    return f"Sunny in {city}."

@skill(
    name="empty-folder", title="Empty a folder", question="May I empty the folder {folder}?"
)
def empty_folder(folder: str) -> str:
    """Delete all mails in a folder."""
    return f"{folder} is empty."

Guests = Annotated[int, Meta(ge=1, le=12, description="From 1 to 12.")]
Time = Annotated[str, Meta(description="Such as 19:30.")]
Place = Literal["Inside", "On the terrace", "At the bar"]

@skill(name="book-table", title="Book a table", destructive=False)
def book_table(
    guests: Guests, time: Time, place: Place | None = None, vegetarian: bool = False
) -> str:
    """Book a table in the restaurant for this evening."""
    return f"A table for {guests} is booked."
'''


class WebProsody(Prosody):
    """Prosody with a websocket (RFC 7395), rooms, and an upload service (XEP-0363) with TLS, which
    clients demand. The files are at the host `localhost`, which every client finds.
    """

    http_port = 0
    https_port = 0

    def _configure(self, components: Sequence[str], added: str) -> None:
        super()._configure(components, f'{added}\thttp_host = "localhost"\n')

    def _main(self) -> str:
        web = (
            f"http_ports = {{ {self.http_port} }}\n"
            f'http_interfaces = {{ "{self.address}" }}\n'
            "consider_websocket_secure = true\n"
            f'http_external_url = "https://localhost:{self.https_port}/"'
        )
        secure = f'https_ports = {{ {self.https_port} }}\nhttps_interfaces = {{ "{self.address}" }}'
        return shipped.change(
            super()._main(),
            ('--"websocket";', '"websocket";'),
            ("http_ports = { }", web),
            ("https_ports = { }", secure),
        )

    @property
    def websocket(self) -> str:
        """The URL of the websocket."""
        return f"ws://{self.address}:{self.http_port}/xmpp-websocket"


class WebEjabberd(UploadsOnEjabberd):
    """ejabberd with what Debian has on port 5443: a websocket, and the files of its upload service
    (the host is `localhost`, where both are).
    """

    @property
    def websocket(self) -> str:
        """The URL of the websocket."""
        return f"wss://{self.host}:{self.http_port}/ws"


WebServer: TypeAlias = WebProsody | WebEjabberd


class Scene:
    """The server, the service, and what its model says.

    Attributes:
        server: the server.
        chat: the service.
    """

    def __init__(self, server: WebServer, chat: Chat) -> None:
        self.server = server
        self.chat = chat
        chat.model.otherwise = _says

    @property
    def directory(self) -> Path:
        """Where the service runs."""
        return self.chat.agent.directory

    def until_at_work(self) -> None:
        """Wait until the agent looks for the weather, which takes until it is known."""
        deadline = time.monotonic() + LIMIT_S
        while not (self.directory / "weather.begun").exists():
            assert time.monotonic() < deadline, "the agent does not look for the weather"
            time.sleep(0.05)

    def weather_is_known(self) -> None:
        """Let the skill that waits go on, when what was just sent has arrived."""
        time.sleep(ARRIVES_S)
        (self.directory / "weather.go").touch()


def _says(request: Request) -> Answer:
    """What the model makes of the newest message."""
    said = [message for message in request.messages if message["role"] != "system"]
    people = [str(message["content"]) for message in said if message["role"] == "user"]
    asked, newest = people[-1], str(said[-1].get("content"))
    if said[-1]["role"] == "tool":
        if "Sunny" in newest:
            return Text("It is sunny in Verona.")
        return Text(next(line for line in reversed(newest.splitlines()) if "empty" in line))
    if "Venice" in asked:
        return Text("It is sunny in Verona, and in Venice, too.")
    if "Verona" in asked:
        return Calls(("weather", {"city": "Verona"}))
    for folder in ("Archive", "Drafts", "Newsletters"):
        if folder in asked:
            return Calls(("empty-folder", {"folder": folder}))
    return Text("Good evening! What can I do for you?")


@contextmanager
def web_server(directory: Path, name: str = "prosody") -> Iterator[WebServer]:
    """The server with a name, for the time of the context."""
    leases = [PortLease(LOOPBACK), PortLease(LOOPBACK)]
    server: WebServer = WebEjabberd(directory)
    if name == "prosody":
        server = WebProsody(directory, HOST, additions=[("how-to/prosody.md", "uploads")])
        server.https_port = leases[1].port
    server.http_port = leases[0].port
    with_rooms(server)
    try:
        server.start()
        yield server
    finally:
        server.close()
        for lease in leases:
            lease.release()


@contextmanager
def scene(directory: Path) -> Iterator[Scene]:
    """The scene, for the time of the context."""
    notice = Agent.model_fields["notice"].default  # which other tests do without
    named = {"agent__name": "Assistant", "agent__notice": notice}
    with (
        web_server(directory / "prosody") as server,
        chatting(server, directory / "agent", skills=SKILLS, **named) as chat,
    ):
        yield Scene(server, chat)


@contextmanager
def web(directory: Path) -> Iterator[str]:
    """Serves the files of a directory on this machine; the URL."""
    handler = functools.partial(_Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer((LOOPBACK, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""
