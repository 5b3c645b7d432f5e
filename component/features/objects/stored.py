"""An object, as it is stored and as programs get it."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from component.policy.taint import Taint

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ObjectError(Exception):
    """What was asked for is not possible. The message is a sentence for the one who asked; `param`
    is the parameter that it is about, if there is one.
    """

    def __init__(self, sentence: str, param: str = "") -> None:
        super().__init__(sentence)
        self.param = param


class Author(msgspec.Struct, frozen=True, gc=False):
    """Who has written a version of an object: a bare JID, and the agent whose model has done it for
    that person; empty if the person herself has.
    """

    by: str
    via: str = ""


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one version of an object has, as its row stores it. Nothing in `data` may be changed:
    queries share it.

    Attributes:
        taints: the possible authors of the data, besides the one who has stored it.
        created: when the object was stored first, in milliseconds since 1970; `updated` is the time
            of this version.
        creator: who has stored the first version; `author` has stored this one.
    """

    data: dict[str, Any]
    tags: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()
    created: int
    updated: int
    creator: Author
    author: Author


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """One version of an object. `version` counts the versions of this object, from 1. `revision` is
    that of its type, when this version was stored (`component.features.objects.rows`).
    """

    type: str
    id: str
    version: int
    revision: int
    content: Content


class ObjectSheet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An object for programs: what skills return, and the payload of its item. Times are in UTC, in
    the format of RFC 3339. `origins` are the taints of its data.
    """

    type: str
    id: str
    version: int
    data: Any
    tags: tuple[str, ...] = ()
    created: str
    updated: str
    created_by: str
    created_via: str = ""
    updated_by: str
    updated_via: str = ""
    origins: tuple[Taint, ...] = ()


def sheet_of(one: StoredObject) -> ObjectSheet:
    """Return an object for programs."""
    content = one.content
    return ObjectSheet(
        type=one.type,
        id=one.id,
        version=one.version,
        data=content.data,
        tags=content.tags,
        created=time_text(content.created),
        updated=time_text(content.updated),
        created_by=content.creator.by,
        created_via=content.creator.via,
        updated_by=content.author.by,
        updated_via=content.author.via,
        origins=content.taints,
    )


def instant(milliseconds: int) -> datetime:
    """Return the time of so many milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def time_text(milliseconds: int) -> str:
    """Return a time in the format of RFC 3339, with milliseconds."""
    return instant(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
