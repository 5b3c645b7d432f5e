"""The request of a skill of the kind `rest`, as a manifest declares it.

docs/rest.md describes the keys; they mean the same as in a section `[rest.NAME]` of the settings.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from component.skills.capabilities import CredentialName

Method: TypeAlias = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_MOST_BYTES = 64 << 20


class RestRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[skill.request]`: `{name}` in the texts stands for the value of a parameter.

    Attributes:
        url: the URL without a query.
        method: the HTTP method.
        query: fields of the query.
        headers: header fields. They are public; secrets are credentials.
        body: JSON to send.
        credential: a declared credential, which the service adds.
    """

    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    method: Method = "GET"
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: dict[str, Any] | None = None
    credential: CredentialName | None = None


class RestResponse(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[skill.response]`: what becomes of the response.

    Attributes:
        select: JMESPath expression that selects a part of the JSON.
        output: text with JMESPath expressions in braces; without it the result is the JSON.
        max_bytes: the size that a response may have.
    """

    select: str = ""
    output: Annotated[str, Meta(max_length=2000)] = ""
    max_bytes: Annotated[int, Meta(ge=1024, le=_MOST_BYTES)] = 1_048_576
