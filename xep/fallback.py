"""XEP-0428 Fallback Indication: the part of a body that is for clients that lack a feature."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload

NAMESPACE: Final = "urn:xmpp:fallback:0"


class FallbackBody(Payload, frozen=True, kw_only=True):
    """A range of the body, in Unicode code points; all of it without ``start`` and ``end``."""

    xml = Name(NAMESPACE, "body")

    start: Annotated[int | None, Attr()] = None
    end: Annotated[int | None, Attr()] = None


class Fallback(Payload, frozen=True, kw_only=True):
    """A fallback for the feature of the namespace ``for_``; without a range it is the
    whole body.
    """

    xml = Name(NAMESPACE, "fallback")

    for_: Annotated[str | None, Attr("for")] = None
    bodies: Annotated[tuple[FallbackBody, ...], Child()] = ()


def without_fallback(body: str, fallback: Fallback) -> str:
    """Return the body without the ranges of a fallback (XEP-0428 §4), which may overlap.

    Raises ValueError: a range is not within the body.
    """
    if not fallback.bodies:
        return ""
    kept: list[str] = []
    at = 0
    ranges = [
        (one.start or 0, len(body) if one.end is None else one.end) for one in fallback.bodies
    ]
    for start, end in sorted(ranges):
        if not 0 <= start <= end <= len(body):
            raise ValueError(f"the fallback from {start} to {end} is not a range of the body")
        kept.append(body[at:start])
        at = max(at, end)
    return "".join((*kept, body[at:]))
