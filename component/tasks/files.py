"""Files of results as references (XEP-0447). The URL of a file that a skill returns contains its
bytes (RFC 2397).
"""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote_to_bytes

from component.skills.outputs import File, Link
from xep import file_sharing
from xep.file_sharing import FileSharing, Sources, UrlData
from xep.fluux_agent.execute import Output
from xep.hashes import Hash

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
    """Return an artifact for people: its text, or the name of its file with a URL that they can
    open, if there is one.
    """
    if output.file is None:
        return output.text
    label, part = output.file.file.name or output.name, part_of(output.file)
    if isinstance(part, File):
        return f"{label}: {part.media_type}, {len(part.data):,} bytes"
    urls = [url.target for url in output.file.sources.urls if not url.target.startswith(_SCHEME)]
    return "\n".join((f"{label}:", *urls))
