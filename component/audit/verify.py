"""Verify the audit log: find lines that were changed, removed, moved, inserted or cut off."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from component.audit.files import files_in, first_of, removed_by
from component.audit.lines import GENESIS, ChainLink, Sealed, read_line

What = Literal["changed", "removed", "moved", "cut off", "torn", "noticed"]
_LONGEST_LINE: Final = 1 << 20
_ATTEMPTS: Final = 5
_AGAIN_S: Final = 0.2


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem, with its file, the line in the file, and the number in the chain."""

    what: What
    file: str
    line: int
    seq: int
    sentence: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification.

    `first` and `last` are numbers of lines, `since` and `until` their times, `hash` that of the
    last one. `notes` are remarks that are not problems.
    """

    lines: int = 0
    files: int = 0
    first: int = 0
    last: int = 0
    since: str = ""
    until: str = ""
    hash: str = GENESIS
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def verify(directory: Path, known: Sequence[ChainLink] = (), after: int = 0) -> Verification:
    """Verify the audit log in a directory.

    Args:
        directory: the directory of its files.
        known: lines that are known from elsewhere, such as the database or a log.
        after: problems up to this number are ignored.

    Raises OSError if a file cannot be read.
    """
    return _Walk(known, after).through(directory)


class _Walk:
    """One pass through all lines, which remembers only the last one."""

    def __init__(self, known: Sequence[ChainLink], after: int) -> None:
        self._known = {link.seq: link.hash for link in known if link.seq}
        self._after = after
        self._findings: list[Finding] = []
        self._notes: list[str] = []
        self._removed: dict[int, str] = {}
        self._link = ChainLink()
        self._first: Sealed | None = None
        self._last: Sealed | None = None
        self._lines = 0
        self._file = ""
        self._number = 0

    def through(self, directory: Path) -> Verification:
        files = files_in(directory)
        for path in files:
            self._file, self._number = path.name, 0
            self._read(path, last=path is files[-1])
        self._beginning(files)
        self._ending()
        kept = [each for each in self._findings if each.seq > self._after]
        first, last = self._first, self._last
        return Verification(
            lines=self._lines,
            files=len(files),
            first=0 if first is None else first.line.seq,
            last=self._link.seq,
            since="" if first is None else first.line.time,
            until="" if last is None else last.line.time,
            hash=self._link.hash,
            findings=tuple(kept),
            notes=tuple(self._notes),
        )

    def _read(self, path: Path, *, last: bool) -> None:
        begun = False
        for self._number, raw in enumerate(_lines(path), start=1):
            begun = True
            if not raw.endswith(b"\n"):
                self._found(
                    "torn" if last else "changed",
                    self._link.seq + 1,
                    "is incomplete. An interrupted write has left it, or somebody has cut it; the"
                    " next start of the service moves it out of the log and records that."
                    if last
                    else "is incomplete, and another file follows.",
                )
                return
            self._line(read_line(raw[:-1]), named=first_of(path) if self._number == 1 else None)
        if not begun and not last:
            self._number = 0
            self._found("removed", self._link.seq + 1, "is empty, and another file follows.")

    def _line(self, sealed: Sealed | None, named: int | None) -> None:
        if sealed is None:
            # If more lines are missing, the next one shows how many.
            self._found("changed", self._link.seq + 1, "is not a line of an audit log.")
            self._link = ChainLink(self._link.seq + 1, "")
            return
        seq, expected = sealed.line.seq, self._link.seq + 1
        if not sealed.matches:
            self._found("changed", seq, "does not have the hash of its content: it was changed.")
        elif self._first is None:
            if seq == 1 and sealed.line.prev != GENESIS:
                self._found("changed", seq, "has the number 1, but is not the start of a chain.")
        elif seq > expected:
            self._found("removed", seq, f"follows line {self._link.seq}: {_missing(expected, seq)}")
        elif seq < expected:
            self._found(
                "moved",
                seq,
                f"follows line {self._link.seq}: it was moved, repeated or inserted, or lines"
                " before it were removed.",
            )
        elif self._link.hash and sealed.line.prev != self._link.hash:
            self._found(
                "changed",
                seq,
                f"does not follow from line {self._link.seq}: one of the two was changed or"
                " inserted.",
            )
        if named is not None and named != seq and sealed.matches:
            self._found(
                "moved", seq, f"is the first line of a file that should begin with {named}."
            )
        if self._known.pop(seq, sealed.hash) != sealed.hash:
            self._found("changed", seq, "differs from the one that is known from elsewhere.")
        if (sealed.line.kind, sealed.line.outcome) == ("record", "broken") and sealed.matches:
            self._found(
                "noticed",
                seq,
                f"reports a problem that the service found at a start: {_said(sealed)}",
            )
        removed = removed_by(sealed.line) if sealed.matches else None
        if removed is not None:
            self._removed[removed.seq] = removed.hash
        self._first = self._first or sealed
        self._last = sealed
        self._lines += 1
        self._link = ChainLink(seq, sealed.hash)

    def _beginning(self, files: Sequence[Path]) -> None:
        first = self._first
        if first is None or first.line.seq == 1:
            return
        before = first.line.seq - 1
        self._file, self._number = files[0].name, 1
        if self._removed.get(before) == first.line.prev:
            self._notes.append(
                f"The log begins with line {first.line.seq} of {first.line.time}: older lines were"
                " removed by keep_days, which is recorded."
            )
        else:
            self._found(
                "removed",
                first.line.seq,
                f"is the first line: {_missing(1, first.line.seq)}",
                at_start=True,
            )

    def _ending(self) -> None:
        first = 1 if self._first is None else self._first.line.seq
        last = self._link.seq
        for seq in sorted(self._known):
            if seq > last:
                self._found(
                    "cut off",
                    seq,
                    f"is the last line, but line {seq} is known to have been on disk:"
                    f" {_missing(last + 1, seq + 1)}",
                )
            elif seq < first:
                self._notes.append(f"Line {seq}, which is known from elsewhere, is no longer kept.")

    def _found(self, what: What, seq: int, rest: str, *, at_start: bool = False) -> None:
        where = f"{self._file}:{self._number}" if self._number else self._file
        sentence = f"{where} (line {seq if what != 'cut off' else self._link.seq}) {rest}"
        if not self._file:
            sentence = f"There are no files, but line {seq} is known to have been on disk."
        found = Finding(what=what, file=self._file, line=self._number, seq=seq, sentence=sentence)
        self._findings.insert(0 if at_start else len(self._findings), found)


def _missing(first: int, beyond: int) -> str:
    if beyond - first == 1:
        return f"line {first} is missing."
    return f"lines {first} to {beyond - 1} are missing."


def _said(sealed: Sealed) -> str:
    return sealed.line.detail or "no details are recorded."


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while raw := file.readline(_LONGEST_LINE):
            if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
                # Too long for a valid line: treated as one invalid line.
                while (more := file.readline(_LONGEST_LINE)) and not more.endswith(b"\n"):
                    pass
                raw = raw[:16] + (b"\n" if more else b"")
            yield raw


def verify_beside(
    directory: Path,
    known: Sequence[ChainLink] = (),
    after: int = 0,
    wait: Callable[[float], None] = time.sleep,
) -> Verification:
    """Verify an audit log that a service may be writing; otherwise like `verify`.

    If the last line is incomplete, or an old file is removed meanwhile, the log is verified
    again.
    """
    left = _ATTEMPTS
    while True:
        left -= 1
        try:
            verdict = verify(directory, known, after)
        except FileNotFoundError:
            if not left:
                raise
            continue
        if not left or all(each.what != "torn" for each in verdict.findings):
            return verdict
        wait(_AGAIN_S)
