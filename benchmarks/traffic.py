"""The requests of the benchmarks, created in advance, and the check of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

EXECUTE = "urn:fluux:agent:0#execute"
END = b"</iq>"
SENDERS = tuple(f"user{number}@localhost/phone{number}" for number in range(8))

# The common request: the skill `echo` with a text that makes an IQ of 260 bytes.
_IQ = (
    "<iq id='{id}' type='set' to='{to}' from='{sender}'>"
    "<execute xmlns='urn:fluux:agent:0#execute' skill='{skill}'>"
    "<param name='{param}'>{text}</param></execute></iq>"
)
_SIZE = 260


class Traffic:
    """Many execute IQs of one size in a row, each with its own id.

    `first` is the first letter of their ids. Without `senders` the IQs have no `from`, as a client
    sends them.
    """

    def __init__(
        self,
        to: str,
        count: int,
        *,
        senders: Sequence[str] = SENDERS,
        first: str = "a",
        skill: str = "echo",
        param: str = "text",
        text: str | None = None,
    ) -> None:
        self.count = count
        self.to = to
        self.senders = senders
        iqs = [
            self._iq(
                id=f"{first}{number:07}",
                to=to,
                sender=senders[number % len(senders)] if senders else "",
                skill=skill,
                param=param,
                text=text,
            )
            for number in range(count)
        ]
        self.size = len(iqs[0])
        self.bytes = memoryview(b"".join(iqs))
        if len(self.bytes) != count * self.size:
            raise ValueError("the IQs differ in size: give senders of one length")

    def __getitem__(self, wanted: slice) -> memoryview:
        """Return the bytes of the IQs from `start` to `stop`."""
        return self.bytes[wanted.start * self.size : wanted.stop * self.size]

    @staticmethod
    def _iq(text: str | None, **values: str) -> bytes:
        form = _IQ if values["sender"] else _IQ.replace(" from='{sender}'", "")
        if text is None:
            text = "x" * (_SIZE - len(_IQ.format(text="", **values)))
        return form.format(text=text, **values).encode()

    def check(self, replies: bytes) -> None:
        """Raise AssertionError unless these are the answers to all IQs, each once."""
        sent = _read(bytes(self.bytes))
        asked = {iq.get("id"): iq for iq in sent}
        for reply in _read(replies):
            iq = asked.pop(reply.get("id"), None)
            shown = ET.tostring(reply).decode()
            assert iq is not None, f"nobody asked for, or not twice: {shown}"
            assert reply.get("type") == "result", f"no result: {shown}"
            assert reply.get("from") == self.to, f"from another address: {shown}"
            if self.senders:
                assert reply.get("to") == iq.get("from"), f"to another address: {shown}"
            text = reply.findtext(f"{{{EXECUTE}}}result/{{{EXECUTE}}}output")
            assert text == iq[0][0].text, f"another text: {shown}"
        assert not asked, f"{len(asked)} IQs were not answered"


def canonical(replies: bytes) -> list[str]:
    """Return each reply in canonical form (C14N 2.0): attributes sorted, quotes alike."""
    return [ET.canonicalize(ET.tostring(reply, encoding="unicode")) for reply in _read(replies)]


def _read(stanzas: bytes) -> list[ET.Element]:
    stream = b"<stream xmlns='jabber:component:accept'>" + stanzas + b"</stream>"
    # A client's stream has another namespace; nothing here depends on which.
    return list(ET.fromstring(stream))
