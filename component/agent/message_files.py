"""The files of messages: what the model is shown of them, by reference to what is stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from component.agent import history, sentences
from component.agent.prompt import TokenBudget
from component.agent.requests import SentFile, TurnRequest
from component.agent.untrusted_text import InjectionCheck
from component.conversations.lines import IMAGE_TOKENS, Attachment, Line, Said
from component.conversations.stored_files import StoredFile, StoredFiles
from component.memory.document_reader import DocumentError
from component.models.messages import ImagePart

if TYPE_CHECKING:
    from component.agent.run import Run

_IMAGE_BYTES: Final = 15_000_000
"""Bytes of all images in a prompt; providers limit a request to 20 to 50 MB, in Base64."""


class MessageFiles:
    """Reads the files of messages for prompts. Errors of the disk raise StorageError."""

    def __init__(self, stored: StoredFiles, budget: TokenBudget, check: InjectionCheck) -> None:
        self._stored = stored
        self._budget = budget
        self._check = check

    async def attach(self, run: "Run", request: TurnRequest, line: Said) -> Said:
        """Return the line of a message with its files, of which the prompt has as much as fits."""
        model, found = run.model, list[Attachment]()
        documents = sum(not (one.unread or _is_image(one)) for one in request.files)
        most = self._budget.result(model, max(1, documents))
        images = max(1, (model.context_tokens - self._budget.answer(model)) // 2 // IMAGE_TOKENS)
        for one in request.files:
            attachment = _attachment(one)
            if attachment.is_image:
                images -= 1
                if images < 0:
                    why = sentences.TOO_MANY_IMAGES.format(name=attachment.filename)
                    attachment = msgspec.structs.replace(attachment, unread=why)
            elif not one.unread:
                attachment = await self._cut(run, one, attachment, most)
            found.append(attachment)
        taints = set(line.taints)
        if request.readable:
            taints.add("file")
            run.taints.add("file")
        return msgspec.structs.replace(
            line, attachments=tuple(found), taints=history.in_order(taints)
        )

    async def _cut(
        self, run: "Run", file: SentFile, attachment: Attachment, most: int
    ) -> Attachment:
        """Return how much of the text of a document the prompt has: at most so many tokens."""
        try:
            text = await self._text(run, file.sha256, file.media_type)
        except DocumentError as error:
            why = f"{attachment.filename} cannot be read: {error}."
            return msgspec.structs.replace(attachment, unread=why)
        if text is None:
            return attachment
        kept = history.kept_characters(text, most, run.model.tokens)
        shown = len(text) if kept is None else kept
        run.files[file.sha256] = text[:shown]
        return msgspec.structs.replace(
            attachment,
            shown=shown,
            rest=len(text) - shown,
            finding=await self._check.scan(run, text[:shown], "file"),
        )

    async def load(self, run: "Run") -> None:
        """Read the files that the prompt shows and that were not read in this turn, the latest
        first. Of images, only so many are shown as a request may have.
        """
        summary = run.journal.summary
        lines: Sequence[Line] = (
            *(() if summary is None else summary.requests),
            *run.journal.shown(),
        )
        for line in reversed(lines):
            for one in line.attachments if isinstance(line, Said) else ():
                known = run.files.get(one.digest)
                is_short = isinstance(known, str) and len(known) < one.shown
                is_read = one.digest in run.files and not is_short
                if one.digest and not one.unread and not is_read:
                    run.files[one.digest] = await self._content(run, one)

    async def _content(self, run: "Run", one: Attachment) -> str | ImagePart | None:
        if one.is_image:
            data = await self._stored.read(self._folder(run), one.digest)
            images = [part.data for part in run.files.values() if isinstance(part, ImagePart)]
            if data is not None and images and sum(map(len, images)) + len(data) > _IMAGE_BYTES:
                return ""
            return None if data is None else ImagePart(one.mime_type, data)
        try:
            text = await self._text(run, one.digest, one.mime_type)
        except DocumentError:
            return None
        return None if text is None else text[: one.shown]

    async def _text(self, run: "Run", sha256: str, media_type: str) -> str | None:
        file = StoredFile(name="", sha256=sha256, media_type=media_type)
        return await self._stored.text(self._folder(run), file)

    def _folder(self, run: "Run") -> Path:
        return self._stored.layout.folder(run.ask.key)


def _attachment(file: SentFile) -> Attachment:
    return Attachment(
        file.name or file.sent.name or "a file",
        file.media_type or "unknown",
        history.readable_size(file.size) if file.sha256 else "unknown",
        file.sha256,
        file.unread,
    )


def _is_image(file: SentFile) -> bool:
    return file.media_type.startswith("image/")


def unread_sentences(lines: Sequence[Line]) -> Sequence[str]:
    """Return the sentences for the person about files that the model could not read, each once."""
    found = [
        one.unread
        for line in lines
        if isinstance(line, Said) and line.role == "user" and line.content
        for one in line.attachments
        if one.unread
    ]
    return tuple(dict.fromkeys(found))
