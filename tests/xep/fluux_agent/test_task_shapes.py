"""Durable work, delegation and memory on the wire: each is written exactly so, and read back."""

from datetime import UTC, datetime
from decimal import Decimal
from xml.etree import ElementTree as ET

import msgspec
import pytest

from xep.binding import ContentError, Payload, decode, encode
from xep.data_forms import Field, Form
from xep.file_sharing import File, FileSharing, Sources, UrlData
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Action, Confirm
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Earlier, Execute, Output, Result
from xep.fluux_agent.memory import Content, Memory
from xep.fluux_agent.task import (
    AnswerParams,
    Cancel,
    Events,
    Failure,
    FailureText,
    Gap,
    Input,
    InputAnswer,
    InputSchema,
    Progress,
    Question,
    Task,
    Tasks,
)
from xep.form_validation import Range, Validate
from xep.jid import JID
from xep.result_sets import First, ResultSet

AT = datetime(2026, 12, 1, 9, tzinfo=UTC)
ALICE = JID.parse("alice@a.example")
AGENT = JID.parse("assistant@agent.a.example")

SHAPES: list[tuple[str, Payload]] = [
    ("<task xmlns='urn:fluux:agent:0#task' id='9f'/>", Task(id="9f")),
    (
        (
            "<task xmlns='urn:fluux:agent:0#task' id='9f' skill='report' state='running'"
            " revision='3' created='2026-12-01T09:00:00Z' updated='2026-12-01T09:00:00Z'"
            " retain-until='2026-12-01T09:00:00Z' deadline='2026-12-01T09:00:00Z' poll-after='5'"
            " request='r1' context='c' thread='t'>"
            "<progress fraction='0.4' xml:lang='en'>reading sources</progress>"
            "<output xmlns='urn:fluux:agent:0#execute' name='draft' type='text/markdown' part='2'"
            " last='false'># Rivers</output></task>"
        ),
        Task(
            id="9f",
            skill="report",
            state="running",
            revision=3,
            created=AT,
            updated=AT,
            retain_until=AT,
            deadline=AT,
            poll_after=5,
            request="r1",
            context="c",
            thread="t",
            progress=Progress(fraction=Decimal("0.4"), text="reading sources", lang="en"),
            outputs=(
                Output(name="draft", type="text/markdown", part=2, last=False, text="# Rivers"),
            ),
        ),
    ),
    (
        (
            "<task xmlns='urn:fluux:agent:0#task' id='9f' state='input-required' revision='4'>"
            "<input id='in-1' revision='4' expires='2026-12-01T09:00:00Z'>"
            "<question xml:lang='en'>Which years?</question>"
            """<schema type='application/schema+json'>{"type": "object"}</schema>"""
            "<x xmlns='jabber:x:data' type='form'>"
            "<field var='year' type='text-single'>"
            "<validate xmlns='http://jabber.org/protocol/xdata-validate' datatype='xs:integer'>"
            "<range min='1900'/></validate></field></x></input></task>"
        ),
        Task(
            id="9f",
            state="input-required",
            revision=4,
            input=Input(
                id="in-1",
                revision=4,
                expires=AT,
                questions=(Question(text="Which years?", lang="en"),),
                schema=InputSchema(json=msgspec.Raw(b'{"type": "object"}')),
                form=Form(
                    type="form",
                    fields=(
                        Field(
                            var="year",
                            type="text-single",
                            validate=Validate(datatype="xs:integer", range=Range(min="1900")),
                        ),
                    ),
                ),
            ),
        ),
    ),
    (
        (
            "<task xmlns='urn:fluux:agent:0#task' id='9f' state='input-required' revision='0'>"
            "<confirm xmlns='urn:fluux:agent:0#confirm' id='c1' task='9f'"
            " principal='alice@a.example'><action type='report' version='1.2.0'/></confirm></task>"
        ),
        Task(
            id="9f",
            state="input-required",
            revision=0,
            confirm=Confirm(
                id="c1",
                task="9f",
                principal=ALICE,
                action=Action(type="report", version="1.2.0"),
            ),
        ),
    ),
    (
        (
            "<task xmlns='urn:fluux:agent:0#task' id='9f' state='completed' revision='5'>"
            "<result xmlns='urn:fluux:agent:0#execute' skill='report' is-error='false'>"
            "<output name='report' type='application/pdf'>"
            "<file-sharing xmlns='urn:xmpp:sfs:0' disposition='attachment'>"
            "<file xmlns='urn:xmpp:file:metadata:0'><media-type>application/pdf</media-type>"
            "<size>90000</size></file>"
            "<sources><url-data xmlns='http://jabber.org/protocol/url-data'"
            " target='https://files.a.example/1.pdf'/></sources>"
            "</file-sharing></output></result></task>"
        ),
        Task(
            id="9f",
            state="completed",
            revision=5,
            result=Result(
                skill="report",
                outputs=(
                    Output(
                        name="report",
                        type="application/pdf",
                        file=FileSharing(
                            disposition="attachment",
                            file=File(media_type="application/pdf", size=90000),
                            sources=Sources(
                                urls=(UrlData(target="https://files.a.example/1.pdf"),)
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
    (
        (
            "<task xmlns='urn:fluux:agent:0#task' id='9f' state='failed' revision='5'>"
            "<failure repeatable='true'><over-quota xmlns='urn:fluux:agent:0#errors'/>"
            "<retry xmlns='urn:fluux:agent:0#errors' after='60'/>"
            "<text xml:lang='en'>A quota is used up. Try again in 60 seconds.</text></failure>"
            "</task>"
        ),
        Task(
            id="9f",
            state="failed",
            revision=5,
            failure=Failure.of(errors.over_quota(60), repeatable=True),
        ),
    ),
    (
        (
            "<tasks xmlns='urn:fluux:agent:0#task' state='running' context='c'"
            " since='2026-12-01T09:00:00Z'><task id='9f' state='running' revision='1'/>"
            "<set xmlns='http://jabber.org/protocol/rsm'><count>1</count>"
            "<first index='0'>k</first><last>k</last></set></tasks>"
        ),
        Tasks(
            state="running",
            context="c",
            since=AT,
            tasks=(Task(id="9f", state="running", revision=1),),
            page=ResultSet(count=1, first=First(key="k", index=0), last="k"),
        ),
    ),
    (
        (
            "<events xmlns='urn:fluux:agent:0#task' id='9f' since='1' revision='4'>"
            "<gap from='2' to='3'/><task id='9f' state='running' revision='4'/></events>"
        ),
        Events(
            id="9f",
            since=1,
            revision=4,
            gaps=(Gap(first=2, last=3),),
            tasks=(Task(id="9f", state="running", revision=4),),
        ),
    ),
    (
        (
            "<answer xmlns='urn:fluux:agent:0#task' task='9f' input='in-1' revision='4'>"
            """<params type='application/json'>{"year": 2024}</params></answer>"""
        ),
        InputAnswer(
            task="9f",
            input="in-1",
            revision=4,
            params=AnswerParams(json=msgspec.Raw(b'{"year": 2024}')),
        ),
    ),
    (
        (
            "<answer xmlns='urn:fluux:agent:0#task' task='9f' input='in-1' revision='4'>"
            "<x xmlns='jabber:x:data' type='cancel'/></answer>"
        ),
        InputAnswer(task="9f", input="in-1", revision=4, form=Form(type="cancel")),
    ),
    (
        "<cancel xmlns='urn:fluux:agent:0#task' id='9f'><reason>too dear</reason></cancel>",
        Cancel(id="9f", reason="too dear"),
    ),
    (
        (
            "<execute xmlns='urn:fluux:agent:0#execute' skill='report' priority='high'>"
            "<earlier task='8e'/>"
            "<delegation xmlns='urn:fluux:agent:0#delegation' origin='alice@a.example'"
            " max-hops='4' budget-usd='0.50' budget-tokens='9000' trace='00-1-01'>"
            "<via>assistant@agent.a.example</via></delegation></execute>"
        ),
        Execute(
            skill="report",
            priority="high",
            earlier=(Earlier(task="8e"),),
            delegation=Delegation(
                origin=ALICE,
                max_hops=4,
                budget_usd=Decimal("0.50"),
                budget_tokens=9000,
                trace="00-1-01",
                via=(AGENT,),
            ),
        ),
    ),
    (
        (
            "<memory xmlns='urn:fluux:agent:0#memory' key='coffee' topic='tastes' version='2'"
            " created='2026-12-01T09:00:00Z' updated='2026-12-01T09:00:00Z'"
            " expires='2026-12-01T09:00:00Z' by='assistant@agent.a.example' task='9f'>"
            "<tag>food</tag><content type='text/markdown' xml:lang='en'>Black, no sugar.</content>"
            "</memory>"
        ),
        Memory(
            key="coffee",
            topic="tastes",
            version=2,
            created=AT,
            updated=AT,
            expires=AT,
            by=AGENT,
            task="9f",
            tags=("food",),
            contents=(Content(text="Black, no sugar.", lang="en"),),
        ),
    ),
]


@pytest.mark.parametrize(("xml", "payload"), SHAPES)
def test_task_and_memory_payloads_are_written_as_specified(xml: str, payload: Payload) -> None:
    assert encode(payload) == xml
    assert decode(type(payload), ET.fromstring(xml), strict=True) == payload


@pytest.mark.parametrize(
    ("cls", "xml"),
    [
        (Task, "<task xmlns='urn:fluux:agent:0#task'/>"),
        (Task, "<task xmlns='urn:fluux:agent:0#task' id='9f' state='done'/>"),
        (Input, "<input xmlns='urn:fluux:agent:0#task' id='1' revision='1'/>"),
        (Events, "<events xmlns='urn:fluux:agent:0#task' id='9f'/>"),
        (Memory, "<memory xmlns='urn:fluux:agent:0#memory' key='k'/>"),
        (
            Delegation,
            "<delegation xmlns='urn:fluux:agent:0#delegation' origin='a@b.example' max-hops='1'/>",
        ),
        (
            Delegation,
            (
                "<delegation xmlns='urn:fluux:agent:0#delegation' origin='@' max-hops='1'>"
                "<via>a@b.example</via></delegation>"
            ),
        ),
    ],
)
def test_half_of_one_is_none(cls: type[Payload], xml: str) -> None:
    with pytest.raises(ContentError):
        decode(cls, ET.fromstring(xml))


def test_one_bad_task_does_not_hide_the_others() -> None:
    xml = "<tasks xmlns='urn:fluux:agent:0#task'><task/><task id='b'/></tasks>"
    assert decode(Tasks, ET.fromstring(xml)).tasks == (Task(id="b"),)


def test_a_failure_says_what_the_error_would() -> None:
    failure = Failure.of(errors.invalid_param("a\x00", "bad\x00"))
    assert decode(Failure, ET.fromstring(encode(failure)), strict=True) == Failure(
        conditions=(errors.InvalidParam(name="a\ufffd"),),
        texts=(FailureText(text="a\ufffd: bad\ufffd", lang="en"),),
    )
