"""Payloads that were written down and are read again."""

from typing import TypeVar
from xml.etree import ElementTree

from xep.binding.declaration import Payload
from xep.binding.decoder import decode
from xep.binding.errors import ContentError

P = TypeVar("P", bound=Payload)


def read(text: str, *classes: type[P]) -> P:
    """The payload that `encode` wrote as ``text``, which is one of ``classes``.

    For what this program has written itself: ``text`` passes none of the checks of a stream.

    Raises:
        ContentError: it is no XML, or none of the classes.
    """
    try:
        # What is read here was written by `encode`, which writes neither DTD nor entity.
        element = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as error:
        raise ContentError("payload", f"no XML was kept: {error}") from error
    for cls in classes:
        if cls.xml.tag == element.tag:
            return decode(cls, element)
    raise ContentError(element.tag, "another element was kept than is expected")
