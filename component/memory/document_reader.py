"""Reads documents in a child process with limits, and splits them into parts.

A document may be made to attack the program that reads it. Here it can only end its own process,
which is confined (`component.sandbox`); the error says why.
"""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import anyio
import msgspec

from component import system
from component.memory_directory import files
from component.memory_directory.files import MemoryStoreError

KINDS: Final = {
    ".pdf": "pdf",
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "text",
    **{f".{kind}": kind for kind in ("docx", "xlsx", "pptx", "odt", "ods", "odp")},
}
"""The kinds of documents by the suffixes of their names."""

_WORKER: Final = Path(__file__).with_name("document_worker.py")
_PART: Final = 1200  # characters of a part, at most
_MOST_PIECES: Final = 100_000
_MOST_LINKS: Final = 10_000  # of all pieces together
_SENTENCE: Final = r"(?<=[.!?…。])\s+"


class DocumentLimits(msgspec.Struct, frozen=True):
    """The limits for one document: bytes of the file, of memory and of its text; seconds of
    processor time and of waiting.
    """

    size: int = 64 << 20
    memory: int = 1 << 30
    output: int = 16 << 20
    cpu_s: int = 30
    wait_s: float = 300.0


LIMITS: Final = DocumentLimits()


class DocumentPart(msgspec.Struct, frozen=True):
    """A part of a document. `where` says where it is: `page 3`, or the headings above it."""

    where: str
    text: str


class DocumentError(Exception):
    """A document cannot be read; the message completes "handbook.pdf cannot be read: "."""


class DocumentPiece(msgspec.Struct):
    """A piece of a document as its parser gives it: the text of a page of a PDF or under a heading.

    `links` are those of a web page, with their texts.
    """

    text: str = ""
    page: int = 0
    heading: str = ""
    error: str = ""
    links: Annotated[tuple[tuple[str, str], ...], msgspec.Meta(max_length=_MOST_LINKS)] = ()


_decode = msgspec.json.Decoder(DocumentPiece).decode


async def read_document(path: Path, limits: DocumentLimits = LIMITS) -> list[DocumentPart]:
    """Read the parts of a document. Raises DocumentError."""
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise DocumentError(f"only files that end in {', '.join(KINDS)} are")
    try:
        descriptor = files.open_file(path, os.O_RDONLY)
    except MemoryStoreError as error:
        raise DocumentError(str(error)) from error
    except OSError as error:
        raise DocumentError(f"{error.strerror}") from error
    try:
        size = os.fstat(descriptor).st_size
        if size > limits.size:
            raise DocumentError(f"it has {size:,} bytes, and at most {limits.size:,} are read")
        lines = await _run(kind, descriptor, limits)
    finally:
        os.close(descriptor)
    parts = await system.in_thread(lambda: list(split_parts(lines)))
    if not parts:
        raise DocumentError("it has no text" + (" (a scan?)" if kind == "pdf" else ""))
    return parts


async def read_data(kind: str, data: bytes, limits: DocumentLimits = LIMITS) -> list[DocumentPiece]:
    """Read the pieces of a document in memory. `kind` is `page` (a web page, of which only the
    main text is read), or one of `KINDS`. Raises DocumentError.
    """
    import tempfile  # noqa: PLC0415 - few documents are in memory

    with tempfile.TemporaryFile() as file:
        await system.in_thread(file.write, data)
        await system.in_thread(file.flush)
        # The parser gets a read-only descriptor.
        descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return await _run(kind, descriptor, limits)
        finally:
            os.close(descriptor)


def split_parts(pieces: Iterable[DocumentPiece]) -> Iterator[DocumentPart]:
    """Yield parts of at most about 1,200 characters, each of one page or heading."""
    for piece in pieces:
        where = f"page {piece.page}" if piece.page else piece.heading[:200]
        text = ""
        for sentence in _sentences(piece.text):
            if text and len(text) + len(sentence) > _PART:
                yield DocumentPart(where, text)
                text = ""
            text = f"{text}\n{sentence}" if text else sentence
        if text:
            yield DocumentPart(where, text)


def _sentences(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text, and the sentences of long ones, no longer than a part."""
    for paragraph in re.split(r"\n\s*\n", text):
        line = paragraph.strip()
        for sentence in [line] if len(line) <= _PART else re.split(_SENTENCE, line):
            for at in range(0, len(sentence), _PART):
                if part := sentence[at : at + _PART].strip():
                    yield part


def _command(kind: str, limits: DocumentLimits) -> list[str]:
    from component.sandbox.launch import confined_command  # noqa: PLC0415 - for documents only
    from component.sandbox.profile import Limits, Profile  # noqa: PLC0415

    profile = Profile(
        read=(str(_WORKER),),
        limits=Limits(
            memory=limits.memory, cpu_s=limits.cpu_s, file_bytes=0, wall_s=limits.wait_s, nice=5
        ),
        weaker=True,
    )
    numbers = map(str, (limits.memory, limits.output))
    return confined_command(profile, [sys.executable, "-I", str(_WORKER), kind, *numbers])


async def _run(kind: str, descriptor: int, limits: DocumentLimits) -> list[DocumentPiece]:
    from component.sandbox.launch import NOT_CONFINED  # noqa: PLC0415

    command = _command(kind, limits)
    data = bytearray()
    with anyio.move_on_after(limits.wait_s) as scope:
        async with await anyio.open_process(
            command,
            stdin=descriptor,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,  # Ctrl-C is for the service, which then ends this process
        ) as process:
            assert process.stdout is not None
            try:
                async for piece in process.stdout:
                    data += piece
                    if len(data) > limits.output + (1 << 16):
                        break
            finally:
                if len(data) > limits.output + (1 << 16) or scope.cancel_called:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
            code = await process.wait()
    if scope.cancelled_caught:
        raise DocumentError(f"reading it takes more than {limits.wait_s:g} s")
    if code in {-signal.SIGXCPU, -signal.SIGKILL}:
        raise DocumentError(f"reading it takes more than {limits.cpu_s} s of processor time")
    if code == NOT_CONFINED:
        raise DocumentError("its parser cannot be confined: see xmpp-agent doctor")
    if code:
        raise DocumentError(f"its parser has failed (exit status {code})")
    return await system.in_thread(_pieces, bytes(data))


def _pieces(output: bytes) -> list[DocumentPiece]:
    """Decode the output of a parser, which may be compromised. Raises DocumentError."""
    pieces, links = [], 0
    for line in io.BytesIO(output):
        try:
            piece = _decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DocumentError("its parser has failed") from error
        if piece.error:
            raise DocumentError(piece.error)
        pieces.append(piece)
        links += len(piece.links)
        if len(pieces) > _MOST_PIECES or links > _MOST_LINKS:
            raise DocumentError("it has too many parts or links")
    return pieces
