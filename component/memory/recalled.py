"""A memory in the form that turns get."""

import hashlib

import msgspec

from component.policy.taint import Taint


class Recalled(msgspec.Struct, frozen=True):
    """A memory that matches a message. A higher `score` is a better match."""

    key: str
    title: str
    body: str
    topic: str = ""
    score: float = 0.0
    taint: Taint | None = None

    @property
    def text(self) -> str:
        """The title and the body."""
        return "\n".join(part for part in (self.title, self.body) if part)

    @property
    def digest(self) -> str:
        """A digest of the text, which detects changes."""
        data = self.text.encode(errors="surrogatepass")
        return hashlib.blake2b(data, digest_size=8).hexdigest()
