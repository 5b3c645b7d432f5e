"""Servers that nobody here wrote: time, git, filesystem, everything and memory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from component.features.mcp.settings import McpServer
from component.skills import SkillUnavailable
from component.skills.outputs import File, Output
from component.skills.spec import Annotations
from tests.component.features.mcp.serving import BOB, Answering, context_of, serving
from tests.servers.mcp_servers import node_server, python_server
from tests.servers.node import node_environment

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _programs_find_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", node_environment()["PATH"])


def of_node(name: str, *arguments: str, **settings: Any) -> McpServer:
    return McpServer(command=(node_server(name), *arguments), **settings)


def texts(result: Any) -> str:
    return "\n".join(part.text for part in result.outputs if isinstance(part, Output))


@pytest.mark.thorough
async def test_the_time_server_converts_times() -> None:
    entry = McpServer(command=(python_server("time"),), trusted_annotations=True)
    async with serving(time=entry) as served:
        await served.until(lambda: "time.convert_time" in served.registry.names())
        assert served.skill("time.convert_time").annotations.read_only
        params = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        found = json.loads(texts(await served.call("time.convert_time", params)))
        assert found["target"]["datetime"].endswith("21:00:00+09:00")
        made = await served.call("time.get_current_time", {"timezone": "Mars"})
        assert made.is_error
        assert "Mars" in texts(made)


@pytest.mark.thorough
async def test_the_git_server_reads_a_repository(tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@a.example")
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "A first commit"]):
        await anyio.run_process([*git, *command])
    entry = McpServer(
        command=(python_server("git"), "--repository", str(tmp_path)),
        processes=True,
        writable=[tmp_path],
    )
    async with serving(git=entry) as served:
        await served.until(lambda: "git.git_log" in served.registry.names())
        assert "A first commit" in texts(
            await served.call("git.git_log", {"repo_path": str(tmp_path)})
        )
        assert served.skill("git.git_reset").annotations == Annotations()


async def test_the_filesystem_server_reads_and_writes_what_it_may(tmp_path: Path) -> None:
    entry = of_node(
        "filesystem", str(tmp_path), read_only=["read_*", "list_*"], writable=[tmp_path]
    )
    async with serving(fs=entry) as served:
        await served.until(lambda: "fs.write_file" in served.registry.names())
        assert served.skill("fs.read_text_file").annotations.read_only
        assert served.skill("fs.write_file").annotations.destructive
        path = str(tmp_path / "a.txt")
        await served.call("fs.write_file", {"path": path, "content": "Hello."})
        assert await anyio.Path(path).read_text() == "Hello."
        assert "Hello." in texts(await served.call("fs.read_text_file", {"path": path}))
        made = await served.call("fs.read_text_file", {"path": "/etc/passwd"})
        assert made.is_error
        assert "root:" not in texts(made)


@pytest.mark.thorough
async def test_the_memory_server_remembers(tmp_path: Path) -> None:
    entry = of_node(
        "memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}, writable=[tmp_path]
    )
    async with serving(memory=entry) as served:
        await served.until(lambda: "memory.read_graph" in served.registry.names())
        tea = [{"name": "tea", "entityType": "drink", "observations": ["Ann likes it."]}]
        await served.call("memory.create_entities", {"entities": json.dumps(tea)})
        assert "Ann likes it." in texts(await served.call("memory.read_graph"))


class TestEverything:
    async def test_results_progress_and_questions_arrive(self) -> None:
        host = Answering(lambda _: {"name": "Ann"})
        asks, works = "all.trigger-elicitation-request", "all.trigger-long-running-operation"
        async with serving(all=of_node("everything", shared=True)) as served:
            await served.until(lambda: {asks, works} <= set(served.registry.names()))
            assert "is 3." in texts(await served.call("all.get-sum", {"a": "1", "b": "2"}))
            image = await served.call("all.get-tiny-image")
            (file,) = [part for part in image.outputs if isinstance(part, File)]
            assert file.media_type == "image/png"
            assert file.data.startswith(b"\x89PNG")
            weather = await served.call("all.get-structured-content", {"location": "New York"})
            assert json.loads(texts(weather))["temperature"]
            await served.call("all.get-resource-links")
            await served.call("all.get-resource-reference")
            assert "AGENT" not in texts(await served.call("all.get-env"))

            steps = {"duration": "0.3", "steps": "3"}
            await served.call(works, steps, context=context_of(works, host=host))
            assert [part for part, _ in host.progressed][-1] == pytest.approx(1, abs=0.34)

            made = await served.call(asks, context=context_of(asks, host=host))
            assert "Ann" in texts(made)

    @pytest.fixture
    def web(self) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        with _web() as found:
            yield found

    # The HTTP client of the SDK leaves generators unfinished on trio when it is cancelled.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    async def test_a_server_over_http_answers_until_it_is_killed(
        self, web: tuple[str, subprocess.Popen[bytes]]
    ) -> None:
        url, process = web
        async with serving(web=McpServer(url=url)) as served:
            with anyio.fail_after(120):
                await served.until(lambda: "web.echo" in served.registry.names())
            made = await served.call("web.echo", {"message": "hello"}, who=BOB)
            assert "hello" in texts(made)
            assert "is 3." in texts(await served.call("web.get-sum", {"a": "1", "b": "2"}))
            process.kill()
            process.wait()
            with pytest.raises(SkillUnavailable):
                await served.call("web.echo", {"message": "hello"})
            assert "web.echo" in served.registry.names()


@contextmanager
def _web() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [node_server("everything"), "streamableHttp"]
    environment = {**os.environ, "PORT": str(port)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if b"istening" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
