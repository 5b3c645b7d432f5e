"""The shapes that are fixed on the wire: each is written exactly so, and read back."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from xep.binding import ContentError, Payload, decode, encode
from xep.fluux_agent.confirm import Action, ActionParam, Confirm, Decision, Risk
from xep.fluux_agent.execute import (
    Accepted,
    Execute,
    Output,
    Param,
    Params,
    Result,
    Usage,
)
from xep.fluux_agent.skills import (
    Annotations,
    Description,
    Example,
    Media,
    ParamDescription,
    Schema,
    SkillDescription,
    SkillsQuery,
    Title,
    Typical,
)
from xep.hashes import Hash
from xep.result_sets import First, ResultSet

SHAPES: list[tuple[str, Payload]] = [
    (
        (
            "<query xmlns='urn:fluux:agent:0#skills' version='v1' ttl='3600'>"
            "<skill name='report' version='1.2.0'>"
            "<title xml:lang='en'>Report</title><description xml:lang='en'>Writes one</description>"
            "<tag>research</tag><example xml:lang='en'>Report on rivers</example>"
            "<media for='output' type='text/markdown'/>"
            "<param name='topic' type='string' required='true'>"
            "<description xml:lang='en'>What about</description></param>"
            "<annotations read-only='false' destructive='true' idempotent='false'"
            " open-world='true'/>"
            "<typical duration-ms='1200' cost-usd='0.002'/>"
            "<schema for='input' type='application/schema+json'>{}</schema>"
            "</skill>"
            "<set xmlns='http://jabber.org/protocol/rsm'><count>1</count>"
            "<first index='0'>report</first><last>report</last></set></query>"
        ),
        SkillsQuery(
            version="v1",
            ttl=3600,
            skills=(
                SkillDescription(
                    name="report",
                    version="1.2.0",
                    titles=(Title(lang="en", text="Report"),),
                    descriptions=(Description(lang="en", text="Writes one"),),
                    tags=("research",),
                    examples=(Example(lang="en", text="Report on rivers"),),
                    media=(Media(direction="output", type="text/markdown"),),
                    params=(
                        ParamDescription(
                            name="topic",
                            required=True,
                            descriptions=(Description(lang="en", text="What about"),),
                        ),
                    ),
                    typical=Typical(duration_ms=1200, cost_usd=Decimal("0.002")),
                    schemas=(Schema(direction="input", json=msgspec.Raw(b"{}")),),
                ),
            ),
            page=ResultSet(first=First(key="report", index=0), last="report", count=1),
        ),
    ),
    (
        "<query xmlns='urn:fluux:agent:0#skills' version='v1' ttl='60' unchanged='true'/>",
        SkillsQuery(version="v1", ttl=60, unchanged=True),
    ),
    (
        (
            "<execute xmlns='urn:fluux:agent:0#execute' skill='report' mode='async' request='r1'"
            " deadline='2026-12-01T09:00:00Z' context='c' thread='t'>"
            "<param name='topic'>rivers</param>"
            """<params type='application/json'>{"years": [2024, 2025]}</params></execute>"""
        ),
        Execute(
            skill="report",
            mode="async",
            request="r1",
            deadline=datetime(2026, 12, 1, 9, tzinfo=UTC),
            context="c",
            thread="t",
            params=(Param(name="topic", text="rivers"),),
            json_params=Params(json=msgspec.Raw(b'{"years": [2024, 2025]}')),
        ),
    ),
    (
        (
            "<result xmlns='urn:fluux:agent:0#execute' skill='report' is-error='false'>"
            "<output name='summary' type='text/plain'>…</output>"
            "<usage duration-ms='12' tokens-in='0' tokens-out='0' cost-usd='0'/></result>"
        ),
        Result(
            skill="report",
            outputs=(Output(name="summary", text="…"),),
            usage=Usage(duration_ms=12, tokens_in=0, tokens_out=0, cost_usd=Decimal(0)),
        ),
    ),
    (
        (
            "<accepted xmlns='urn:fluux:agent:0#execute' task='9f' state='input-required'"
            " revision='0' retain-until='2026-12-01T09:00:00Z' poll-after='5'/>"
        ),
        Accepted(
            task="9f",
            state="input-required",
            retain_until=datetime(2026, 12, 1, 9, tzinfo=UTC),
            poll_after=5,
        ),
    ),
    (
        (
            "<confirm xmlns='urn:fluux:agent:0#confirm' id='action-7742' task='9f'>"
            "<action type='report'><param name='topic'>rivers</param></action>"
            "<risk level='medium'/>"
            "<hash xmlns='urn:xmpp:hashes:2' algo='sha-256'>AP8=</hash>"
            "<expires>2026-12-01T09:00:00Z</expires></confirm>"
        ),
        Confirm(
            id="action-7742",
            task="9f",
            action=Action(type="report", params=(ActionParam(name="topic", text="rivers"),)),
            risk=Risk(level="medium"),
            hash=Hash(algo="sha-256", digest=b"\x00\xff"),
            expires=datetime(2026, 12, 1, 9, tzinfo=UTC),
        ),
    ),
    (
        (
            "<decision xmlns='urn:fluux:agent:0#confirm' id='action-7742' value='approve'>"
            "<reason>fine</reason></decision>"
        ),
        Decision(id="action-7742", value="approve", reason="fine"),
    ),
]


@pytest.mark.parametrize(("xml", "payload"), SHAPES)
def test_skill_and_execute_payloads_are_written_as_specified(xml: str, payload: Payload) -> None:
    assert encode(payload) == xml
    assert decode(type(payload), ET.fromstring(xml), strict=True) == payload


def test_what_is_not_annotated_is_destructive_and_open_world() -> None:
    skill = decode(
        SkillDescription, ET.fromstring("<skill xmlns='urn:fluux:agent:0#skills' name='s'/>")
    )
    assert skill.annotations == Annotations(
        read_only=False, destructive=True, idempotent=False, open_world=True
    )


def test_one_bad_skill_does_not_hide_the_others() -> None:
    xml = (
        "<query xmlns='urn:fluux:agent:0#skills'><skill/><skill name='a'><schema for='input'>{"
        "</schema></skill><skill name='b'/></query>"
    )
    found = decode(SkillsQuery, ET.fromstring(xml))
    assert [skill.name for skill in found.skills] == ["b"]


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ("<params>[1]</params>", "expected a JSON object"),
        ("<params>null</params>", "expected a JSON object"),
        ("""<param name='a'>1</param><params>{"a": 1}</params>""", "both as text and as JSON"),
    ],
)
def test_json_parameters_that_do_not_fit(inner: str, reason: str) -> None:
    execute = read_execute(inner)
    with pytest.raises(ContentError, match=reason):
        execute.values()


@pytest.mark.parametrize(
    "inner",
    [
        "<params>{</params>",
        "<params/>",
        "<params type='text/csv'>{}</params>",
        "<params>{}</params><params>{}</params>",
        "<param>nameless</param>",
    ],
)
def test_malformed_parameters_refuse_the_request(inner: str) -> None:
    with pytest.raises(ContentError):
        read_execute(inner)


def test_parameters_by_name() -> None:
    execute = read_execute(
        "<param name='a'>1</param><param name='b'> x\n</param><param name='a'/>"
        """<params>{"c": {"d": [1.5]}}</params>"""
    )
    assert execute.texts() == {"a": ["1", ""], "b": [" x\n"]}
    assert execute.values() == {"c": {"d": [1.5]}}
    assert Execute(skill="s").values() == {}


def read_execute(inner: str) -> Any:
    xml = f"<execute xmlns='urn:fluux:agent:0#execute' skill='s'>{inner}</execute>"
    return decode(Execute, ET.fromstring(xml))
