"""Stanzas as XML."""

from datetime import datetime

from xep.binding.escaping import escape_attribute
from xep.stanza import Incoming


def inside(stanza: Incoming) -> str:
    """Return the children of a stanza, as XML."""
    xml = stanza.forward()
    begin = xml.index(">") + 1
    return "" if xml[begin - 2] == "/" else xml[begin : xml.rindex("</")]


def returned(error: str, stanza: Incoming) -> str:
    """Return an error with the children of the stanza that it answers, as ejabberd sends it."""
    begin = error.index(">") + 1
    return error[:begin] + inside(stanza) + error[begin:]


def delayed(xml: str, by: str, at: datetime, text: str = "") -> str:
    """Return a stanza with the time at which it was sent (XEP-0203)."""
    delay = (
        f"<delay xmlns='urn:xmpp:delay' from='{escape_attribute(by)}'"
        f" stamp='{at:%Y-%m-%dT%H:%M:%SZ}'>{text}</delay>"
    )
    if xml.endswith("/>"):
        return f"{xml[:-2]}>{delay}</{xml[1 : xml.index(' ')]}>"
    end = xml.rindex("</")
    return f"{xml[:end]}{delay}{xml[end:]}"
