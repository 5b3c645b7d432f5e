"""Converts what a skill returns and raises to the result or the error of a task, and collects the
artifacts that it publishes while it runs (specification, "Artifacts Before the End").
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Sequence
from decimal import Decimal
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec
import structlog

from component.budget.protocol import Amount
from component.skills import outputs as skill_outputs
from component.skills.errors import (
    CapabilityMissing,
    Denied,
    InvalidParam,
    RemoteError,
    SkillFailed,
    SkillInterrupted,
    SkillTimeout,
    SkillUnavailable,
)
from component.skills.outputs import JSON, File, Link, Part, SkillResult
from component.skills.skill import Skill
from component.tasks.protocol import CannotShare
from xep import file_sharing
from xep.binding import encode
from xep.file_sharing import FileSharing, Sources, UrlData
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output, Result, Usage
from xep.hashes import Hash
from xep.stanza_error import StanzaError

_SCHEME = "data:"

_BASE64 = ";base64"

REFERENCE_BYTES: Final = 16_000
"""The maximum size of the parts inside a result, if they can be shared: servers limit what they
read from each other, to 30 kB a second where nothing else is configured, and clients likewise.
"""


def shared(part: File | Link, link: Link | None = None) -> FileSharing:
    """Return the reference to a file or a link. With `link`, its content is also there."""
    about = part if link is None else link
    urls = [one.url for one in (link, part) if isinstance(one, Link)][:1]
    size = about.size if isinstance(about, Link) else len(about.data)
    image, hashes = {}, tuple[Hash, ...]()
    if isinstance(about, Link):
        image = {"width": about.width, "height": about.height}
        if about.sha256 is not None:
            hashes = (Hash(algo="sha-256", digest=about.sha256),)
    if isinstance(part, File):
        encoded = base64.b64encode(part.data).decode()
        urls.append(f"{_SCHEME}{part.media_type}{_BASE64},{encoded}")
    media_type = about.media_type
    return FileSharing(
        disposition="inline" if (media_type or "").startswith("image/") else "attachment",
        file=file_sharing.File(
            media_type=media_type, name=about.name, size=size, hashes=hashes, **image
        ),
        sources=Sources(urls=tuple([UrlData(target=url) for url in urls])),
    )


def part_of(file: FileSharing) -> File | Link | None:
    """Return the file of a reference that has its content, or else the link of one; None if it has
    no URL that can be read.
    """
    about, link = file.file, None
    for url in file.sources.urls:
        if not url.target.startswith(_SCHEME):
            sha256 = next((one.digest for one in about.hashes if one.algo == "sha-256"), None)
            link = link or Link(
                *(url.target, about.media_type, about.name, about.size, sha256),
                *(about.width or None, about.height or None),
            )
            continue
        head, _, body = url.target.removeprefix(_SCHEME).partition(",")
        try:
            data = base64.b64decode(body, validate=True) if head.endswith(_BASE64) else None
        except binascii.Error:
            continue
        kind = about.media_type or head.removesuffix(_BASE64) or "text/plain"
        return File(unquote_to_bytes(body) if data is None else data, kind, about.name)
    return link


def sent_file(output: Output) -> FileSharing | None:
    """Return the file that a person gets for an artifact; None if it is none, or if nobody can get
    it. One whose digest is not known is a page, or may change: people get its address as text.
    """
    if output.file is None or not output.file.file.hashes:
        return None
    urls = [one for one in output.file.sources.urls if one.target.startswith(_FETCHED)]
    if not urls:
        return None
    return msgspec.structs.replace(output.file, sources=Sources(urls=(urls[0],)))


def text_of(output: Output) -> str:
    """Return an artifact for people: its text, or the name of its file with its URLs."""
    if output.file is None:
        return output.text
    about, part = output.file.file, part_of(output.file)
    label = about.name or output.name
    urls = [url.target for url in output.file.sources.urls if not url.target.startswith(_SCHEME)]
    if isinstance(part, File) and not urls:
        return f"{label}: {part.media_type}, {len(part.data):,} bytes"
    return "\n".join((f"{label}:", *urls))


def texts_of(outputs: Sequence[Output]) -> list[str]:
    """Return artifacts for people, without the files that are sent. JSON is left out beside a
    text: it is for programs.
    """
    shown = [
        (output.type, text)
        for output in outputs
        if sent_file(output) is None and (text := _said_of(output)).strip()
    ]
    has_text = any(kind != JSON for kind, _ in shown)
    return [text for kind, text in shown if kind != JSON or not has_text]


def files_of(outputs: Iterable[Output]) -> tuple[FileSharing, ...]:
    """Return the files that are sent to people for artifacts."""
    return tuple([file for output in outputs if (file := sent_file(output)) is not None])


def _said_of(output: Output) -> str:
    part = None if output.file is None else part_of(output.file)
    text = text_of(output)
    return f"{text}. {_UNSENT}" if isinstance(part, File) else text


_UNSENT: Final = (
    "I can't send it as a file, because there is no place from which you could get it; my operator"
    " can set one up."
)
_FETCHED: Final = ("https://", "http://")
_PER_PART: Final = 512
"""Approximate bytes of a part beside its content."""

_EXTENSIONS: Final = {
    "text/plain": "txt",
    "text/markdown": "md",
    "text/csv": "csv",
    "text/html": "html",
    "application/json": "json",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
}


Put: TypeAlias = Callable[[File], Awaitable[Link]]
"""Puts a file where others can get it. Raises CannotShare."""


class Fitted(msgspec.Struct, frozen=True):
    """A result that fits, if it can.

    Attributes:
        made: the result; a part whose content is not inside any more is a `Link`.
        links: for each part, the link to its content, if it was shared.
        problem: why a part could not be shared, as the end of a sentence; empty if all could.
    """

    made: SkillResult
    links: tuple[Link | None, ...]
    problem: str = ""


async def fitting(
    made: SkillResult,
    most_bytes: int,
    share: Put,
    *,
    every_file: bool = False,
) -> Fitted:
    """Return a result that fits, its largest parts by reference if needed. With `every_file`, each
    file is shared, and its content stays inside as well if that fits.
    """
    if not every_file and 4 * least_size(made) + _PER_PART * len(made.outputs) <= most_bytes:
        return Fitted(made, (None,) * len(made.outputs))
    parts = list(made.outputs)
    links: list[Link | None] = [None] * len(parts)
    problem = ""

    async def place(index: int, part: skill_outputs.Output | File) -> None:
        nonlocal problem
        try:
            links[index] = await share(_file_of(part, index))
        except CannotShare as error:
            problem = problem or str(error)

    for index, part in enumerate(made.outputs):
        if every_file and isinstance(part, File) and part.audience != "model":
            await place(index, part)
            link = links[index]
            if link is not None and part.audience == "person":
                parts[index] = msgspec.structs.replace(link, name=part.name)
    sizes = [size_of(part) for part in parts]
    left = {index for index, part in enumerate(parts) if not isinstance(part, Link)}
    while sum(sizes) > most_bytes:
        index = max(left, key=sizes.__getitem__, default=-1)
        if index < 0 or sizes[index] <= 2 * _PER_PART:
            problem = problem or "it has too many parts"
            break
        left.discard(index)
        part = parts[index]
        assert not isinstance(part, Link), "there are only others left"
        if links[index] is None:
            await place(index, part)
        link = links[index]
        if link is not None:
            parts[index] = msgspec.structs.replace(link, name=part.name)
            sizes[index] = size_of(parts[index])
    fitted = msgspec.structs.replace(made, outputs=tuple(parts))
    return Fitted(fitted, tuple(links), problem)


def least_size(made: SkillResult) -> int:
    """Return a lower bound for the bytes of a result in a stanza, from lengths alone."""
    return sum(len(_content(part)) for part in made.outputs)


def _content(part: Part) -> str | bytes:
    if isinstance(part, skill_outputs.Output):
        return part.text
    return part.data if isinstance(part, File) else part.url


def size_of(part: Part) -> int:
    """Return about how many bytes a part has in a stanza."""
    content = _content(part)
    if isinstance(content, bytes):
        return _PER_PART + len(content) * 4 // 3
    return _PER_PART + len(content.encode(errors="surrogatepass"))


def _file_of(part: skill_outputs.Output | File, index: int) -> File:
    """Return a part as a file, with a name that tells its type."""
    kind = part.media_type.partition(";")[0].strip().lower()
    name = part.name or _numbered(index)
    if isinstance(part, File):
        if "." not in name and kind in _EXTENSIONS:
            name = f"{name}.{_EXTENSIONS[kind]}"
        return msgspec.structs.replace(part, name=name)
    if "." not in name:
        name = f"{name}.{_EXTENSIONS.get(kind, 'txt')}"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return File(part.text.encode(), f"{kind}{charset}", name)


def _numbered(index: int) -> str:
    return "output" if index == 0 else f"output-{index + 1}"


_log = structlog.get_logger("component.tasks")


def result_of(skill: Skill, made: SkillResult, links: Sequence[Link | None] = ()) -> Result:
    """Return the result of a skill, with the links to the content of its parts. Artifacts without
    a name get a unique one (EXE-011).
    """
    outputs: list[Output] = []
    taken = {one.name for one in made.outputs} if len(made.outputs) > 1 else set()
    for index, one in enumerate(made.outputs):
        name = one.name or _numbered(index)
        while one.name is None and name in taken:
            name += "-"
        taken.add(name)
        outputs.append(_artifact(one, name, links[index] if links else None))
    return Result(
        skill=skill.name,
        is_error=made.is_error,
        outputs=tuple(outputs),
        usage=Usage(duration_ms=round(made.duration * 1000)),
    )


def with_costs(result: Result, spent: Amount) -> Result:
    """Return a result that also says what was spent (DLG-015)."""
    duration = None if result.usage is None else result.usage.duration_ms
    usage = Usage(
        duration_ms=duration,
        tokens_in=spent.tokens - spent.output,
        tokens_out=spent.output,
        cost_usd=Decimal(f"{spent.usd:.9f}").normalize(),
    )
    return msgspec.structs.replace(result, usage=usage)


def _artifact(part: Part, name: str, link: Link | None) -> Output:
    if isinstance(part, skill_outputs.Output):
        return Output(name=name, type=part.media_type, text=part.text)
    kind = part.media_type or "application/octet-stream"
    return Output(name=name, type=kind, file=shared(part, link))


def too_large(most_bytes: int, problem: str) -> StanzaError:
    """Return the error for a result that neither fits nor can be given by reference, and why."""
    error = errors.too_big(most_bytes)
    error.text = (
        f"The result has more than {most_bytes:,} bytes, and cannot be given as a file: {problem}."
        " Ask for less at a time, or have the operator of the agent set up a place for files."
    )
    return error


def checked(skill: Skill, result: Result, most_bytes: int) -> Result | StanzaError:
    """Return the result, or an error if it is too large or two artifacts have the same name."""
    names = [output.name for output in result.outputs]
    if len(set(names)) != len(names):
        _log.error("a skill returned two outputs with the same name", skill=skill.name, names=names)
        return errors.internal()
    size = len(encode(result).encode())
    return result if size <= most_bytes else too_large(most_bytes, "not all of it could be shared")


def error_of(skill: Skill, error: Exception) -> StanzaError:
    """Return the stanza error for what `component.skills.calling.call` raised."""
    repeatable = skill.repeatable
    match error:
        case InvalidParam(name=None):
            return errors.malformed(str(error))
        case InvalidParam(name=str() as name):
            # the path inside the parameter, if there is one
            return _with_text(errors.invalid_param(name, error.reason), str(error))
        case SkillTimeout():
            return errors.timed_out(repeatable=repeatable)
        case RemoteError(error=StanzaError() as passed_on):
            return passed_on
        case SkillInterrupted() if not repeatable:
            return _with_text(errors.outcome_unknown(), str(error))
        case SkillUnavailable():
            found = errors.remote_failure(repeatable=repeatable or not error.begun)
            return _with_text(found, str(error))
        case CapabilityMissing():
            return errors.forbidden(str(error))
        case SkillFailed(__cause__=Denied() as denied):
            return _with_text(errors.denied(), denied.reason)
        case SkillFailed(reason=str() as reason) if reason:
            _log.warning("a skill was stopped", skill=skill.name, reason=reason)
            return _with_text(errors.internal(), str(error))
    _log.error("a skill failed", skill=skill.name, exc_info=error.__cause__ or error)
    return errors.internal()


def _with_text(error: StanzaError, text: str) -> StanzaError:
    error.text = text or error.text
    return error


class _Artifact(msgspec.Struct):
    type: str
    texts: list[str]
    ended: bool = False
    said: int = 0
    """The number of parts that this execution has produced; those recorded before are not published
    again.
    """


class Parts:
    """The artifact parts of one task, including those of its earlier executions.

    Args:
        most_bytes: the maximum size of their texts together.

    Attributes:
        all: all parts in the order in which they were published.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._artifacts: dict[str, _Artifact] = {}
        self.all: list[Output] = []

    def next(self, name: str, text: str, media_type: str, *, last: bool) -> Output | None:
        """Return the next part of an artifact; None if an earlier execution has published it.

        Raises ValueError with a sentence for the skill's author.
        """
        artifact = self._artifacts.get(name)
        if artifact is None:
            artifact = _Artifact(media_type, [])
        number = artifact.said
        artifact.said += 1
        if number < len(artifact.texts):
            return None
        if artifact.ended:
            raise ValueError(f"the artifact {name!r} has had its last part")
        if artifact.type != media_type:
            raise ValueError(f"the artifact {name!r} is {artifact.type}, not {media_type}")
        if self._bytes + len(text.encode()) > self._most_bytes:
            artifact.said -= 1
            raise ValueError(f"the artifacts of one task may have at most {self._most_bytes} bytes")
        self._artifacts[name] = artifact
        return Output(name=name, type=media_type, part=number, last=last, text=text)

    def shown(self, part: Output) -> None:
        """Record that a part was published."""
        artifact = self._artifacts.setdefault(part.name, _Artifact(part.type, []))
        artifact.texts.append(part.text)
        artifact.ended = part.last
        self._bytes += len(part.text.encode())
        self.all.append(part)

    def add_shown(self, parts: Iterable[Output]) -> None:
        """Add parts that others have published: those of child tasks."""
        for part in parts:
            known = self._artifacts.get(part.name)
            if part.part == (0 if known is None else len(known.texts)):
                self.shown(part)

    async def completed(self, result: Result, most_bytes: int, share: Put) -> Result:
        """Return the result with every artifact complete (ART-004), and each only once: what the
        result itself has counts, which can be a reference to the same. The largest are given by
        reference if they would have more than `most_bytes` together.
        """
        given = {one.name for one in result.outputs}
        whole = [
            skill_outputs.Output("".join(artifact.texts), artifact.type, name)
            for name, artifact in self._artifacts.items()
            if name not in given
        ]
        if not whole:
            return result
        fitted = await fitting(SkillResult(tuple(whole)), most_bytes, share)
        added = [
            _artifact(part, one.name or "", link)
            for one, part, link in zip(whole, fitted.made.outputs, fitted.links, strict=True)
        ]
        return msgspec.structs.replace(result, outputs=(*added, *result.outputs))
