"""Reports say the same in each form, and a build server can read them."""

import json
from pathlib import Path

import pytest
from lxml import etree

from conformance.model import Finding, Outcome, Result, Run, Status
from conformance.record import Record
from conformance.report import html, machine
from conformance.requirements import load
from conformance.verdicts import profiles, verdicts

SPECIFICATION = load()
JUNIT = etree.XMLSchema(etree.parse(Path(__file__).with_name("junit.xsd")))
TITLE = 'An agent <of> "mine" & yours'


def junit(text: str) -> etree._Element:
    """A JUnit file, which is valid."""
    tree = etree.fromstring(text.encode())
    JUNIT.assertValid(tree)
    return tree


def result(name: str, id_: str, outcome: Outcome) -> Result:
    record = Record()
    record.add("out", 0.1, "<iq to='agent.example'><query xmlns='urn:example'/></iq>")
    record.add("in", 0.2, "<message><body>a &lt;b&gt;</body></message>")
    found = (Finding(id_, "<this/>", "<that/>\x0b"),) if outcome is Outcome.FAILED else ()
    held = frozenset({id_}) if outcome is Outcome.PASSED else frozenset()
    return Result(name, "Some title", (id_,), outcome, held, found, "why", record, 1.5)


@pytest.fixture
def run() -> Run:
    results = (
        result("some.kept", "EXE-002", Outcome.PASSED),
        result("some.broken", "EXE-003", Outcome.FAILED),
        result("some.warning", "EXE-010", Outcome.FAILED),
        result("some.fault", "EXE-004", Outcome.FAULT),
        result("some.blocked", "EXE-005", Outcome.BLOCKED),
    )
    claimed = frozenset({"core"})
    found = verdicts(SPECIFICATION, frozenset(SPECIFICATION.by_id), results, claimed, {})
    return Run(
        target="agent.example",
        driver="component tester.example of 127.0.0.1:5347",
        about={"agent_name": TITLE, "software": ""},
        started="2026-11-22T04:28:02.226Z",
        seconds=2.5,
        results=results,
        verdicts=found,
        profiles=profiles(SPECIFICATION, found, claimed, strict=False),
        faults=("some.fault: why",),
    )


def test_a_build_server_reads_what_is_broken_and_what_is_the_kits_own_fault(run: Run) -> None:
    tree = junit(machine.as_junit(run, SPECIFICATION, strict=False))
    core = tree[0]
    assert core.get("name") == "core"
    assert (core.get("failures"), core.get("errors")) == ("2", "1")
    cases = {one.get("name"): one for one in core.findall("testcase")}
    assert len(cases) == int(core.get("tests"))
    (failure,) = cases["EXE-003"]
    assert failure.tag == "failure"
    assert failure.text.endswith("expected: <this/>\ngot: <that/>")
    assert cases["EXE-004"][0].tag == "error"
    assert cases["EXE-005"][0].get("type") == "blocked"
    assert len(cases["EXE-002"]) == len(cases["EXE-010"]) == 0
    assert core.find("properties/property[@name='agent_name']").get("value") == TITLE
    strict = junit(machine.as_junit(run, SPECIFICATION, strict=True))
    assert strict[0].get("failures") == "3"


def test_every_form_says_the_same_of_each_requirement(run: Run) -> None:
    told = json.loads(machine.as_json(run, SPECIFICATION))
    assert {one["id"]: one["status"] for one in told["requirements"]} == {
        id_: verdict.status.value for id_, verdict in run.verdicts.items()
    }
    page = html.as_html(run, SPECIFICATION)
    tree = etree.HTML(page)
    words = {
        row[0][0].text: row[1].text
        for table in tree.iter("table")
        for row in table[1:]
        if row[0].get("class") == "id"
    }
    shown = {id_: one for id_, one in run.verdicts.items() if one.status is not Status.UNCHECKED}
    judged = {id_: one.status.value for id_, one in shown.items() if one.results}
    assert {id_: words[id_] for id_ in judged} == judged
    assert set(words) == set(run.verdicts)
    for one in SPECIFICATION.requirements:
        assert SPECIFICATION.anchor(one) in page


def test_the_page_stands_alone_and_shows_what_was_exchanged(run: Run) -> None:
    page = html.as_html(run, SPECIFICATION)
    tree = etree.HTML(page)
    assert not tree.xpath("//script | //link | //img | //@src")
    assert "An agent &lt;of&gt; &quot;mine&quot; &amp; yours" in page
    opened = [one.get("id") for one in tree.xpath("//details[@open]")]
    assert opened == ["check-some.broken", "check-some.warning"]
    assert len(tree.xpath("//details//pre")) == 2 * len(run.results)
    targets = {one.get("id") for one in tree.xpath("//*[@id]")}
    links = [href[1:] for href in tree.xpath("//a/@href") if href.startswith("#")]
    assert links
    assert set(links) <= targets
