"""What agents say, as messages: the voice of the conversations."""

from collections.abc import Callable, Iterator
from typing import Final

from component.agent.protocol import Incoming, Reply
from component.handlers.outgoing import Out
from xep.binding.escaping import without_forbidden
from xep.chat_states import Active, ChatState, Composing, Paused
from xep.stanza import Message

_ENVELOPE_BYTES: Final = 4096
"""What a message takes beside its body."""
_GROWTH: Final = 6
"""Bytes that one byte of a body can become in XML, as `&quot;` does."""


class Speech:
    """Implements `component.agent.protocol.Voice`; see there for what its methods do.

    Args:
        out: takes stanzas.
        connected: whether there is a stream.
        max_stanza_bytes: the largest stanza to send; a longer answer is several messages.
    """

    def __init__(self, out: Out, connected: Callable[[], bool], max_stanza_bytes: int) -> None:
        self._out = out
        self._connected = connected
        self._body_bytes = max((max_stanza_bytes - _ENVELOPE_BYTES) // _GROWTH, 512)

    def say(self, reply: Reply) -> bool:
        """Send an answer to where the message came from (RFC 6121 §5.1), in its thread."""
        if not self._connected():
            return False
        text = without_forbidden(reply.body)
        for number, part in enumerate(parts(text, self._body_bytes)):
            identifier = reply.id if number == 0 else f"{reply.id}-{number + 1}"
            self._out.put(_message(reply.to, Active(), identifier, part).encode())
        return True

    def composing(self, to: Incoming, on: bool) -> None:
        """Show a client that shows such things itself that an answer is written (XEP-0085 §5.1).

        Others would get an empty message, which servers keep for who is away.
        """
        if to.chat_states and self._connected():
            self._out.put(_message(to, Composing() if on else Paused()).encode())

    def waits(self) -> bool:
        """Whether the server has not taken everything."""
        return self._out.waits

    async def sent(self) -> None:
        """Wait until it has taken what was said so far."""
        await self._out.flushed()


def _message(
    to: Incoming, state: ChatState, identifier: str | None = None, body: str | None = None
) -> Message:
    return Message(
        type=to.type,
        id=identifier,
        from_=to.target,
        to=to.requester,
        body=body,
        thread=to.thread,
        payloads=(state,) if to.chat_states else (),
    )


def parts(text: str, most_bytes: int) -> Iterator[str]:
    """Cut a text so that no part has more bytes of UTF-8, between lines or words if it can be.

    The parts together are the text, but for the white space at the cuts. Nothing of nothing.
    """
    rest = text
    while len(rest.encode()) > most_bytes:
        fits = len(rest.encode()[:most_bytes].decode(errors="ignore"))
        cut = max(rest.rfind("\n", fits // 2, fits), 0) or max(rest.rfind(" ", fits // 2, fits), 0)
        part, rest = rest[: cut or fits], rest[cut or fits :]
        if cut:
            rest = rest.lstrip()
        if part.strip():
            yield part
    if rest:
        yield rest
