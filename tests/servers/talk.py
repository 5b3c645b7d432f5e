"""What clients say to the service in the tests, and how its answers are read."""

from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from tests.servers.base import Server
from tests.servers.clients import Element, SlixClient

FLUUX = "urn:fluux:agent:0"
EXECUTE = f"{FLUUX}#execute"
SKILLS = f"{FLUUX}#skills"
ERRORS = f"{FLUUX}#errors"
INFO = "http://jabber.org/protocol/disco#info"
ITEMS = "http://jabber.org/protocol/disco#items"
RSM = "http://jabber.org/protocol/rsm"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
ROSTER = "<query xmlns='jabber:iq:roster'/>"
PING = "<ping xmlns='urn:xmpp:ping'/>"


def login(server: Server, account: str = "juliet", **options: Any) -> SlixClient:
    """A client of one of the server's accounts, not yet connected."""
    options = {"password": server.accounts[account], "ca_file": server.ca_file} | options
    return SlixClient(server.jid(account), host=server.address, port=server.c2s_port, **options)


def execute(skill: str, *, attributes: str = "", json: str | None = None, **params: object) -> str:
    """The payload that executes a skill; a list repeats the parameter."""
    inside = "".join(
        f"<param name={quoteattr(name)}>{escape(str(value))}</param>"
        for name, values in params.items()
        for value in (values if isinstance(values, list) else [values])
    )
    if json is not None:
        inside += f"<params type='application/json'>{escape(json)}</params>"
    return f"<execute xmlns='{EXECUTE}' skill={quoteattr(skill)} {attributes}>{inside}</execute>"


def query(namespace: str, attributes: str = "", inside: str = "") -> str:
    """The payload of a query."""
    return f"<query xmlns='{namespace}' {attributes}>{inside}</query>"


def page(limit: int, after: str | None = None) -> str:
    """The set that asks for a page (XEP-0059)."""
    more = "" if after is None else f"<after>{after}</after>"
    return f"<set xmlns='{RSM}'><max>{limit}</max>{more}</set>"


def result(stanza: Element) -> Element:
    """The only child of an IQ of type result."""
    assert stanza.get("type") == "result", ET.tostring(stanza, "unicode")
    (child,) = stanza
    return child


def output(stanza: Element) -> str:
    """The text of the only output of a skill that said yes."""
    answer = result(stanza)
    assert answer.get("is-error") == "false", ET.tostring(stanza, "unicode")
    (found,) = answer.findall(f"{{{EXECUTE}}}output")
    return found.text or ""


def error(stanza: Element) -> Element:
    """The error element of an IQ of type error."""
    assert stanza.get("type") == "error", ET.tostring(stanza, "unicode")
    found = stanza.find("{*}error")
    assert found is not None
    return found


def condition(stanza: Element) -> str:
    """The defined condition of an error (RFC 6120 §8.3.3)."""
    (name,) = [
        child.tag.rpartition("}")[2]
        for child in error(stanza)
        if child.tag.startswith(f"{{{STANZAS}}}") and not child.tag.endswith("}text")
    ]
    return name


def application(stanza: Element) -> Element | None:
    """The application condition of an error, if it has one."""
    return next((child for child in error(stanza) if child.tag.startswith(f"{{{ERRORS}}}")), None)


def but_the_id(stanza: Element) -> str:
    """The whole stanza as text, without its id: what may not differ must be equal as this."""
    copy = ET.fromstring(ET.tostring(stanza, "unicode"))
    del copy.attrib["id"]
    return canonical(copy)


def canonical(element: Element) -> str:
    """An element as Canonical XML, in which the order of attributes makes no difference."""
    return ET.canonicalize(ET.tostring(element, "unicode"))


def from_(address: str, type_: str | None = None) -> Any:
    """A test for stanzas from an address, without its resource, of a type."""
    return lambda s: s.get("from", "").partition("/")[0] == address and s.get("type") == type_
