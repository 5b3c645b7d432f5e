"""The files of messages: what the model is shown of them, by reference to what is stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from component.agent import history
from component.agent.prompt import TokenBudget
from component.agent.requests import SentFile, TurnRequest
from component.agent.untrusted_text import InjectionCheck
from component.conversations.lines import Attachment, Said
from component.conversations.stored_files import StoredFile, StoredFiles
from component.memory.document_reader import DocumentError
from component.models.messages import ImagePart

if TYPE_CHECKING:
    from component.agent.run import Run


class MessageFiles:
    """Reads the files of messages for prompts. Errors of the disk raise StorageError."""

    def __init__(self, stored: StoredFiles, budget: TokenBudget, check: InjectionCheck) -> None:
        self._stored = stored
        self._budget = budget
        self._check = check

    async def attach(self, run: "Run", request: TurnRequest, line: Said) -> Said:
        """Return the line of a message with its files, of which the prompt has as much as fits."""
        found: list[Attachment] = []
        documents = [one for one in request.files if not one.unread and not _is_image(one)]
        most = self._budget.result(run.model, max(1, len(documents)))
        for one in request.files:
            attachment = Attachment(
                one.name or one.sent.name or "a file",
                one.media_type or "unknown",
                history.readable_size(one.size) if one.sha256 else "unknown",
                one.sha256,
                one.unread,
            )
            if one in documents:
                attachment = await self._cut(run, one, attachment, most)
                text = run.files.get(one.sha256)
                if isinstance(text, str):
                    finding = await self._check.scan(run, text, "file")
                    attachment = msgspec.structs.replace(attachment, finding=finding)
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
        """Return how much of the text of a document the prompt has."""
        try:
            text = await self._stored.text(self._folder(run), _stored(file.sha256, file.media_type))
        except DocumentError as error:
            why = f"{attachment.filename} cannot be read: {error}."
            return msgspec.structs.replace(attachment, unread=why)
        if text is None:
            return attachment
        kept = history.kept_characters(text, most, run.model.tokens)
        shown = len(text) if kept is None else kept
        run.files[file.sha256] = text[:shown]
        return msgspec.structs.replace(attachment, shown=shown, rest=len(text) - shown)

    async def load(self, run: "Run") -> None:
        """Read the files that the prompt shows and that were not read in this turn."""
        for line in run.journal.shown():
            for one in line.attachments if isinstance(line, Said) else ():
                if one.digest and not one.unread and one.digest not in run.files:
                    run.files[one.digest] = await self._content(run, one)

    async def _content(self, run: "Run", one: Attachment) -> str | ImagePart | None:
        folder = self._folder(run)
        if one.is_image:
            data = await self._stored.read(folder, one.digest)
            return None if data is None else ImagePart(one.mime_type, data)
        try:
            text = await self._stored.text(folder, _stored(one.digest, one.mime_type))
        except DocumentError:
            return None
        return None if text is None else text[: one.shown]

    def _folder(self, run: "Run") -> Path:
        return self._stored.layout.folder(run.ask.key)


def _stored(sha256: str, media_type: str) -> StoredFile:
    return StoredFile(name="", sha256=sha256, media_type=media_type)


def _is_image(file: SentFile) -> bool:
    return file.media_type.startswith("image/")


def unread_sentences(lines: Sequence[object]) -> list[str]:
    """Return what the person is told about files that the model could not read, each once."""
    said = [line for line in lines if isinstance(line, Said) and line.role == "user"]
    return list(
        dict.fromkeys(
            one.unread for line in said if line.content for one in line.attachments if one.unread
        )
    )
