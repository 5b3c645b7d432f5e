"""Memories found by what they mean, beside the words they use: an option.

Each memory has a vector; near to that of a question are the memories that are about the same. The
vectors of one owner are compared all together, and of nobody else.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from component.storage.errors import StorageError

if TYPE_CHECKING:
    from sqlite3 import Connection

_DIMENSIONS: Final = 128
_CHARACTERS: Final = 4000  # of a text that its vector is made of
_NEAR: Final = 0.3  # the cosine from which on two texts may be about the same
_KEPT_BYTES: Final = 128 * 1024 * 1024  # of vectors in memory, of all owners together


class Embedder(Protocol):
    """Makes vectors of texts; near ones mean something alike. Called in worker threads."""

    @property
    def name(self) -> str:
        """The model: vectors of another one cannot be compared with these."""

    def passages(self, texts: Sequence[str]) -> Sequence[Any]:
        """A float32 array of length 1 for each text that is kept."""

    def question(self, text: str) -> Any:
        """A float32 array of length 1 for what is looked for."""


class LocalEmbedder:
    """WordLlama: word vectors of a language model, in a package that brings them along.

    It loads in half a second, needs no network and no GPU, and makes a vector in a fraction of a
    millisecond. It knows English best.
    """

    name = f"wordllama-l2-{_DIMENSIONS}"

    def __init__(self) -> None:
        """Load it. Raises StorageError if the `vectors` extra is missing or not whole."""
        try:
            import wordllama  # noqa: PLC0415 - an extra, and slow to import
        except ImportError as error:
            raise StorageError(
                'memory.vectors is "local", which needs the `vectors` extra. Install'
                ' xmpp-agent-component[vectors], or set memory.vectors to "off".'
            ) from error
        folder = Path(wordllama.__file__).parent
        try:
            # Its own folder as the cache: there are the files it would download otherwise.
            self._model = wordllama.WordLlama.load(
                cache_dir=folder, trunc_dim=_DIMENSIONS, disable_download=True
            )
        except (OSError, ValueError) as error:
            raise StorageError(
                f"The package wordllama lacks its model: {error}. Install the `vectors` extra"
                ' again, or set memory.vectors to "off".'
            ) from error

    def passages(self, texts: Sequence[str]) -> Sequence[Any]:
        """A vector for each text."""
        cut = [text[:_CHARACTERS] or " " for text in texts]
        vectors: Sequence[Any] = self._model.embed(cut, norm=True)
        return vectors

    def question(self, text: str) -> Any:
        """The vector of what is looked for."""
        return self.passages([text])[0]


class Near(NamedTuple):
    """A memory that may mean the same, by its number; `likeness` is 1 for the very same."""

    item: int
    likeness: float


class _Matrix(NamedTuple):
    items: Any
    vectors: Any
    last: int


class Vectors:
    """Compares vectors; those of owners that are asked for again and again stay in memory."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Matrix] = OrderedDict()
        self._lock = threading.Lock()

    def nearest(
        self, connection: "Connection", owner: int, items: int, vector: Any, most: int
    ) -> list[Near]:
        """The memories of one owner that are nearest, the nearest first; it has `items`.

        Some may be gone already: look them up.
        """
        import numpy as np  # noqa: PLC0415 - of the extra

        matrix = self._of(connection, owner, items)
        likeness = matrix.vectors @ vector
        first = np.argsort(-likeness)[:most] if len(likeness) <= most else _top(likeness, most)
        return [
            Near(int(matrix.items[at]), float(likeness[at]))
            for at in first
            if likeness[at] >= _NEAR
        ]

    def forget(self, owner: int) -> None:
        """Keep nothing of an owner."""
        with self._lock:
            self._kept.pop(owner, None)

    def _of(self, connection: "Connection", owner: int, items: int) -> _Matrix:
        import numpy as np  # noqa: PLC0415

        with self._lock:
            kept = self._kept.get(owner)
        # What is gone stays in the matrix until it is a tenth of it.
        if kept is not None and len(kept.items) > items * 1.1 + 100:
            kept = None
        after = 0 if kept is None else kept.last
        rows = connection.execute(
            "SELECT item, vector FROM vectors WHERE owner = ? AND item > ? ORDER BY item",
            (owner, after),
        ).fetchall()
        if rows or kept is None:
            new = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float16)
            numbers = np.array([row[0] for row in rows], dtype=np.int64)
            vectors = new.astype(np.float32).reshape(len(rows), -1 if rows else _DIMENSIONS)
            if kept is not None:
                numbers = np.concatenate([kept.items, numbers])
                vectors = np.concatenate([kept.vectors, vectors])
            kept = _Matrix(numbers, vectors, rows[-1][0] if rows else after)
        with self._lock:
            self._kept[owner] = kept
            self._kept.move_to_end(owner)
            while len(self._kept) > 1 and self._size() > _KEPT_BYTES:
                self._kept.popitem(last=False)
        return kept

    def _size(self) -> int:
        return sum(matrix.vectors.nbytes for matrix in self._kept.values())


def pack(vector: Any) -> bytes:
    """A vector as it is kept: two bytes a number are exact enough."""
    packed: bytes = vector.astype("float16").tobytes()
    return packed


def _top(likeness: Any, most: int) -> Any:
    import numpy as np  # noqa: PLC0415

    first = np.argpartition(-likeness, most)[:most]
    return first[np.argsort(-likeness[first])]
