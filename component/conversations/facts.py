"""Facts that were learned in conversations: they are merged with known facts, and written to files
that people can edit.

A lasting fact about a person is a line in `user.md`, which every prompt contains; any other fact is
a memory in `knowledge.jsonl`. The source of each is a line in `facts.jsonl` in the same directory.
Facts are learned only from messages of the person, never from texts that others could have written.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from component import system
from component.audit.protocol import Recorder
from component.conversations import directories
from component.conversations.lines import Correction, Said, decode_line
from component.memory import knowledge_lines
from component.memory.knowledge import Knowledge, KnowledgeError, Memo
from component.memory.words import grams, words
from component.memory_directory import files
from component.memory_directory.files import KeyLocks, MemoryStoreError
from component.memory_directory.layout import Layout, SessionKey, memory_event
from component.policy.flows import TRUSTED

USER: Final = "user.md"
OLDER_USER: Final = "context.md"
"""The former name in Fluux Agent; it is read if there is no `user.md`."""
HEADING: Final = "## Learned in conversations"
TAG: Final = "learned"
"""The tag of memories that were learned."""

_MEMORIES: Final = knowledge_lines.FILE_NAME
_MOST_BYTES: Final = 1 << 26  # of a file that is read
_SECTION: Final = 4000  # characters of facts in user.md; further ones become memories
_ALIKE: Final = 0.6  # minimum similarity of two texts about the same
_QUOTE: Final = 300  # characters of a message that are kept as the source
_BULLET: Final = re.compile(r"^\s*[-*]\s+(.*?)(?:\s+\(\d{4}-\d\d-\d\d\))?\s*$")


class Message(msgspec.Struct, frozen=True):
    """A message of a person, with its time (RFC 3339) and its turn."""

    text: str
    said: str
    turn: str


class ProposedFact(msgspec.Struct, frozen=True):
    """A proposed fact, and the message that it comes from.

    `key` is its subject, such as `dog_name`; a fact with the same key replaces it. `lasting`
    facts say something about the person that matters in most conversations.
    """

    key: str
    text: str
    lasting: bool
    source: Message


class KnownFact(msgspec.Struct, frozen=True):
    """A known fact; the key is empty if a person has written it."""

    key: str
    text: str


Result = Literal["added", "updated", "known", "beside", "forgotten", "refused"]
"""The outcome of a proposal.

`beside`: a known fact contradicts it and was edited by a person, so both are kept. `forgotten`:
the person has deleted it before, so it is not written again.
"""


class _Kept(msgspec.Struct, frozen=True, tag="fact"):
    """A line of `facts.jsonl`: the text of a key, its file and its source."""

    key: str
    text: str
    file: str
    said: str
    turn: str
    quote: str


class _Read(msgspec.Struct, frozen=True, tag="read"):
    """A line of `facts.jsonl`: conversations were read up to this time."""

    until: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Kept | _Read).decode


class Facts:
    """Learned facts of all people."""

    def __init__(self, layout: Layout, knowledge: Knowledge, recorder: Recorder) -> None:
        self._layout = layout
        self._knowledge = knowledge
        self._recorder = recorder
        self._locks: KeyLocks[SessionKey] = KeyLocks()

    async def messages(self, key: SessionKey) -> list[Message]:
        """Return the messages of the person since facts were last stored, from the current
        conversation and the latest archived one. Raises StorageError.
        """
        return await system.in_thread(self._messages, key)

    async def known(self, key: SessionKey) -> list[KnownFact]:
        """Return all learned facts, and the lines of `user.md`. Raises StorageError.

        A memory with the tag of a fact is ignored if an untrusted author may have written it;
        learned facts have no label.
        """
        records, text = await system.in_thread(self._load, key)
        written = {_plain(kept.text): kept.key for kept in records.values()}
        found = [KnownFact(written.get(_plain(line), ""), line) for line in _bullets(text)]
        memories = await self._knowledge.own(key)
        found += [
            KnownFact(one.item.key, one.item.body)
            for one in memories
            if TAG in one.item.tags and one.taint in (None, *TRUSTED)
        ]
        return found

    async def keep(
        self, key: SessionKey, proposals: Sequence[ProposedFact], until: str
    ) -> list[Result]:
        """Merge facts with known ones, and record that conversations were read `until` this time.

        A fact whose message was deleted in the meantime is refused. Raises StorageError.
        """
        async with self._locks.hold(key):
            there = {(one.said, one.text) for one in await self.messages(key)}
            results: list[Result] = []
            for proposal in proposals:
                if (proposal.source.said, proposal.source.text) not in there:
                    results.append("refused")
                    continue
                results.append(await self._keep(key, proposal))
            if there:
                await system.in_thread(self._append, key, _Read(until))
        return results

    async def _keep(self, key: SessionKey, fact: ProposedFact) -> Result:
        records, text = await system.in_thread(self._load, key)
        if any(words(line) == words(fact.text) for line in _bullets(text)):
            return "known"
        kept = records.get(fact.key)
        lasting = fact.lasting if kept is None else kept.file != _MEMORIES
        if lasting and (kept is not None or len(_section(text)) + len(fact.text) < _SECTION):
            result, text = merge_fact(text, fact, records)
            if result in {"known", "forgotten"}:
                return result
            file = await system.in_thread(self._write, key, text)
        else:
            result = await self._keep_memory(key, fact, kept)
            file = _MEMORIES
        if result in {"added", "updated", "beside"}:
            source = fact.source
            line = _Kept(fact.key, fact.text, file, source.said, source.turn, source.text[:_QUOTE])
            await system.in_thread(self._append, key, line)
            self._record(key, fact, f"{result} in {file}")
        return result

    async def _keep_memory(self, key: SessionKey, fact: ProposedFact, kept: _Kept | None) -> Result:
        own = {one.item.key: one.item for one in await self._knowledge.own(key)}
        if any(words(item.body) == words(fact.text) for item in own.values()):
            return "known"
        name, there = fact.key, own.get(fact.key)
        result: Result = "added" if there is None else "updated"
        if there is None and kept is not None and similarity(kept.text, fact.text) >= _ALIKE:
            return "forgotten"
        if there is not None and (kept is None or there.body != kept.text):
            name, result = f"{fact.key} (learned)", "beside"
        memo = Memo(name, fact.text, tags=(TAG,), taint=None)
        try:
            await self._knowledge.store(key, memo, trace=fact.source.turn)
        except KnowledgeError:
            return "refused"
        return result

    def _record(self, key: SessionKey, fact: ProposedFact, detail: str) -> None:
        turn = fact.source.turn
        self._recorder.record(memory_event(key, "done", fact.key, f"learned: {detail}", turn))

    # In worker threads.

    def _messages(self, key: SessionKey) -> list[Message]:
        folder = self._layout.folder(key)
        if not files.check_folder(self._layout.root, folder):
            return []
        until = ""
        for line in self._lines(key):
            until = line.until if isinstance(line, _Read) else until
        found: list[Message] = []
        for path in [
            *directories.archives(self._layout.root, folder)[:1],
            folder / directories.HISTORY,
        ]:
            data = files.read(path, _MOST_BYTES)
            for raw in [] if data is None else data[0].splitlines():
                try:
                    said = decode_line(raw)
                except ValueError:
                    continue
                if isinstance(said, Correction):
                    found = [one for one in found if one.turn != said.turn]
                    said = said.message
                # Only a message that is known to be the person's own words is learned from.
                if (
                    isinstance(said, Said)
                    and (said.role, said.taint, said.operator) == ("user", "person", None)
                    and said.ts is not None
                    and said.ts > until
                    and said.content.strip()
                ):
                    found.append(Message(said.content, said.ts, said.turn or ""))
        return found

    def _load(self, key: SessionKey) -> tuple[dict[str, _Kept], str]:
        folder = self._layout.folder(key)
        if not files.check_folder(self._layout.root, folder):
            return {}, ""
        records = {line.key: line for line in self._lines(key) if isinstance(line, _Kept)}
        path = _user_file(folder)
        found = files.read(path, _MOST_BYTES)
        try:
            return records, "" if found is None else found[0].decode()
        except UnicodeDecodeError as error:
            raise MemoryStoreError(f"{path} is not UTF-8. Save it as UTF-8.") from error

    def _lines(self, key: SessionKey) -> list[_Kept | _Read]:
        found = files.read(self._layout.folder(key) / directories.FACTS, _MOST_BYTES)
        lines: list[_Kept | _Read] = []
        for raw in [] if found is None else found[0].splitlines():
            try:
                lines.append(_decode(raw))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
        return lines

    def _write(self, key: SessionKey, text: str) -> str:
        folder = self._layout.folder(key)
        files.make_folder(self._layout.root, folder)
        path = _user_file(folder)
        files.replace(path, text.encode())
        return path.name

    def _append(self, key: SessionKey, line: _Kept | _Read) -> None:
        files.append(self._layout.folder(key) / directories.FACTS, _encode(line) + b"\n", sync=True)


def _user_file(folder: Path) -> Path:
    # If `user.md` is created, the other file is not read any more.
    if files.state_of(folder / USER) is None and files.state_of(folder / OLDER_USER) is not None:
        return folder / OLDER_USER
    return folder / USER


def merge_fact(text: str, fact: ProposedFact, records: dict[str, _Kept]) -> tuple[Result, str]:
    """Return the outcome for a fact, and the new text of user.md. No I/O."""
    lines = text.removesuffix("\n").split("\n") if text else []
    line = f"- {' '.join(fact.text.split())} ({fact.source.said[:10]})"
    ours = {_plain(kept.text): kept.key for kept in records.values()}
    kept = records.get(fact.key)
    alike: int | None = None
    for at, old in enumerate(lines):
        if (found := _BULLET.match(old)) is None:
            continue
        if kept is not None and _plain(found[1]) == _plain(kept.text):
            lines[at] = line
            return "updated", _joined(lines)
        if similarity(found[1], fact.text) >= _ALIKE:
            alike = at
    if alike is not None:
        found = _BULLET.match(lines[alike])
        if found is not None and _plain(found[1]) in ours:
            lines[alike] = line
            return "updated", _joined(lines)
        lines.insert(alike + 1, line)
        return "beside", _joined(lines)
    if kept is not None and similarity(kept.text, fact.text) >= _ALIKE:
        return "forgotten", text
    starts = [at for at, old in enumerate(lines) if old.strip() == HEADING]
    if not starts:
        lines += [*([""] if lines else []), HEADING, ""]
        at = len(lines)
    else:
        start = starts[0] + 1
        ends = [at for at in range(start, len(lines)) if lines[at].startswith("#")]
        at = ends[0] if ends else len(lines)
        while at > start + 1 and not lines[at - 1].strip():
            at -= 1
    lines.insert(at, line)
    return "added", _joined(lines)


def similarity(one: str, other: str) -> float:
    """Return how similar two texts are: 1 for the same words, 0 for no common ones."""
    first, second = (
        {gram for word in words(text) for gram in grams(word)} for text in (one, other)
    )
    return (
        len(first & second) / len(first | second)
        if first | second
        else float(_plain(one) == _plain(other))
    )


def _bullets(text: str) -> list[str]:
    return [found[1] for line in text.split("\n") if (found := _BULLET.match(line))]


def _section(text: str) -> str:
    return text.partition(HEADING)[2]


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
