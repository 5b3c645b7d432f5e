"""Credentials of an API: where the document says that they go, and what the settings contain."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from component.features.apis.openapi.document import Document, Unusable, mapping
from component.rest.parts import header_value
from component.skills.errors import InvalidParam

Pairs = tuple[tuple[str, str], ...]
_NAMES: Final = frozenset(
    "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)


class Granted(msgspec.Struct, frozen=True):
    """The credentials that a request gets: header fields, and fields of the query."""

    headers: Pairs = ()
    query: Pairs = ()


def granted(
    document: Document, alternatives: Sequence[Sequence[str]], secrets: Mapping[str, str]
) -> Granted:
    """Return the credentials for an operation: those of the first alternative that the settings
    satisfy.

    Raises Unusable if they satisfy none.
    """
    if not alternatives:
        return Granted()
    # An empty alternative says that credentials are optional: those that there are are better.
    for needed in sorted(alternatives, key=lambda each: not each):
        if all(name in secrets for name in needed):
            schemes = mapping(mapping(document.root.get("components")).get("securitySchemes"))
            headers: Pairs = ()
            query: Pairs = ()
            for name in needed:
                one = _applied(document, schemes.get(name), name, secrets[name])
                headers, query = headers + one.headers, query + one.query
            return Granted(headers, query)
    names = " or ".join(" and ".join(each) for each in alternatives)
    raise Unusable(f"needs credentials for {names}, which the settings do not have")


def _applied(document: Document, node: object, name: str, secret: str) -> Granted:
    scheme = document.node(node)
    kind = str(scheme.get("type"))
    if kind == "apiKey":
        field, place = scheme.get("name"), scheme.get("in")
        if isinstance(field, str) and field:
            if place == "header" and set(field) <= _NAMES:
                return Granted(headers=((field, _value(name, secret)),))
            if place == "query":
                return Granted(query=((field, secret),))
    elif kind == "http" and str(scheme.get("scheme")).lower() == "basic":
        encoded = base64.b64encode(secret.encode()).decode()
        return Granted(headers=(("Authorization", f"Basic {encoded}"),))
    elif kind in ("oauth2", "openIdConnect") or str(scheme.get("scheme")).lower() == "bearer":
        return Granted(headers=(("Authorization", f"Bearer {_value(name, secret)}"),))
    raise Unusable(f"needs credentials of the kind of {name}, which are not supported")


def _value(name: str, secret: str) -> str:
    try:
        return header_value(name, secret)
    except InvalidParam:
        raise Unusable(f"needs {name}, whose value in the settings no header can have") from None
