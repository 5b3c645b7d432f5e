"""Starts services by forking: this process has imported what they need, which takes a second each.
Their settings have been read once, for the same reason.

`forked.py` sends it requests as packets on its standard input, a Unix socket: start a service with
these arguments, environment, directory and streams; wait until a service has ended, or has stopped.
Each is answered with a number. The process ends when the other end of the socket is closed.
"""

import gc
import json
import os
import socket
import sqlite3  # noqa: F401
import sys
from importlib import import_module
from pathlib import Path

import anyio._backends._asyncio
import anyio._backends._trio  # noqa: F401
import psycopg  # noqa: F401
import pydantic_settings  # noqa: F401

import component.app.process
import component.app.service
import component.journal
import component.logs
import component.models
import component.store.postgres  # noqa: F401
from component.app.features import FEATURES, make_settings
from component.cli.main import main

PACKET_BYTES = 150_000


def prepare() -> None:
    """Load and make what every service has."""
    for feature in FEATURES:
        import_module(f"component.features.{feature}.feature")
    # pydantic builds the validator of each section when it is used for the first time.
    make_settings(server={"component_domain": "agent.localhost", "component_secret": "secret"})
    # Nothing of it is garbage; to visit it would copy all its pages to each fork.
    gc.collect()
    gc.freeze()
    gc.unfreeze = lambda: None


def serve(orders: socket.socket) -> bool:
    """Answer requests. Return True in a new process, which has a service to run."""
    assert len(list(Path("/proc/self/task").iterdir())) == 1, (
        "a thread would be missing from each fork"
    )
    while True:
        packet, streams, _, _ = socket.recv_fds(orders, PACKET_BYTES, 2)
        if not packet:
            return False
        order = json.loads(packet)
        if "words" in order:
            done = os.fork()
            if done == 0:
                become(order, orders, streams)
                return True
            for stream in streams:
                os.close(stream)
        elif "stops" in order:
            os.waitid(os.P_PID, order["stops"], os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            done = 0
        else:
            done = os.waitstatus_to_exitcode(os.waitpid(order["ends"], 0)[1])
        orders.send(json.dumps(done).encode())


def become(order: dict[str, object], orders: socket.socket, streams: list[int]) -> None:
    """Be like a program that was just started."""
    os.setsid()
    orders.detach()
    for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), *streams)):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(str(order["directory"]))
    os.environ.clear()
    os.environ.update(order["environment"])  # type: ignore[call-overload]
    sys.argv[:] = order["words"]  # type: ignore[call-overload]
    sys.path.insert(0, str(Path(sys.executable).parent))


if __name__ == "__main__":
    prepare()
    if serve(socket.socket(fileno=0)):
        sys.exit(main())
