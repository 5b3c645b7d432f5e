"""What the scanner finds: looked for once in a text, beside the event loop if it is long."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from anyio import to_thread

from component.agent.protocol import Scanner

_KEPT: Final = 4096
_SHORT: Final = 1024
"""Characters of a text that takes less time than the way to a thread and back."""


class Suspicion:
    """A scanner that remembers what it has found.

    Args:
        scanner: looks at texts.
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._found: OrderedDict[bytes, str | None] = OrderedDict()

    def scan(self, text: str) -> str | None:
        """What is suspicious about a text, in a few words, or None. Never waits."""
        key = _key(text)
        if key not in self._found:
            self._keep(key, self._scanner.scan(text))
        self._found.move_to_end(key)
        return self._found[key]

    async def look(self, texts: Iterable[str]) -> None:
        """Look at those long texts that were not seen yet, so that `scan` knows them."""
        new = {key: text for text in texts if len(text) > _SHORT and (key := _key(text))}
        new = {key: text for key, text in new.items() if key not in self._found}
        if not new:
            return
        found = await to_thread.run_sync(
            lambda: [self._scanner.scan(text) for text in new.values()]
        )
        for key, finding in zip(new, found, strict=True):
            self._keep(key, finding)

    def _keep(self, key: bytes, finding: str | None) -> None:
        self._found[key] = finding
        if len(self._found) > _KEPT:
            self._found.popitem(last=False)


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
