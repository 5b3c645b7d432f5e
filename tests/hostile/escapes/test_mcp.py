"""Hostile MCP servers: each is bounded, named in the log, and leaves other servers alone."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from structlog.testing import capture_logs

from component.features.mcp import guard, stdio
from component.features.mcp import serving as mcp_serving
from component.features.mcp.settings import McpServer
from component.skills import InvalidParam, SkillUnavailable
from component.skills.spec import Annotations
from tests.component.features.mcp.serving import (
    Answering,
    Served,
    context_of,
    scripted,
    serving,
)

pytestmark = pytest.mark.anyio

Among: TypeAlias = tuple[Served, list[Any]]
"""What is served, and the log."""


@asynccontextmanager
async def beside(*, bad: McpServer) -> AsyncIterator[Among]:
    """Run the hostile server `bad` beside an honest one, which must work afterwards too."""
    with capture_logs() as logs:
        async with serving(bad=bad, good=scripted(shared=True)) as served:
            await served.until(lambda: "good.echo" in served.registry.names())
            assert await served.text("good.echo", "before") == "before"
            yield served, logs
            assert await served.text("good.echo", "after") == "after"


@pytest.fixture(scope="module")
async def crowd(anyio_backend: str) -> AsyncIterator[Among]:
    """Servers that are hostile in what they say, and end nothing by it, beside an honest one."""
    settings: dict[str, Any] = {"liar": {"read_only": ["echo"]}, "twisted": {"timeout_s": 5}}
    words = ("greeting", "liar", "hidden", "schemas", "names", "twisted")
    servers = {word: scripted(word, shared=True, **settings.get(word, {})) for word in words}
    servers["good"] = scripted(shared=True)
    with capture_logs() as logs:
        async with serving(**servers) as served:
            await served.until(lambda: servers.keys() == sources_of(served))
            yield served, logs


def sources_of(served: Served) -> set[str]:
    """Return the servers whose tools are offered."""
    return {name.partition(".")[0] for name in served.registry.names()}


@pytest.fixture
async def among(crowd: Among) -> AsyncIterator[Among]:
    """The crowd, of which the honest server works before a test and after it."""
    served, _ = crowd
    assert await served.text("good.echo", "before") == "before"
    yield crowd
    assert await served.text("good.echo", "after") == "after"


def named(logs: list[Any], words: str, server: str = "bad") -> bool:
    """Return whether the log says these words about a server."""
    return any(
        log.get("server") == server and words in f"{log['event']} {log.get('reason', '')}"
        for log in logs
    )


async def until(condition: Any) -> None:
    """Wait until something is in the log, which has no event to wait for."""
    with anyio.fail_after(120):
        while True:
            if condition():
                return
            await anyio.sleep(0.01)


async def test_a_server_that_never_answers_initialize() -> None:
    async with beside(bad=scripted("mute", start_timeout_s=0.5)) as (served, logs):
        await until(lambda: named(logs, "does not answer within 0.5 seconds"))
        assert "bad.echo" not in served.registry.names()


async def test_a_server_that_greets_on_its_standard_output_still_works(among: Among) -> None:
    served, logs = among
    assert await served.text("greeting.echo", "x") == "x"
    assert named(logs, "writes lines that are not messages", "greeting")


async def test_a_server_that_writes_garbage_for_ever() -> None:
    async with beside(bad=scripted("babbling")) as (_, logs):
        await until(lambda: named(logs, "is not available it writes lines that are not messages"))


@pytest.mark.parametrize(
    "word",
    [
        "flood",
        pytest.param("progressing", marks=pytest.mark.thorough),
        pytest.param("requests", marks=pytest.mark.thorough),
    ],
)
async def test_a_server_that_floods_is_ended(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_FLOOD_S", 0.5)
    async with beside(bad=scripted(word)) as (served, logs):
        await until(lambda: named(logs, "sends too many messages"))
        assert await served.text("good.echo", "during") == "during"
        await until(lambda: named(logs, "it sent too many messages for 0.5 seconds"))


@pytest.mark.thorough
async def test_a_flood_does_not_slow_the_calls_of_others() -> None:
    async with beside(bad=scripted("honest")) as (served, _):
        quiet = await _median(served)
    async with beside(bad=scripted("flood")) as (served, logs):
        await until(lambda: named(logs, "sends too many messages"))
        assert await _median(served) < 2 * quiet + 0.05  # the flooding process takes a core


async def _median(served: Served) -> float:
    taken = []
    for _ in range(21):
        began = time.perf_counter()
        await served.text("good.echo")
        taken.append(time.perf_counter() - began)
    return sorted(taken)[10]


async def test_a_server_that_changes_its_list_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_serving, "_FIRST_S", 0.001)
    monkeypatch.setattr(mcp_serving, "_LONGEST_S", 0.05)
    async with beside(bad=scripted("changing")) as (served, logs):
        await until(lambda: named(logs, "changes its tools all the time"))
        assert len([name for name in served.registry.names() if name.startswith("bad.")]) == 2


async def test_a_list_without_an_end() -> None:
    async with beside(bad=scripted("endless")) as (served, logs):
        await until(lambda: named(logs, "lists too many tools"))
        await served.until(lambda: len(served.registry) > 100)
        assert len([name for name in served.registry.names() if name.startswith("bad.")]) == 500


async def test_a_message_without_an_end() -> None:
    bad = scripted("twisted", max_message_bytes=100_000)
    async with beside(bad=bad) as (served, logs):
        with pytest.raises(SkillUnavailable, match="more than 100000 bytes") as caught:
            await served.call("bad.echo", {"text": "huge"})
        assert caught.value.begun
        await until(lambda: named(logs, "it sent a message of more than 100000 bytes"))


async def test_a_message_of_many_values() -> None:
    async with beside(bad=scripted("twisted")) as (served, _):
        with pytest.raises(SkillUnavailable, match="more than 100000 values"):
            await served.call("bad.echo", {"text": "many values"})


async def test_malformed_messages_are_ignored(among: Among) -> None:
    served, _ = among
    answers = {
        "other": "yours",
        "twice": "first",
        "list": "after a batch",
        "nested": "after a nest",
    }
    for text, answer in answers.items():
        assert await served.text("twisted.echo", text) == answer


async def test_malformed_results_fail_the_call_only(among: Among) -> None:
    served, _ = among
    for text in ("shapeless", "numbers"):
        with pytest.raises(SkillUnavailable) as caught:
            await served.call("twisted.echo", {"text": text})
        assert caught.value.begun
        assert await served.text("twisted.echo", "other") == "yours"


async def test_a_server_that_lies_about_its_annotations(among: Among) -> None:
    served, logs = among
    assert served.skill("liar.wipe").annotations == Annotations()
    # The settings say read_only, but not even the server does.
    assert served.skill("liar.echo").annotations == Annotations()
    assert named(logs, "says that it is not", "liar")


async def test_instructions_hidden_in_descriptions(among: Among) -> None:
    served, _ = among
    skill = served.skill("hidden.echo")
    assert skill.description.startswith("Echo.[2Jxxx")
    assert len(skill.description) == 4000
    assert skill.input_schema["properties"]["text"]["description"] == "ab"


async def test_schemas_that_lie_or_take_for_ever(among: Among) -> None:
    served, logs = among
    names = [name for name in served.registry.names() if name.startswith("schemas.")]
    assert names == ["schemas.good", "schemas.pattern"]
    mine = [log for log in logs if log.get("server") == "schemas"]
    left_out = {log["tool"] for log in mine if log["event"].endswith("left out")}
    expected = {
        "elsewhere",
        "file",
        "large",
        "deep",
        "nothing",
        "wrong",
        "doubling",
        "recursive",
    }
    assert left_out == expected
    # A pattern that tries all ways would take longer than anybody waits.
    await served.call("schemas.pattern", {"a": "a" * 50_000})
    with pytest.raises(InvalidParam):
        await served.call("schemas.pattern", {"a": "a" * 50_000 + "!"})


async def test_names_that_no_skill_can_have(among: Among) -> None:
    served, _ = among
    names = {name for name in served.registry.names() if name.startswith("names.")}
    assert names == {"names.a_b_c", "names.a_b_c_2", "names.x", "names._", "names.ok"}


async def test_a_tool_cannot_take_the_name_of_another_skill() -> None:
    with capture_logs() as logs:
        async with serving(a=scripted(prefix="s"), b=scripted("honest", prefix="s")) as served:
            await served.until(lambda: "s.pid" in served.registry.names())
            await until(lambda: any("is not offered" in log["event"] for log in logs))
            assert served.skill("s.echo").source in ("the MCP server a", "the MCP server b")


async def test_what_a_confined_server_cannot_do(tmp_path: Path) -> None:
    secret = tmp_path / "agent.env"
    secret.write_text("AGENT_SECRET=do not tell")
    readable = tmp_path / "readable"
    readable.mkdir()
    link = readable / "link"
    link.symlink_to(secret)
    deeds = (
        *("read /etc/passwd", "read /proc/1/environ", f"read {secret}", f"read {link}"),
        *(f"write {secret}", "connect 127.0.0.1", "start /bin/true", f"kill {os.getpid()}"),
    )
    async with beside(bad=scripted(readable=[readable])) as (served, _):
        for deed in deeds:
            error = (await served.text("bad.do", deed)).split()[1]
            # The last one is a file system to read.
            assert error in ("PermissionError", "FileNotFoundError", "OSError"), deed
    assert secret.read_text() == "AGENT_SECRET=do not tell"


async def test_a_server_that_fills_the_memory() -> None:
    bad = scripted(memory_bytes=100_000_000, shared=True)
    async with beside(bad=bad) as (served, _):
        try:
            assert (await served.text("bad.do", "hoard")).startswith("refused: MemoryError")
        except SkillUnavailable as error:
            assert error.begun  # noqa: PT017 - either of the two is a limit that holds


async def test_a_server_that_dies_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_serving.Backoff, "FIRST_S", 0.01)
    async with beside(bad=scripted()) as (served, logs):
        for _ in range(2):
            error = await served.failure("bad.die", "SIGKILL")
            assert error.begun
        assert named(logs, "the connection of a person to an MCP server has ended")


async def test_processes_that_a_server_leaves_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "_GRACE_S", 0.2)
    children = tmp_path / "children"
    async with beside(
        bad=scripted("forking", "stubborn", str(children), processes=True, writable=[tmp_path])
    ) as (served, _):
        assert await served.text("bad.echo", "x") == "x"
    for pid in children.read_text().split():
        await until(lambda pid=pid: not _runs(int(pid)))


async def test_a_server_that_ignores_that_it_shall_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_GRACE_S", 0.2)
    async with serving(bad=scripted("stubborn", shared=True)) as served:
        pid = int(await served.text("bad.pid"))
    await until(lambda: not _runs(pid))


async def test_error_output_without_an_end() -> None:
    async with beside(bad=scripted("complaining", shared=True)) as (served, _):
        assert await served.text("bad.echo", "x") == "x"


async def test_questions_without_an_end() -> None:
    host = Answering(lambda _schema: {})
    async with beside(bad=scripted(timeout_s=1)) as (served, _):
        with pytest.raises(SkillUnavailable):
            await served.call("bad.nag", context=context_of("bad.nag", host=host))
    assert len(host.asked) <= 16


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
