"""Payloads as stored text."""

from typing import TypeVar
from xml.etree import ElementTree

from xep.binding.declaration import Payload, RawXML
from xep.binding.decoder import decode
from xep.binding.encoder import encode
from xep.binding.errors import ContentError

P = TypeVar("P", bound=Payload)


def keep(payload: Payload) -> RawXML:
    """Return ``payload`` as XML text that is valid wherever an element of any name is."""
    return RawXML(encode(payload))


def read(text: str, *classes: type[P]) -> P:
    """Decode ``text``: the result of `encode`, or the text of a `RawXML`.

    For text that this program has written, from parsed or created elements: ``text`` does not pass
    the checks of a stream.

    Raises:
        ContentError: it is not XML, or none of the classes.
    """
    try:
        # The text was written by `encode`, which writes neither DTD nor entity.
        element = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as error:
        raise ContentError("payload", f"no XML was kept: {error}") from error
    for cls in classes:
        if cls.xml.tag == element.tag:
            return decode(cls, element)
    raise ContentError(element.tag, "another element was kept than is expected")
