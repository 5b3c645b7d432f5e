"""What is asked for: the parameters of the skills, which commands use as well."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from component.features.objects.settings import TYPE_PATTERN
from component.memory.sharing import PRIVATE

MOST_FOUND: Final = 100
"""The maximum number of objects on a page of a query."""

Type = Annotated[str, Meta(pattern=TYPE_PATTERN)]
Id = Annotated[str, Meta(min_length=1, max_length=128)]
Scope = Annotated[str, Meta(max_length=64)]
Tag = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\r\n]*$")]
Tags = Annotated[tuple[Tag, ...], Meta(max_length=32)]
Version = Annotated[int, Meta(ge=0)]


class NewObject(msgspec.Struct, frozen=True, kw_only=True):
    """The version of an object that is to be stored.

    Args:
        type: Type of the object, such as task, event, contact, note or project: lower-case letters,
            digits, - and _.
        data: The members of the object. Write dates as 2026-12-24 and times as
            2026-12-24T19:30:00Z, so that they can be compared.
        id: Id of the object; empty for a new object, which gets one.
        tags: Words by which it is found. Default: those that it has.
        merge: Change only the members that data has, and delete those that are null there.
            Otherwise data replaces all members.
        if_version: Store it only if the object has this version now; 0 only if there is none.
        scope: Whose object: private (this person's or this room's alone), or a scope that several
            people share.
    """

    type: Type
    data: dict[str, Any]
    id: Annotated[str, Meta(max_length=128)] = ""
    tags: Tags | None = None
    merge: bool = False
    if_version: Version | None = None
    scope: Scope = PRIVATE


class ObjectQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects are wanted, in which order, and which page of them.

    Args:
        type: Type of the objects; empty for all types.
        filter: Conditions on the members of the data, as in MongoDB: {"status": "open", "due":
            {"$lt": "2026-12-24"}, "address.city": {"$in": ["Verona", "Mantua"]}}. Operators: $eq
            $ne $gt $gte $lt $lte $in $nin $exists $regex $contains $not, and $and $or $nor of
            filters.
        text: Words that must all be in the object, in any member.
        tags: Tags that it must all have.
        order: created, updated, id or data. and a member, such as data.due; with - before it the
            last ones come first.
        limit: Most objects to return.
        cursor: The cursor of the page before, to go on after it with the same parameters.
        select: Members of the data to return, such as title or address.city. Default: all.
        scope: Whose objects: private (this person's or this room's alone), or a scope that several
            people share.
    """

    type: Annotated[str, Meta(max_length=64)] = ""
    filter: dict[str, Any] = {}
    text: Annotated[str, Meta(max_length=500)] = ""
    tags: Tags = ()
    order: Annotated[str, Meta(max_length=500)] = "-created"
    limit: Annotated[int, Meta(ge=1, le=MOST_FOUND)] = 20
    cursor: Annotated[str, Meta(max_length=4000)] = ""
    select: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    scope: Scope = PRIVATE


class ObjectName(msgspec.Struct, frozen=True, kw_only=True):
    """An object.

    Args:
        type: Type of the object, such as task.
        id: Id of the object.
        scope: Whose object: private (this person's or this room's alone), or a scope that several
            people share.
    """

    type: Type
    id: Id
    scope: Scope = PRIVATE


class DeletedObject(ObjectName, frozen=True, kw_only=True):
    """An object that is to be deleted.

    Args:
        type: Type of the object, such as task.
        id: Id of the object.
        scope: Whose object: private (this person's or this room's alone), or a scope that several
            people share.
        if_version: Delete it only if it has this version now.
    """

    if_version: Version | None = None


class NewSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The schema that a type is to have.

    Args:
        type: Type of the objects, such as task.
        schema: JSON Schema of their data, which is an object; null for none.
        scope: Whose objects: private (this person's or this room's alone), or a scope that several
            people share.
    """

    type: Type
    schema: dict[str, Any] | None
    scope: Scope = PRIVATE
