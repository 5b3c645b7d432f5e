"""The process in which a local model runs: a script of its own, which imports nothing of the rest.

It is one because loading holds up everything else in a process (the bindings keep the interpreter
lock, for a second or for minutes), because llama.cpp ends its process when it meets something that
it did not expect, and because the memory comes back for certain.

It speaks lines of JSON, on pipes. It is told once what to load:
    {"path": …, "context_tokens": …, "threads": …, "chatter": bool}
and says {"ready": true} or {"refused": why}. Then it is asked, one at a time:
    {"ask": number, "body": a request of chat completions, "most": tokens of the answer}
    {"stop": number}
and says {"id": number, "text": piece}, as often as it takes, and {"id": number, "end": {…}} once.
It ends with its standard input, so with whoever started it.
"""

import importlib
import json
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
from typing import Any

_LOUD, _ERRORS = 3, 1  # how much llama.cpp says: the levels of its --verbosity
# How long a thread waits awake for the others. With the default, 300 times as much, two threads on
# two cores that others use as well make 3 tokens a second instead of 20.
_SPINS = "1000"
_BATCH = 128  # tokens of a prompt between two looks at whether to stop: about a second on two cores
_REMEMBERED_MIB = 128  # memory for what was understood of the prompts of other conversations


def main() -> None:
    """Load, and answer until standard input ends."""
    # A terminal and a service manager signal all processes; this one goes when its parent goes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    # What llama.cpp prints shall not get among the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def say(**said: Any) -> None:
        answers.write(json.dumps(said).encode() + b"\n")

    config = json.loads(sys.stdin.buffer.readline())
    try:
        server = load(config)
    except Exception as error:  # noqa: BLE001 whatever it is, the other side is told
        say(refused=str(error))
        return
    say(ready=True)
    asked = _Asked()
    threading.Thread(target=asked.read, daemon=True).start()
    while True:
        answer(server, asked, asked.queue.get(), config["context_tokens"], say)


def load(config: dict[str, Any]) -> Any:
    """Load the model. Raises RuntimeError: llama.cpp does not; why is on stderr."""
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = config["path"]
    params.n_ctx = config["context_tokens"]
    params.fit_params = False  # it would take a smaller context when memory is short
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config["threads"]
    params.n_batch = params.n_ubatch = _BATCH
    params.cache_ram_mib = _REMEMBERED_MIB
    params.verbosity = _LOUD if config["chatter"] else _ERRORS
    params.n_threads_http = 1
    # The bindings always listen for HTTP. Here that is a socket that nobody can name any more.
    folder = tempfile.mkdtemp()
    try:
        params.hostnames = [f"{folder}/unused.sock"]
        return llama.Server(params)
    finally:
        shutil.rmtree(folder)


class _Asked:
    """What standard input says: what to answer, and up to which number to stop."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.stopped = 0

    def read(self) -> None:
        for line in sys.stdin.buffer:
            said = json.loads(line)
            if "stop" in said:
                self.stopped = said["stop"]
            else:
                self.queue.put(said)
        os._exit(0)  # the other side is gone, and nothing here is worth keeping


def answer(server: Any, asked: _Asked, ask: dict[str, Any], context: int, say: Any) -> None:
    """Answer one request; `end` has `finish` and `usage`, or `over`, or `error`."""
    number, most = ask["ask"], ask["most"]
    end: dict[str, Any] = {}
    calls: dict[int, dict[str, str]] = {}

    def take(chunk: dict[str, Any]) -> bool:
        """Take a piece of the answer; true stops it."""
        if asked.stopped >= number:
            return True
        if error := chunk.get("error") or ("code" in chunk and chunk):
            if error.get("type") == "exceed_context_size_error":
                end["over"] = error["n_prompt_tokens"]
            else:
                end["error"] = str(error.get("message"))
            return True
        if progress := chunk.get("prompt_progress"):
            if progress["total"] + most > context:
                end["over"] = progress["total"]
                return True
            return False
        if usage := chunk.get("usage"):
            end["usage"] = usage
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if text := delta.get("content"):
                say(id=number, text=text)
            for piece in delta.get("tool_calls") or ():
                _join(calls.setdefault(piece["index"], {}), piece)
            if finish := choice.get("finish_reason"):
                end["finish"] = finish
        return False

    try:
        server.handle_chat_completions(ask["body"], take)
    except Exception as error:  # noqa: BLE001 a request that it does not take is no end of it
        end["error"] = str(error)
    if calls:
        end["calls"] = [calls[index] for index in sorted(calls)]
    say(id=number, end=end)


def _join(call: dict[str, str], piece: dict[str, Any]) -> None:
    """Add a piece of a call to what there is of it."""
    function = piece.get("function") or {}
    call["id"] = piece.get("id") or call.get("id", "")
    for key in ("name", "arguments"):
        call[key] = call.get(key, "") + (function.get(key) or "")


if __name__ == "__main__":
    main()
