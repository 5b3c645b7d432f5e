"""The three stanzas of the first public draft, letter for letter, decode for ever."""

from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.confirm import Action, Confirm
from xep.fluux_agent.execute import Execute, Param
from xep.fluux_agent.skills import SkillsQuery
from xep.stanza import NAMESPACE, Incoming

DISCOVERY = """\
<iq type='get' to='agent.example.com'>
  <query xmlns='urn:fluux:agent:0#skills'/>
</iq>
"""
EXECUTION = """\
<iq type='set' to='agent.example.com'>
  <execute xmlns='urn:fluux:agent:0#execute' skill='email-summary'>
    <param name='max_emails'>20</param>
  </execute>
</iq>
"""
CONFIRMATION = """\
<message from='agent.example.com' to='user@example.com'>
  <body>Send this email to Platform24? (reply yes/no)</body>
  <confirm xmlns='urn:fluux:agent:0#confirm' id='action-7742'>
    <action type='send-email'/>
    <expires>2026-02-08T19:00:00Z</expires>
  </confirm>
</message>
"""


def arrive(xml: str) -> Incoming:
    return Incoming.of(ET.fromstring(f"<stream xmlns='{NAMESPACE}'>{xml}</stream>")[0], len(xml))


def test_skill_discovery() -> None:
    found = arrive(DISCOVERY)
    assert (found.kind, found.type, found.to) == ("iq", "get", "agent.example.com")
    assert found.id is None
    assert found.sole_child == "{urn:fluux:agent:0#skills}query"
    assert found.payload(SkillsQuery, strict=True) == SkillsQuery()


def test_skill_execution() -> None:
    found = arrive(EXECUTION)
    assert (found.kind, found.type, found.id) == ("iq", "set", None)
    execute = found.payload(Execute, strict=True)
    assert execute == Execute(skill="email-summary", params=(Param(name="max_emails", text="20"),))
    assert execute.mode == "auto"
    assert execute.texts() == {"max_emails": ["20"]}


def test_confirmation_request() -> None:
    found = arrive(CONFIRMATION)
    assert (found.kind, found.type, found.sender) == ("message", "normal", "agent.example.com")
    assert found.text_of("body") == "Send this email to Platform24? (reply yes/no)"
    assert found.payload(Confirm, strict=True) == Confirm(
        id="action-7742",
        action=Action(type="send-email"),
        expires=datetime(2026, 2, 8, 19, tzinfo=UTC),
    )


def test_the_namespace_is_urn_fluux_agent_0() -> None:
    assert AGENT == "urn:fluux:agent:0"
