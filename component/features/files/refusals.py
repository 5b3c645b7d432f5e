"""Which files the service accepts and can read, and the sentences that refuse the others."""

import hashlib
import mimetypes
import re
from typing import Final
from urllib.parse import unquote, urlsplit

from component.conversations.stored_files import StoredFile
from component.features.files.settings import Files
from component.link.messages.inbound import Attachment
from component.memory.content_types import READERS, content_type
from component.models.contents import IMAGES
from component.skills.errors import printable

MOST_FILES: Final = 10
"""Files of one message that are fetched."""
_LONGEST_NAME: Final = 100
_NOT_IN_NAMES: Final = re.compile(r"[/\\:\x00-\x1f\x7f\ud800-\udfff]+")

_SUFFIX: Final = re.compile(r"\.[A-Za-z0-9]{1,8}$")

TOO_MANY: Final = "I did not take {name}: I take at most {most} files of one message."
TOO_LARGE: Final = "I did not take {name}, because it is larger than {most}."
REFUSED: Final = (
    "I did not fetch {name}: I only fetch files from public servers by HTTPS on the usual ports,"
    " and from the upload service of my own server."
)
SLOW: Final = (
    "I have not got {name}: its server did not deliver it within {seconds:g} seconds. Please send"
    " it again later."
)
MISSING: Final = (
    "I have not got {name}: its server says that it is not there (HTTP status {status})."
)
STATUS: Final = "I have not got {name}: its server answers with HTTP status {status}."
FAILED: Final = "I have not got {name}. {reason}"
UNREADABLE: Final = "I can't read {name}: {reason}."
WITH_COMMAND: Final = "I have not taken {names}: files that come with a command are not read."
_OFF: Final = "I did not take {name}: my operator has turned off that I take files."
_ENCRYPTED: Final = (
    "{name} is encrypted for OMEMO, and I can't decrypt it. Please turn encryption off for this"
    " chat and send it again."
)
_NOT_UPLOADED: Final = (
    "I can't take {name}, because only your client has it. Please send it in a way that uploads it"
    " to your server."
)
_NO_WEB: Final = "I can't fetch {name}, because its address is not one of HTTPS."
_EMPTY: Final = "{name} is empty."
_OTHER_SIZE: Final = (
    "I have not read {name}: you have sent a file of {stated:,} bytes, and what I got from its"
    " server has {size:,}. Please send it again."
)
_OTHER_DIGEST: Final = (
    "I have not read {name}: what I got from its server is not what you have sent, because its"
    " {algorithm} is another one. Please send it again."
)
_VOICE: Final = "I can't listen to {name} yet. Please write what you have said."
_VIDEO: Final = "I can't watch {name}. Please write what is in it, or send a picture."
_IMAGE: Final = (
    "I can't look at {name}, because it is an image of the type {kind}. Please send it as JPEG or"
    " PNG."
)
_LARGE_IMAGE: Final = (
    "I can't look at {name}: it has {size}, and I can look at images of at most {most}. Please send"
    " a smaller one."
)
_UNKNOWN: Final = (
    "I can't read {name}: I read images, PDF, HTML, text and office documents, and it is {kind}."
)


class Refusal(Exception):  # noqa: N818 - it says what happened to the file
    """A file was not taken. The text is a sentence for its sender."""


def check_offer(sent: Attachment, settings: Files) -> None:
    """Check a file as its sender describes it. Raises Refusal."""
    name, scheme = shown_name(sent), sent.url.partition(":")[0].lower()
    if not settings.receive:
        raise Refusal(_OFF.format(name=name))
    if scheme == "aesgcm":
        raise Refusal(_ENCRYPTED.format(name=name))
    if not sent.url:
        raise Refusal(_NOT_UPLOADED.format(name=name))
    if scheme not in ("https", "http"):
        raise Refusal(_NO_WEB.format(name=name))
    if sent.size is not None and sent.size > settings.max_file_bytes:
        raise Refusal(too_large(sent, settings))


def check_content(sent: Attachment, data: bytes) -> None:
    """Check that a file is what its sender has sent. Raises Refusal."""
    name = shown_name(sent)
    if not data:
        raise Refusal(_EMPTY.format(name=name))
    if sent.size is not None and sent.size != len(data):
        raise Refusal(_OTHER_SIZE.format(name=name, size=len(data), stated=sent.size))
    for algorithm, digest in sent.hashes:
        # XEP-0300 has the names of the standards: `sha3-256`.
        function = algorithm.replace("sha-", "sha").replace("-", "_")
        if function not in hashlib.algorithms_guaranteed or function.startswith("shake"):
            continue
        if hashlib.new(function, data, usedforsecurity=False).hexdigest() != digest:
            raise Refusal(_OTHER_DIGEST.format(name=name, algorithm=algorithm))


def too_large(sent: Attachment, settings: Files) -> str:
    """Return the sentence about a file that is too large."""
    return TOO_LARGE.format(name=shown_name(sent), most=_megabytes(settings.max_file_bytes))


def unread(file: StoredFile, settings: Files) -> str:
    """Return why a model cannot read a file of this type; empty if it can."""
    kind = file.media_type
    if kind in READERS or (kind in IMAGES and file.size <= settings.max_image_bytes):
        return ""
    if kind in IMAGES:
        sizes = {"size": _megabytes(file.size), "most": _megabytes(settings.max_image_bytes)}
        return _LARGE_IMAGE.format(name=file.name, **sizes)
    sentence = {"image": _IMAGE, "audio": _VOICE, "video": _VIDEO}.get(kind.partition("/")[0])
    return (sentence or _UNKNOWN).format(name=file.name, kind=kind)


def shown_name(sent: Attachment) -> str:
    """Return the name of a file for its sender."""
    name = sent.name or urlsplit(sent.url).path.rpartition("/")[2] or sent.description or "a file"
    return printable(unquote(name), _LONGEST_NAME)


def file_name(sent: Attachment, data: bytes) -> str:
    """Return the name under which a file is stored, which ends as its content demands if its sender
    gives no ending.
    """
    given = unquote(sent.name or urlsplit(sent.url).path.rpartition("/")[2])
    name = _NOT_IN_NAMES.sub("_", printable(given, _LONGEST_NAME)).strip(". ") or "file"
    if _SUFFIX.search(name) is None:
        name += mimetypes.guess_extension(content_type(data)) or ""
    return name[-_LONGEST_NAME:].lstrip(". ")


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.3g} MB"
