"""What other clients know: commands, quick responses and validated forms, as printed."""

from xml.etree import ElementTree as ET

import pytest

from xep.binding import Payload, decode, encode
from xep.commands import Actions, Command, Note
from xep.data_forms import Field, Form, Option
from xep.form_validation import ListRange, Validate
from xep.quick_responses import Action, ActionSelected, Response

PRINTED: list[tuple[str, Payload]] = [
    (
        "<command xmlns='http://jabber.org/protocol/commands' node='config' action='execute'/>",
        Command(node="config", action="execute"),
    ),
    (
        (
            "<command xmlns='http://jabber.org/protocol/commands' node='config'"
            " sessionid='config:20020923T213616Z-700' status='executing'>"
            "<actions execute='next'><prev/><next/><complete/></actions>"
            "<note type='warn'>Careful</note>"
            "<x xmlns='jabber:x:data' type='form'><title>Configure Service</title></x></command>"
        ),
        Command(
            node="config",
            sessionid="config:20020923T213616Z-700",
            status="executing",
            actions=Actions(execute="next", prev=True, next=True, complete=True),
            notes=(Note(type="warn", text="Careful"),),
            form=Form(type="form", title="Configure Service"),
        ),
    ),
    (
        ("<response xmlns='urn:xmpp:tmp:quick-response' value='yes' label='Sure!' xml:lang='en'/>"),
        Response(value="yes", label="Sure!", lang="en"),
    ),
    (
        "<action xmlns='urn:xmpp:tmp:quick-response' id='merge-32643' label='Merge Now'/>",
        Action(id="merge-32643", label="Merge Now"),
    ),
    (
        "<action-selected xmlns='urn:xmpp:tmp:quick-response' id='merge-32643'/>",
        ActionSelected(id="merge-32643"),
    ),
    (
        (
            "<field xmlns='jabber:x:data' var='evt.notify-methods' type='list-multi'"
            " label='Notify me by'><option><value>e-mail</value></option>"
            "<validate xmlns='http://jabber.org/protocol/xdata-validate' datatype='xs:string'>"
            "<basic/><list-range min='1' max='3'/></validate></field>"
        ),
        Field(
            var="evt.notify-methods",
            type="list-multi",
            label="Notify me by",
            options=(Option(value="e-mail"),),
            validate=Validate(basic=True, list_range=ListRange(min=1, max=3)),
        ),
    ),
    (
        (
            "<field xmlns='jabber:x:data' var='ssn'>"
            "<validate xmlns='http://jabber.org/protocol/xdata-validate' datatype='xs:string'>"
            "<regex>([0-9]{3})-([0-9]{2})</regex></validate></field>"
        ),
        Field(var="ssn", validate=Validate(regex="([0-9]{3})-([0-9]{2})")),
    ),
]


@pytest.mark.parametrize(("xml", "payload"), PRINTED)
def test_examples_of_command_and_form_xeps_are_read_and_written(xml: str, payload: Payload) -> None:
    assert decode(type(payload), ET.fromstring(xml), strict=True) == payload
    assert encode(payload) == xml
