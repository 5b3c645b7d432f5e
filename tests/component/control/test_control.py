"""The control socket: who may use it, what it takes, what it leaves behind."""

import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
import pytest
from anyio import to_thread

from component.commands import (
    Asking,
    CommandError,
    CommandResult,
    Commands,
    NoParams,
    Outline,
)
from component.control.client import (
    MAX_REQUEST_BYTES,
    ControlAnswer,
    ControlError,
    ControlRequest,
    ask,
)
from component.control.server import ControlServer, may_control
from component.store import StorageError

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(description="Whom.")]


class Greeted(msgspec.Struct, frozen=True):
    name: str
    by_operator: bool


async def greet(asking: Asking, params: Greeting) -> CommandResult:
    match params.name:
        case "nobody":
            raise CommandError("There is nobody.", "name")
        case "disk":
            raise StorageError("The disk is full.")
        case "bug":
            raise RuntimeError("a secret")
        case "slow":
            await anyio.sleep_forever()
        case "much":
            return CommandResult("x" * 3_000_000)
    return CommandResult(f"Hello, {params.name}.", Greeted(params.name, asking.principal is None))


async def ping(_asking: Asking, _params: NoParams) -> CommandResult:
    return CommandResult("pong")


COMMANDS = Commands(
    [
        Outline(name="greet", title="Greet", about="greet", params=Greeting, who="admin").done_by(
            greet
        ),
        Outline(name="ping", title="Ping", about="ping", params=NoParams).done_by(ping),
    ]
)


@asynccontextmanager
async def serving(directory: Path, **options: Any) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(ControlServer(directory, COMMANDS, **options).run)
        yield
        tasks.cancel_scope.cancel()


async def asked(directory: Path, command: str, params: bytes = b"{}") -> ControlAnswer | None:
    request = ControlRequest(command, msgspec.Raw(params))
    return await to_thread.run_sync(ask, directory, request)


async def lines(directory: Path, *sent: bytes) -> list[bytes]:
    """What is answered to bytes, until the other end closes."""

    def talk() -> list[bytes]:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(120)
            client.connect(str(directory / "control.sock"))
            try:
                for each in sent:
                    client.sendall(each)
                client.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, OSError):
                pass  # it was closed on us, and what it said first is there to read
            received = b""
            try:
                while chunk := client.recv(65_536):
                    received += chunk
            except ConnectionResetError:
                pass
            return received.splitlines()

    return await to_thread.run_sync(talk)


async def test_a_command_is_run_for_the_operator(tmp_path: Path) -> None:
    async with serving(tmp_path):
        answer = await asked(tmp_path, "greet", b'{"name": "Eve"}')
        assert answer is not None
        assert answer.text == "Hello, Eve."
        assert msgspec.json.decode(answer.value, type=Greeted) == Greeted("Eve", True)
        assert await asked(tmp_path, "ping") == ControlAnswer("pong")


async def test_what_is_refused_comes_as_a_sentence(tmp_path: Path) -> None:
    async with serving(tmp_path):
        for params, error, param in (
            (b'{"name": "nobody"}', "There is nobody.", "name"),
            (b"{}", "name: is required.", "name"),
            (b'{"nam": "x"}', "nam: no such parameter.", "nam"),
            (b'{"name": "disk"}', "The disk is full.", None),
        ):
            answer = await asked(tmp_path, "greet", params)
            assert answer is not None
            assert (answer.error, answer.param) == (error, param)
        unknown = await asked(tmp_path, "nosuch")
        assert unknown is not None
        assert unknown.unknown
        assert unknown.error is not None
        assert "has no command 'nosuch'" in unknown.error
        assert "[llm]" in unknown.error


async def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async with serving(tmp_path, command_s=0.2):
        answer = await asked(tmp_path, "greet", b'{"name": "slow"}')
        assert answer is not None
        assert answer.error == "The command exceeded its time limit."


async def test_a_fault_of_a_command_neither_ends_the_service_nor_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path):
        answer = await asked(tmp_path, "greet", b'{"name": "bug"}')
        assert answer is not None
        assert answer.error == "The command failed because of an internal error; see the log."
        assert await asked(tmp_path, "ping") == ControlAnswer("pong")


async def test_long_answers_come_whole(tmp_path: Path) -> None:
    async with serving(tmp_path):
        answer = await asked(tmp_path, "greet", b'{"name": "much"}')
        assert answer is not None
        assert len(answer.text) == 3_000_000


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"null", b'{"command": 1}', b"{", b"\xff\xfe", b"[" * 10_000],
)
async def test_what_is_no_request_is_answered_and_the_next_one_served(
    tmp_path: Path, line: bytes
) -> None:
    async with serving(tmp_path):
        first, second = await lines(tmp_path, line + b"\n", b'{"command":"ping"}\n')
        assert b"The request cannot be read" in first
        assert msgspec.json.decode(second, type=ControlAnswer).text == "pong"


async def test_a_request_without_an_end_is_cut_off(tmp_path: Path) -> None:
    async with serving(tmp_path):
        (only,) = await lines(tmp_path, b"x" * (MAX_REQUEST_BYTES + 1))
        assert b"at most 65536 bytes" in only
        assert await lines(tmp_path, b'{"command":"ping"') == []


async def test_who_says_nothing_is_let_go(tmp_path: Path) -> None:
    async with serving(tmp_path, idle_s=0.05):

        def wait() -> bytes:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(120)
                client.connect(str(tmp_path / "control.sock"))
                return client.recv(1)

        assert await to_thread.run_sync(wait) == b""


async def test_others_are_turned_away(tmp_path: Path) -> None:
    seen: list[int] = []

    def nobody(uid: int) -> bool:
        seen.append(uid)
        return False

    async with serving(tmp_path, may_connect=nobody):
        with pytest.raises(ControlError, match=r"only the\s+user it runs as"):
            await asked(tmp_path, "ping")
    assert seen == [os.getuid()]


def test_the_user_of_the_service_and_root_may() -> None:
    assert may_control(os.geteuid())
    assert may_control(0)
    assert not may_control(os.geteuid() + 1)


async def test_more_clients_than_there_may_be(tmp_path: Path) -> None:
    async with serving(tmp_path):
        held: list[socket.socket] = []
        try:

            def hold() -> bytes:
                client = socket.socket(socket.AF_UNIX)
                held.append(client)
                client.settimeout(120)
                client.connect(str(tmp_path / "control.sock"))
                client.sendall(b'{"command":"ping"}\n')
                return client.recv(1000)

            for _ in range(8):
                assert b"pong" in await to_thread.run_sync(hold)
            refused = await asked(tmp_path, "ping")
            assert refused is not None
            assert refused.error == "Too many clients. Try again later."
        finally:
            for client in held:
                client.close()


async def test_one_after_another_there_may_be_any_number(tmp_path: Path) -> None:
    async with serving(tmp_path):
        for _ in range(20):
            assert await asked(tmp_path, "ping") == ControlAnswer("pong")


async def test_the_socket_is_for_its_owner_and_goes_with_the_service(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with serving(tmp_path):
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert not path.exists()
    assert await asked(tmp_path, "ping") is None
    assert await asked(tmp_path / "nosuch", "ping") is None


async def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control.sock"))
    assert await asked(tmp_path, "ping") is None  # nobody listens there
    async with serving(tmp_path):
        assert await asked(tmp_path, "ping") == ControlAnswer("pong")


async def test_what_is_no_socket_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "control.sock").write_text("precious")
    with pytest.raises(ControlError, match=r"The control socket in .* cannot be made"):
        await ControlServer(tmp_path, COMMANDS).run()
    assert (tmp_path / "control.sock").read_text() == "precious"


async def test_a_path_longer_than_an_address(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120) / ("é" * 60)
    directory.mkdir(parents=True)
    async with serving(directory):
        assert (directory / "control.sock").is_socket()
        assert await asked(directory, "ping") == ControlAnswer("pong")
    assert not (directory / "control.sock").exists()
