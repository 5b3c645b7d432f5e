"""Converts what a skill returns and raises to the result or the error of a task, and collects the
artifacts that it publishes while it runs (specification, "Artifacts Before the End").
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final
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
from component.tasks.protocol import CannotShare, Share
from xep import file_sharing
from xep.binding import encode
from xep.file_sharing import FileSharing, Sources, UrlData
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output, Result, Usage
from xep.hashes import Hash
from xep.stanza_error import StanzaError

_SCHEME = "data:"

_BASE64 = ";base64"


def shared(part: File | Link) -> FileSharing:
    """Return the reference to a file or a link."""
    hashes: tuple[Hash, ...] = ()
    if isinstance(part, Link):
        url, size = part.url, part.size
        if part.sha256 is not None:
            hashes = (Hash(algo="sha-256", digest=part.sha256),)
    else:
        encoded = base64.b64encode(part.data).decode()
        url, size = f"{_SCHEME}{part.media_type}{_BASE64},{encoded}", len(part.data)
    return FileSharing(
        disposition="inline" if (part.media_type or "").startswith("image/") else "attachment",
        file=file_sharing.File(
            media_type=part.media_type, name=part.name, size=size, hashes=hashes
        ),
        sources=Sources(urls=(UrlData(target=url),)),
    )


def part_of(file: FileSharing) -> File | Link | None:
    """Return the file or the link of a reference; None if it has no URL that can be read."""
    about = file.file
    for url in file.sources.urls:
        if not url.target.startswith(_SCHEME):
            sha256 = next((one.digest for one in about.hashes if one.algo == "sha-256"), None)
            return Link(url.target, about.media_type, about.name, about.size, sha256)
        head, _, body = url.target.removeprefix(_SCHEME).partition(",")
        try:
            data = base64.b64decode(body, validate=True) if head.endswith(_BASE64) else None
        except binascii.Error:
            continue
        kind = about.media_type or head.removesuffix(_BASE64) or "text/plain"
        return File(unquote_to_bytes(body) if data is None else data, kind, about.name)
    return None


def text_of(output: Output) -> str:
    """Return an artifact for people: its text, or the name of its file with its URLs."""
    if output.file is None:
        return output.text
    label, part = output.file.file.name or output.name, part_of(output.file)
    if isinstance(part, File):
        return f"{label}: {part.media_type}, {len(part.data):,} bytes"
    urls = [url.target for url in output.file.sources.urls if not url.target.startswith(_SCHEME)]
    return "\n".join((f"{label}:", *urls))


def texts_of(outputs: Sequence[Output]) -> list[str]:
    """Return artifacts for people. JSON is left out beside a text: it is for programs."""
    shown = [(output.type, text) for output in outputs if (text := text_of(output)).strip()]
    has_text = any(kind != JSON for kind, _ in shown)
    return [text for kind, text in shown if kind != JSON or not has_text]


_PER_PART: Final = 512
"""Approximate bytes of a part beside its content."""

_EXTENSIONS: Final = {"text/plain": "txt", "application/json": "json", "text/markdown": "md"}


async def fitting(made: SkillResult, most_bytes: int, share: Share) -> SkillResult:
    """Return a result that fits, its largest parts by reference if needed. Raises CannotShare."""
    if 4 * least_size(made) + _PER_PART * len(made.outputs) <= most_bytes:
        return made
    parts = list(made.outputs)
    sizes = [_size(part) for part in parts]
    while sum(sizes) > most_bytes:
        index = max(range(len(parts)), key=sizes.__getitem__)
        part = parts[index]
        if isinstance(part, Link) or sizes[index] <= 2 * _PER_PART:
            raise CannotShare("it has too many parts")
        link = await share(_file_of(part, index))
        parts[index] = msgspec.structs.replace(link, name=part.name)
        sizes[index] = _size(parts[index])
    return msgspec.structs.replace(made, outputs=tuple(parts))


def least_size(made: SkillResult) -> int:
    """Return a lower bound for the bytes of a result in a stanza, from lengths alone."""
    return sum(len(_content(part)) for part in made.outputs)


def _content(part: Part) -> str | bytes:
    if isinstance(part, skill_outputs.Output):
        return part.text
    return part.data if isinstance(part, File) else part.url


def _size(part: Part) -> int:
    content = _content(part)
    if isinstance(content, bytes):
        return _PER_PART + len(content) * 4 // 3
    return _PER_PART + len(content.encode(errors="surrogatepass"))


def _file_of(part: skill_outputs.Output | File, index: int) -> File:
    if isinstance(part, File):
        return part
    kind = part.media_type.partition(";")[0].strip().lower()
    name = part.name or _numbered(index)
    if "." not in name:
        name = f"{name}.{_EXTENSIONS.get(kind, 'txt')}"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return File(part.text.encode(), f"{kind}{charset}", name)


def _numbered(index: int) -> str:
    return "output" if index == 0 else f"output-{index + 1}"


_log = structlog.get_logger("component.tasks")


def result_of(skill: Skill, made: SkillResult) -> Result:
    """Return the result of a skill. Artifacts without a name get a unique one (EXE-011)."""
    outputs: list[Output] = []
    taken = {one.name for one in made.outputs} if len(made.outputs) > 1 else set()
    for index, one in enumerate(made.outputs):
        name = one.name or _numbered(index)
        while one.name is None and name in taken:
            name += "-"
        taken.add(name)
        outputs.append(_artifact(one, name))
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


def _artifact(part: Part, name: str) -> Output:
    if isinstance(part, skill_outputs.Output):
        return Output(name=name, type=part.media_type, text=part.text)
    kind = part.media_type or "application/octet-stream"
    return Output(name=name, type=kind, file=shared(part))


def checked(skill: Skill, result: Result, most_bytes: int) -> Result | StanzaError:
    """Return the result, or an error if it is too large or two artifacts have the same name."""
    names = [output.name for output in result.outputs]
    if len(set(names)) != len(names):
        _log.error("a skill returned two outputs with the same name", skill=skill.name, names=names)
        return errors.internal()
    size = len(encode(result).encode())
    return result if size <= most_bytes else errors.too_big(most_bytes)


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

    def completed(self, result: Result) -> Result:
        """Return the result with every artifact complete (ART-004), and each only once: what the
        result itself has counts, which can be a reference to the same.
        """
        given = {one.name for one in result.outputs}
        whole = [
            Output(name=name, type=artifact.type, text="".join(artifact.texts))
            for name, artifact in self._artifacts.items()
            if name not in given
        ]
        return msgspec.structs.replace(result, outputs=(*whole, *result.outputs))
