"""Dino under Xvfb: driven by the pointer and the keyboard, read from its own database.

Dino has no setting for where a server is, and trusts only the certificates of the system. So it
runs in a mount namespace with its own /etc/hosts, /etc/resolv.conf and list of certificates.
"""

import os
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from tests.servers.base import Server

LIMIT_S = 60.0
SETTLED_S = 1.0
"""Seconds until what moves or fades has come to rest."""
WIDTH, HEIGHT = 900, 389
"""Pixels of Dino's window, which has its own mind about its height."""
ENTRY = (540, 350)
ASIDE = (150, 250)
"""Points in the window: where one types, and where nothing is."""
QUESTION_LINES = 2
"""Lines that a question takes in the window."""
_TOP = 294 - 16 * QUESTION_LINES
LAST_QUESTION = (600, 290)
REPLY, REACT = (832, _TOP), (866, _TOP)
"""A question that is the newest message, and its actions while the pointer is on it."""
FIRST_FOUND_EMOJI = (544, _TOP + 134)

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_ADDRESS = "127.0.7.7"  # on the loopback interface, for the port that clients look for
_PORT = 5222
_SCRIPT = """
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/resolv.conf" /etc/resolv.conf
mount --bind "$1/certificates" /etc/ssl/certs/ca-certificates.crt
exec dbus-run-session -- sh -c '
  dino-im & while [ ! -e "$1/written" ]; do sleep 0.1; done; kill $!; wait; : > "$1/ended"
  while [ ! -e "$1/account" ]; do sleep 0.1; done
  dino-im & while [ ! -e "$1/open" ]; do sleep 0.1; done; dino-im "xmpp:$2?message"
  wait' sh "$1" "$2"
"""


class Dino:
    """Its window, on a display of its own."""

    def __init__(self, display: str, database: Path) -> None:
        self._environment = {"PATH": os.environ["PATH"], "DISPLAY": display}
        self._database = database

    def types(self, text: str, *, send: bool = True) -> None:
        """Type a text, and send it unless told otherwise."""
        self._xdotool("type", "--delay", "25", text)
        if send:
            self.press("Return")
        time.sleep(SETTLED_S)

    def press(self, *keys: str) -> None:
        """Press keys, by their names in X."""
        self._xdotool("key", "--delay", "25", *keys)

    def clicks(self, *points: tuple[int, int]) -> None:
        """Move to each point, and click on the last one."""
        for x, y in points:
            self._xdotool("mousemove", str(x), str(y))
            time.sleep(SETTLED_S)
        self._xdotool("click", "1")
        time.sleep(SETTLED_S)

    def shows(self, words: str) -> None:
        """Wait until a message has these words in it."""
        await_(lambda: self._has(words), f"no message with {words!r}")
        time.sleep(SETTLED_S)

    def picture(self, file: Path) -> None:
        """Write its window as a PNG."""
        for x, y in (LAST_QUESTION, ASIDE):  # leaves the messages, so that no actions are shown
            self._xdotool("mousemove", str(x), str(y))
            time.sleep(SETTLED_S)
        crop = ("-crop", f"{WIDTH}x{HEIGHT}+0+0", "+repage", "-strip", "-quality", "95")
        self._run("import", "-window", "root", *crop, str(file))

    def _has(self, words: str) -> bool:
        found = _rows(self._database, "SELECT 1 FROM message WHERE body LIKE ?", f"%{words}%")
        return bool(found)

    def _xdotool(self, *arguments: str) -> None:
        self._run("xdotool", *arguments)

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, env=self._environment)


@contextmanager
def dino(server: Server, contact: str, directory: Path) -> Iterator[Dino]:
    """Dino with the chat with a contact, for the time of the context."""
    home = directory / "home"
    home.mkdir()
    (directory / "hosts").write_text(f"127.0.0.1 localhost\n{_ADDRESS} {server.host}\n")
    (directory / "resolv.conf").write_text(f"nameserver {_ADDRESS}\noptions timeout:1 attempts:1\n")
    trusted = Path(_CERTIFICATES).read_text() + server.ca_file.read_text()
    (directory / "certificates").write_text(trusted)
    database = home / "data" / "dino" / "dino.db"
    with ExitStack() as stack:
        stack.enter_context(_forwarding((_ADDRESS, _PORT), (server.address, server.c2s_port)))
        display = stack.enter_context(_display())
        environment = {
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home),
            "PATH": os.environ["PATH"],
            **{
                f"XDG_{name.upper()}_HOME": f"{home}/{name}" for name in ("config", "data", "cache")
            },
            "DISPLAY": display,
            "GDK_BACKEND": "x11",
            "GSK_RENDERER": "cairo",
            "LANG": "C.UTF-8",
            "GTK_A11Y": "none",
        }
        unshare = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--mount", "-r")
        command = (*unshare, "sh", "-c", _SCRIPT, "sh", str(directory), contact)
        log = stack.enter_context((directory / "dino.log").open("w"))
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        stack.callback(_end, process)
        await_(lambda: bool(_rows(database, "SELECT 1 FROM _meta")), "Dino has no database")
        (directory / "written").touch()
        account = (server.jid("juliet"), "dino", server.accounts["juliet"], 1)
        insert = "INSERT INTO account (bare_jid, resourcepart, password, enabled) VALUES (?,?,?,?)"
        await_((directory / "ended").exists, "Dino does not end")
        with closing(sqlite3.connect(database)) as written, written:
            written.execute(insert, account)
        (directory / "account").touch()
        time.sleep(5)  # it has no way to say that it has logged in
        (directory / "open").touch()
        conversations = "SELECT 1 FROM conversation WHERE active = 1"
        await_(lambda: bool(_rows(database, conversations)), "the chat does not open")
        time.sleep(SETTLED_S)
        yield Dino(display, database)


def await_(condition: Callable[[], bool], failed: str) -> None:
    """Wait until a condition holds. Raises AssertionError if it takes too long."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, failed
        time.sleep(0.1)


def _rows(database: Path, query: str, *values: object) -> list[tuple[object, ...]]:
    """The rows of a query; none while there is no such database or table."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as read:
            return read.execute(query, values).fetchall()
    except sqlite3.OperationalError:
        return []


@contextmanager
def _display() -> Iterator[str]:
    """An X server without a screen; its name."""
    program = shutil.which("Xvfb")
    assert program is not None
    read, write = os.pipe()
    size = f"{WIDTH}x620x24"
    command = [program, "-displayfd", str(write), "-screen", "0", size]
    server = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as named:
            yield f":{named.readline().strip()}"
    finally:
        server.kill()
        server.wait()


@contextmanager
def _forwarding(at: tuple[str, int], to: tuple[str, int]) -> Iterator[None]:
    """Passes what comes to one address on to another."""
    with socket.create_server(at) as listener:
        threading.Thread(target=_accept, args=(listener, to), daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, to: tuple[str, int]) -> None:
    with suppress(OSError):
        while True:
            here, _ = listener.accept()
            there = socket.create_connection(to)
            for pair in ((here, there), (there, here)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()
