"""Server-sent events: from bytes to the data of each event (HTML Living Standard, §9.2).

Only `data` matters here: what chat completions say, errors included, is JSON in there.
"""

MAX_EVENT_BYTES = 8 * 1024 * 1024


class EventTooLongError(Exception):
    """An event that does not end."""


class Events:
    """Takes a stream in any pieces, gives the data of the events that are complete.

    Lines end with LF or CRLF; comments and other fields are passed over.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next piece. Raises EventTooLongError beyond `MAX_EVENT_BYTES`."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        found = []
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]  # noqa: PLW2901
            if line.startswith(b"data:"):
                data = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(data)
                self._size += len(data)
            elif not line and self._data:
                found.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
                self._size = 0
        if len(self._rest) + self._size > MAX_EVENT_BYTES:
            raise EventTooLongError
        return found

    def end(self) -> list[bytes]:
        """Give the event that the end of the stream completes: not every server ends the last."""
        return self.feed(b"\n\n")
