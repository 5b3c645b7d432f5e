"""Ad-hoc commands of the whole service on a real server: skills, long work, questions, admins."""

from xml.etree import ElementTree as ET

import pytest

from tests.servers.clients import Element, SlixClient
from tests.servers.talk import (
    INFO,
    ITEMS,
    SKILLS,
    condition,
    error,
    execute,
    output,
    query,
    result,
)
from tests.servers.tasking import (
    FORMS,
    Desk,
    asks,
    begin,
    completed,
    digest_of,
    ended,
    heard,
    in_state,
    refusal,
    say,
    waits,
)
from xep.commands import NAMESPACE as COMMANDS

pytestmark = [pytest.mark.servers]

EXECUTE_FORM = "urn:fluux:agent:0#execute"


def command(node: str, session: str = "", attributes: str = "", inside: str = "") -> str:
    sessionid = f"sessionid='{session}'" if session else ""
    return f"<command xmlns='{COMMANDS}' node='{node}' {sessionid} {attributes}>{inside}</command>"


def filled(**values: str) -> str:
    fields = "".join(f"<field var='{v}'><value>{t}</value></field>" for v, t in values.items())
    return f"<x xmlns='{FORMS}' type='submit'>{fields}</x>"


class Dialogue:
    """One command from its first stage on."""

    def __init__(self, client: SlixClient, address: str, node: str) -> None:
        self._client, self._address, self._node = client, address, node
        self._session = ""
        self.answer = self.send()

    def send(self, attributes: str = "", inside: str = "") -> Element:
        asked = command(self._node, self._session, attributes, inside)
        self.answer = result(self._client.iq(self._address, asked, "set"))
        self._session = self.answer.attrib["sessionid"]
        return self.answer

    def submit(self, **values: str) -> Element:
        return self.send("action='complete'", filled(**values))

    @property
    def status(self) -> str | None:
        return self.answer.get("status")

    @property
    def note(self) -> tuple[str, str]:
        (note,) = self.answer.findall(f"{{{COMMANDS}}}note")
        return note.get("type", "info"), note.text or ""

    @property
    def fields(self) -> dict[str | None, Element]:
        return {f.get("var"): f for f in self.answer.findall(f"{{{FORMS}}}x/{{{FORMS}}}field")}

    def value(self, var: str) -> str | None:
        return self.fields[var].findtext(f"{{{FORMS}}}value")


def nodes(client: SlixClient, address: str) -> set[str]:
    found: set[str] = set()
    after = ""
    while True:
        page = f"<set xmlns='http://jabber.org/protocol/rsm'><max>50</max>{after}</set>"
        answer = result(client.iq(address, query(ITEMS, f"node='{COMMANDS}'", page)))
        items = answer.findall(f"{{{ITEMS}}}item")
        found |= {item.get("node", "") for item in items}
        last = answer.findtext("{*}set/{*}last")
        if not items or last is None or len(items) < 50:
            return found
        after = f"<after>{last}</after>"


def test_the_commands_are_the_skills_of_the_view(
    desk: Desk, caller: SlixClient, other: SlixClient
) -> None:
    listed = result(caller.iq(desk.assistant, query(SKILLS)))
    names = {s.get("name") for s in listed.findall(f"{{{SKILLS}}}skill")}
    assert "trip" in names
    mine = nodes(caller, desk.assistant)
    assert {n.removeprefix("skill/") for n in mine if n.startswith("skill/")} == names
    admins = nodes(other, desk.assistant)
    for_admins = ("status", "pause", "resume", "reload", "retry", "release", "queues", "audit")
    of_memory = ("export-memory", "import-memory", "missing-memories")
    only_theirs = (*for_admins, *of_memory, "announce", "export-objects")
    pending = "http://jabber.org/protocol/pubsub#get-pending"
    assert admins - mine == {pending, *(f"command/{name}" for name in only_theirs)}
    assert mine - admins == set()
    for node in sorted(mine):
        info = result(caller.iq(desk.assistant, query(INFO, f"node='{node}'")))
        (identity,) = info.findall(f"{{{INFO}}}identity")
        assert (identity.get("category"), identity.get("type")) == ("automation", "command-node")


def test_a_form_filled_in_wrongly_then_rightly(desk: Desk, caller: SlixClient) -> None:
    talk = Dialogue(caller, desk.assistant, "skill/conformance.add")
    assert talk.status == "executing"
    assert talk.fields["a"].find(f"{{{FORMS}}}required") is not None
    talk.submit(FORM_TYPE=EXECUTE_FORM, a="one", b="2")
    assert talk.status == "executing"
    kind, text = talk.note
    assert kind == "error"
    assert "A: " in text
    assert talk.value("a") == "one"
    assert talk.value("b") == "2"
    talk.submit(FORM_TYPE=EXECUTE_FORM, a="1", b="2")
    assert (talk.status, talk.note[0]) == ("completed", "info")
    assert talk.value("output") == "3"


def test_long_work_goes_on_as_a_task(desk: Desk, caller: SlixClient) -> None:
    talk = Dialogue(caller, desk.assistant, "skill/slow")
    form = {"FORM_TYPE": EXECUTE_FORM, "run": "command"}
    talk.submit(**form)
    assert talk.status == "completed"
    task = talk.value("task")
    assert task is not None
    assert "continues as a task" in talk.note[1]
    assert talk.value("state") in ("accepted", "running")
    # The same submission once more is not the same work once more.
    talk.submit(**form)
    assert talk.value("task") == task
    desk.open_gate("command")
    message, _ = ended(caller, task)
    # A person began it, so a person is told.
    assert message.findtext("{*}body") == "command is done"


def test_a_confirmation_from_a_command(desk: Desk, caller: SlixClient) -> None:
    talk = Dialogue(caller, desk.assistant, "skill/wipe")
    talk.submit(FORM_TYPE=EXECUTE_FORM, path="by command", days="7", deep="1")
    assert talk.status == "completed"
    task = talk.value("task")
    assert task is not None
    assert talk.value("state") == "input-required"
    assert "waiting for an answer" in talk.note[1]
    question, confirm = asks(caller, task)
    assert confirm.findtext("{*}hash") == digest_of(question)
    assert "days: 7, deep: yes" in question.findtext("{*}body", "")
    say(caller, desk.assistant, "yes", f"<thread>{task}</thread>")
    assert completed(caller, task) == "wiped by command"
    heard(caller, desk.assistant, "Approved: wipe")
    assert desk.effects("wiped by") == ["wiped by command"]


def test_a_question_from_a_command(desk: Desk, caller: SlixClient) -> None:
    talk = Dialogue(caller, desk.assistant, "skill/word")
    talk.submit(FORM_TYPE=EXECUTE_FORM, seconds="3600")
    task = talk.value("task")
    assert task is not None
    waits(caller, task)
    heard(caller, desk.assistant, "Which word?")
    say(caller, desk.assistant, "abracadabra")
    assert completed(caller, task) == "the word is abracadabra"


def test_ones_own_tasks_by_form_and_in_chat(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "slow", "mode='async'", run="own")
    talk = Dialogue(caller, desk.assistant, "command/tasks")
    talk.submit(state="running", limit="5")
    assert talk.status == "completed"
    assert f"(id {task[:4]}" in ET.tostring(talk.answer, "unicode")
    say(caller, desk.assistant, f"/task {task}")
    heard(caller, desk.assistant, "Slow is running.")
    say(caller, desk.assistant, f"/cancel {task[:20]}")
    assert ended(caller, task)[1].get("state") == "cancelled"


def test_commands_of_admins_are_not_there_for_others(desk: Desk, caller: SlixClient) -> None:
    missing = caller.iq(desk.assistant, command("command/nothing"), "set")
    for name in ("pause", "status", "resume", "retry"):
        refused = caller.iq(desk.assistant, command(f"command/{name}"), "set")
        assert condition(refused) == condition(missing) == "item-not-found"
        assert ET.tostring(error(refused)) == ET.tostring(error(missing))
    say(caller, desk.assistant, "/pause")
    heard(caller, desk.assistant, "There is no command /pause")


def test_a_paused_service_starts_new_work_for_admins_only(
    desk: Desk, caller: SlixClient, other: SlixClient
) -> None:
    running = begin(caller, desk.assistant, "slow", "mode='async'", run="paused")
    pause = Dialogue(other, desk.assistant, "command/pause")
    pause.submit(reason="an upgrade")
    assert pause.status == "completed"
    try:
        again = execute("slow", attributes="mode='async'", run="rejected at the moment")
        for asked in (again, execute("conformance.echo", text="x"), execute("wipe", path="x")):
            reply = caller.iq(desk.assistant, asked, "set")
            assert refusal(reply) == ("resource-constraint", "retry")
            assert error(reply).get("type") == "wait"
        talk = Dialogue(caller, desk.assistant, "skill/conformance.echo")
        talk.submit(FORM_TYPE=EXECUTE_FORM, text="x")
        assert (talk.status, talk.note[0]) == ("completed", "error")
        # What has begun goes on, can be asked for, and admins are served.
        in_state(caller, desk.assistant, running, "running")
        desk.open_gate("paused")
        assert completed(caller, running) == "paused is done"
        asked = execute("conformance.echo", text="admin")
        assert output(other.iq(desk.assistant, asked, "set")) == "admin"
        status = Dialogue(other, desk.assistant, "command/status")
        assert status.value("paused") == "true"
        assert "Paused" in ET.tostring(status.fields["answer"], "unicode")
    finally:
        assert Dialogue(other, desk.assistant, "command/resume").status == "completed"
    echo = execute("conformance.echo", text="again")
    assert output(caller.iq(desk.assistant, echo, "set")) == "again"
    status = Dialogue(other, desk.assistant, "command/status")
    assert status.value("paused") == "false"


def test_admins_see_and_end_everybodys_tasks(
    desk: Desk, caller: SlixClient, other: SlixClient
) -> None:
    task = begin(caller, desk.assistant, "slow", "mode='async'", run="everybodys")
    say(other, desk.assistant, "/tasks running all=true")
    heard(other, desk.assistant, f"(id {task[:4]}")
    Dialogue(other, desk.assistant, "command/cancel").submit(task=task)
    assert ended(caller, task)[1].get("state") == "cancelled"
    retried = Dialogue(other, desk.assistant, "command/retry")
    retried.submit(task=task, force="1")
    anew = retried.value("id")
    assert anew is not None
    desk.open_gate("everybodys")
    assert completed(caller, anew) == "everybodys is done"
