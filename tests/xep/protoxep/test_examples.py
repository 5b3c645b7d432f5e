"""Every example is valid, and is read and written again without loss."""

import base64
import hashlib
import json
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest

from tests import schemas
from tests.xep.protoxep.document import document, examples
from tests.xep.strategies import PAYLOADS
from xep import commands
from xep.binding import Payload, decode, encode
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm, digest_of, standing_digest_of
from xep.jid import JID
from xep.stanza import NAMESPACE, Incoming
from xep.stanza_error import StanzaError

CLASSES = {cls.xml.tag: cls for cls in PAYLOADS}
# What stanzas and PubSub wrap payloads in; neither is declared as a payload of its own.
STANZAS = {f"{{{NAMESPACE}}}{kind}" for kind in ("iq", "message", "presence")}
PUBSUB = "http://jabber.org/protocol/pubsub"
WRAPPERS = {
    *STANZAS,
    *(f"{{{PUBSUB}}}{name}" for name in ("pubsub", "items", "item", "publish")),
    *(f"{{{PUBSUB}#event}}{name}" for name in ("event", "items", "item")),
}
TEXTS = {f"{{{NAMESPACE}}}{name}" for name in ("body", "subject", "thread")}
every_example = pytest.mark.parametrize(
    "text", [text for _, text in examples()], ids=[caption for caption, _ in examples()]
)


def stanzas(text: str) -> list[ET.Element]:
    return list(ET.fromstring(f"<stream xmlns='{NAMESPACE}'>{text}</stream>"))


def payloads(element: ET.Element) -> Iterator[ET.Element]:
    """The outermost elements that are payloads; nothing else may stand beside them."""
    if element.tag in WRAPPERS:
        for child in element:
            yield from payloads(child)
    elif element.tag not in TEXTS:
        yield element


def canonical(xml: str | bytes) -> str:
    return ET.canonicalize(xml.decode() if isinstance(xml, bytes) else xml, rewrite_prefixes=True)


def without_layout(element: ET.Element) -> ET.Element:
    """The element without the white space that only makes it readable."""
    for one in element.iter():
        if len(one) and not (one.text or "").strip():
            one.text = None
        one.tail = None
    return element


@every_example
def test_it_is_stanzas_with_addresses(text: str) -> None:
    found = stanzas(text)
    assert found
    for element in found:
        assert element.tag in STANZAS
        stanza = Incoming.of(element, len(text))
        if stanza.kind == "iq":
            assert stanza.id
            assert stanza.sender
            assert stanza.to


@every_example
def test_it_fits_the_schemas(text: str) -> None:
    schemas.check(f"<stream xmlns='{NAMESPACE}'>{text}</stream>")


@every_example
def test_it_is_read_and_written_without_loss(text: str) -> None:
    for stanza in stanzas(text):
        for element in payloads(stanza):
            element = without_layout(element)  # noqa: PLW2901 - the same element
            if element.tag == f"{{{NAMESPACE}}}error":
                read = StanzaError.of(element, errors.CONDITIONS + commands.CONDITIONS)
                written = f"<e xmlns='{NAMESPACE}'>{read.encode()}</e>"
                assert canonical(ET.tostring(ET.fromstring(written)[0])) == canonical(
                    ET.tostring(element)
                )
                continue
            cls: type[Payload] = CLASSES[element.tag]
            decoded = decode(cls, element, strict=True)
            assert canonical(encode(decoded)) == canonical(ET.tostring(element))
            assert decode(cls, ET.fromstring(encode(decoded)), strict=True) == decoded


def test_the_digest_is_that_of_the_text_shown_and_of_the_question() -> None:
    (shown,) = [code.text or "" for code in document().iter("code") if code.get("caption") is None]
    confirms = [
        (stanza, decode(Confirm, element))
        for _, text in examples()
        for stanza in stanzas(text)
        for element in payloads(stanza)
        if element.tag == Confirm.xml.tag
    ]
    (message, confirm), *others = [found for found in confirms if found[1].hash is not None]
    for _, each in others:  # to a room, where the agent has another address
        assert each.hash is not None
        assert digest_of(JID.parse(message.get("from") or ""), each) == each.hash.digest
    (offering,) = [each for _, each in others if each.standing is not None]
    assert offering.standing is not None
    assert offering.standing.hash is not None
    agent = JID.parse(message.get("from") or "")
    assert standing_digest_of(agent, offering) == offering.standing.hash.digest
    assert confirm.hash is not None
    assert confirm.action.json_params is not None
    params = json.loads(bytes(confirm.action.json_params.json))
    params |= {param.name: param.text for param in confirm.action.params}
    (expires,) = [one.text for one in message.iter() if one.tag.endswith("}expires")]
    covered = {
        "agent": message.get("from"),
        "confirmation": confirm.id,
        "expires": expires,
        "params": params,
        "principal": str(confirm.principal),
        "skill": confirm.action.type,
        "task": confirm.task,
        "version": confirm.action.version,
    }
    # With text and small integers only, this is what RFC 8785 asks for.
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert text == shown
    digest = hashlib.sha256(text.encode()).digest()
    assert base64.b64encode(digest) == base64.b64encode(confirm.hash.digest)
