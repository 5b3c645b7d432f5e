"""The process in which llama.cpp runs: a script of its own, which imports nothing of the rest.

It loads a model, serves it over HTTP on a Unix socket, writes one byte to standard output when it
is ready, and exits when standard input is closed, so with the process that started it. Its argument
is a JSON object:

    {"model": path, "context_tokens": …, "cache_mib": …, "threads": …, "verbose": bool,
     "socket": path}

It is a process because loading blocks everything else in one (the bindings hold the GIL, for a
second or for minutes), because llama.cpp aborts its process on some unexpected input, and because
only the end of a process reliably frees the memory.
"""

import importlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

_INFO, _ERRORS = 3, 1  # levels of llama.cpp's --verbosity
# How long a thread of OpenMP waits actively for the others. With the default, 300 times as much,
# two threads on two cores that others use as well produce 3 tokens a second instead of 20.
_SPINS = "1000"
# Tokens of a prompt that are read at once. A cancelled request stops between two batches, which
# take the small model about a second on two cores.
_BATCH = 128
# Each connection occupies a thread: the answer, one that was cancelled just before, and `/slots`.
_HTTP_THREADS = 4


def main() -> None:
    """Load the model, and serve it until standard input is closed."""
    # A terminal and a service manager signal all processes; this one ends with its parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    config = json.loads(sys.argv[1])
    # What llama.cpp prints goes to standard error, which is a file.
    ready = os.dup(1)
    os.dup2(2, 1)
    server = load_model(config)
    os.write(ready, b"\n")
    sys.stdin.buffer.read()
    shutil.rmtree(Path(config["socket"]).parent, ignore_errors=True)
    del server
    os._exit(0)


def load_model(config: dict[str, Any]) -> Any:
    """Load the model and listen. Raises RuntimeError; the reason is on standard error."""
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.hostnames = [config["socket"]]
    params.n_threads_http = _HTTP_THREADS
    params.ui = False
    params.model.path = config["model"]
    params.n_ctx = config["context_tokens"]
    params.fit_params = False  # it would take a smaller context when memory is short
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config["threads"]
    params.n_batch = params.n_ubatch = _BATCH
    params.cache_ram_mib = config["cache_mib"]
    params.verbosity = _INFO if config["verbose"] else _ERRORS
    return llama.Server(params)


if __name__ == "__main__":
    main()
