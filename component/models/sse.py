"""Server-sent events: from bytes to the data of each event (HTML Living Standard, §9.2).

Only `data` matters here: what chat completions say, errors included, is JSON in there.
"""

from codecs import BOM_UTF8

from component.models.answer_limits import EVENT_BYTES, LINES, TooMuchError


class Events:
    """Parses a stream in arbitrary pieces, and returns the data of complete events.

    Lines end with LF or CRLF; comments and other fields are passed over, and so is a byte order
    mark at the beginning.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the line that has no end yet, in pieces
        self._rest_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._lines = 0
        self._begun = False  # whether the first line was read

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next piece. Raises TooMuchError beyond `EVENT_BYTES` or `LINES`."""
        found: list[bytes] = []
        if b"\n" not in piece:
            self._rest.append(piece)
            self._rest_bytes += len(piece)
            self._check()
            return found
        if self._rest:
            piece = b"".join((*self._rest, piece))
            self._rest = []
        lines = piece.split(b"\n")
        last = lines.pop()
        self._lines += len(lines)
        if self._lines > LINES:
            raise TooMuchError(f"more than {LINES:,} lines")
        self._rest_bytes = len(last)
        if last:
            self._rest.append(last)
        if lines and not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]  # noqa: PLW2901 - the line without its end
            if line.startswith(b"data:"):
                data = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(data)
                self._data_bytes += len(data) + 1
                if self._data_bytes > EVENT_BYTES:
                    self._check()
            elif not line and self._data:
                found.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
                self._data_bytes = 0
        if last:
            self._check()
        return found

    def _check(self) -> None:
        if self._rest_bytes + self._data_bytes > EVENT_BYTES:
            raise TooMuchError(f"an event of more than {EVENT_BYTES:,} bytes")

    def end(self) -> list[bytes]:
        """Return the event that the end of the stream completes: some servers do not end the last
        one.
        """
        return self.feed(b"\n\n")
