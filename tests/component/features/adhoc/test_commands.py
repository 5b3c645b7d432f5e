"""Ad-hoc commands: the form, the work, and what comes of it, stage by stage."""

from typing import Annotated, Any
from xml.etree import ElementTree as ET

import anyio
import msgspec
import pytest

from component.commands import Asking, CommandError, CommandResult, NoParams, Outline
from component.policy import Rule
from component.skills import Context, InvalidParam, SkillError, skill
from component.store import StorageError
from tests.component.features.adhoc.command_bench import (
    Answers,
    CommandBench,
    field,
    go_on,
    notes,
    submitted,
)
from tests.component.link.router.wire import AGENT, DOMAIN, condition, error_of, iq
from tests.component.world import ALICE, BOB, all_skills, result, xml
from xep import disco
from xep.commands import CONDITIONS, NAMESPACE, Actions, Command
from xep.data_forms import Form
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.jid import JID
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

DONE = Result(skill="add", outputs=(Output(name="output", text="3"),))


@skill(destructive=False)
def add(a: int, b: Annotated[int, msgspec.Meta(le=9)] = 1) -> int:
    """Add two integers.

    Args:
        a: The first.
    """
    return a + b


@skill(inline=True, destructive=False)
def now() -> str:
    """Say when it is."""
    return "now\nand here"


@skill(inline=True, destructive=False)
def grumpy(text: str = "no") -> str:
    """Say no."""
    raise SkillError(text)


@skill(inline=True, destructive=False)
def picky(even: int) -> str:
    """Take even numbers only."""
    if even % 2:
        raise InvalidParam("even", "expected an even number")
    return f"{even}"


@skill(inline=True, destructive=False)
def broken() -> str:
    """Fail."""
    raise RuntimeError("a secret")


@skill(destructive=False)
async def whose(context: Context) -> str:
    """Say for whom."""
    await anyio.lowlevel.checkpoint()
    return context.principal


SKILLS = (add, now, grumpy, picky, broken, whose)


def refusal(reply: ET.Element) -> tuple[str, list[str]]:
    """The condition of an error, and the names of those of XEP-0050 in it."""
    (error,) = reply.findall("{jabber:client}error")
    found = StanzaError.of(error, CONDITIONS)
    return found.condition, [each.xml.tag.rpartition("}")[2] for each in found.application]


# -- discovery -----------------------------------------------------------------------------------


def items(
    bench: CommandBench,
    node: str | None = NAMESPACE,
    page: ResultSet | None = None,
    from_: str = ALICE,
    to: str = AGENT,
) -> disco.ItemsQuery:
    asked = disco.ItemsQuery(node=node, page=page)
    return result(disco.ItemsQuery, bench.bench.answer(iq(xml(asked), from_=from_, to=to)))


def info(bench: CommandBench, node: str | None, from_: str = ALICE) -> ET.Element:
    return bench.bench.answer(iq(xml(disco.InfoQuery(node=node)), from_=from_, to=AGENT))


@pytest.mark.parametrize("to", [AGENT, DOMAIN])
def test_every_skill_of_the_view_is_a_command_and_no_other(to: str) -> None:
    rules = [Rule(("now",), allowed_domains=("b.example",))]
    bench = CommandBench(SKILLS, rules=rules)
    found = [item.node for item in items(bench, to=to).items if item.node]
    seen = bench.view(JID.parse(ALICE).bare).names()
    assert [node for node in found if node.startswith("skill/")] == [f"skill/{n}" for n in seen]
    assert "now" not in seen
    assert {item.jid for item in items(bench, to=to).items} == {JID.parse(to)}
    everybodys = [item.node for item in items(bench, from_=BOB).items]
    assert "skill/now" in everybodys


def test_commands_have_titles_and_come_page_by_page() -> None:
    bench = CommandBench(SKILLS)
    every = items(bench).items
    assert ("skill/add", "Add") in [(item.node, item.name) for item in every]
    assert ("command/ping", "Ping") in [(item.node, item.name) for item in every]
    found: list[disco.Item] = []
    last = None
    while (answer := items(bench, page=ResultSet(max=3, after=last))).items:
        assert len(answer.items) <= 3
        last = answer.page.last if answer.page else None
        found += answer.items
    assert tuple(found) == every


def test_what_a_command_is() -> None:
    bench = CommandBench(SKILLS)
    found = result(disco.InfoQuery, info(bench, "skill/add"))
    (identity,) = found.identities
    assert (identity.category, identity.type, identity.name) == (
        "automation",
        "command-node",
        "Add",
    )
    assert [feature.var for feature in found.features] == [NAMESPACE, "jabber:x:data"]
    assert items(bench, "skill/add").items == ()
    (of_all,) = result(disco.InfoQuery, info(bench, NAMESPACE)).identities
    assert (of_all.category, of_all.type) == ("automation", "command-list")


@pytest.mark.parametrize("node", ["skill/none", "command/none", "add", "skill/now", ""])
def test_a_command_that_is_not_there(node: str) -> None:
    bench = CommandBench(SKILLS, rules=[Rule(("now",), allowed_domains=("b.example",))])
    assert condition(info(bench, node)) == "item-not-found"
    assert condition(bench.reply(Command(node=node))) == "item-not-found"
    assert bench.sessions._sessions == {}


def test_the_feature_is_announced() -> None:
    found = result(disco.InfoQuery, info(CommandBench(), None))
    assert {NAMESPACE, "jabber:x:data"} <= {feature.var for feature in found.features}


# -- stages --------------------------------------------------------------------------------------


def test_a_skill_with_parameters_begins_with_its_form() -> None:
    answer = CommandBench(SKILLS).begin("skill/add")
    assert (answer.node, answer.status) == ("skill/add", "executing")
    assert answer.actions == Actions(execute="complete", complete=True)
    assert answer.form is not None
    assert answer.form.form_type == "urn:fluux:agent:0#execute"
    assert answer.form.title == "Add"
    assert answer.form.instructions == ("Add two integers.",)
    assert [each.var for each in answer.form.fields] == ["FORM_TYPE", "a", "b"]
    assert field(answer, "a").desc == "The first."
    assert field(answer, "b").values == ("1",)


@pytest.mark.parametrize("action", ["complete", "execute", None])
async def test_a_form_that_fits_runs_the_skill(action: str | None) -> None:
    bench = CommandBench(SKILLS)
    form = bench.begin("skill/add")
    async with bench.bench.running():
        answer = result(Command, await bench.asked(go_on(form, action, a="2", b="3")))
    assert (answer.sessionid, answer.status) == (form.sessionid, "completed")
    assert notes(answer) == [("info", "Add: done.")]
    assert answer.form is not None
    assert answer.form.type == "result"
    # Not the type of the field that was filled in, whose text Converse would go on showing.
    output = field(answer, "output")
    assert (output.type, output.label, output.values) == ("text-multi", "Output", ("5",))


def test_a_skill_without_parameters_runs_at_once() -> None:
    answer = CommandBench(SKILLS).begin("skill/now")
    assert (answer.status, answer.actions) == ("completed", None)
    assert answer.sessionid
    assert field(answer, "output").values == ("now", "and here")
    assert field(answer, "output").type == "text-multi"


async def test_it_runs_for_the_one_who_asks() -> None:
    bench = CommandBench(SKILLS)
    async with bench.bench.running():
        answer = result(Command, await bench.asked(Command(node="skill/whose"), BOB))
    assert field(answer, "output").values == ("bob@b.example",)


async def test_a_form_that_does_not_fit_comes_back_until_it_does() -> None:
    bench = CommandBench(SKILLS)
    form = bench.begin("skill/add")
    again = bench.ask(go_on(form, a="two", b="10"))
    assert (again.status, again.sessionid) == ("executing", form.sessionid)
    assert again.actions == Actions(execute="complete", complete=True)
    ((type_, text),) = notes(again)
    assert type_ == "error"
    assert "A: expected an integer" in text
    assert "B: 10 is greater than the maximum of 9" in text
    assert field(again, "a").values == ("two",)
    assert field(again, "a").desc == "Expected an integer. The first."
    assert field(again, "b").values == ("10",)
    async with bench.bench.running():
        answer = result(Command, await bench.asked(go_on(again, a="2")))
    assert field(answer, "output").values == ("3",)


def test_what_only_the_skill_knows_of_its_parameters_comes_back_too() -> None:
    bench = CommandBench(SKILLS)
    form = bench.begin("skill/picky")
    again = bench.ask(go_on(form, even="3"))
    assert again.status == "executing"
    assert notes(again) == [("error", "The form is not valid. Even: expected an even number.")]
    assert field(again, "even").desc == "Expected an even number."
    assert field(again, "even").values == ("3",)
    assert bench.ask(go_on(again, even="4")).status == "completed"


def test_a_form_about_something_else_does_not_fit() -> None:
    bench = CommandBench(SKILLS)
    again = bench.ask(go_on(bench.begin("skill/grumpy"), FORM_TYPE="urn:other"))
    assert again.status == "executing"
    assert again.form is not None
    assert again.form.form_type == "urn:fluux:agent:0#execute"


def test_a_skill_that_says_no_is_completed_with_an_error() -> None:
    bench = CommandBench(SKILLS)
    answer = bench.ask(go_on(bench.begin("skill/grumpy"), text="not today"))
    assert answer.status == "completed"
    assert notes(answer) == [("error", "not today")]
    assert field(answer, "output").values == ("not today",)


def test_work_that_fails_is_completed_with_an_error_and_no_secret() -> None:
    answer = CommandBench(SKILLS).begin("skill/broken")
    assert answer.status == "completed"
    assert notes(answer) == [("error", "The agent failed to serve this.")]


@pytest.mark.parametrize(
    ("state", "said"), [("accepted", False), ("input-required", True), ("running", False)]
)
def test_work_that_becomes_a_task_says_so(state: Any, said: bool) -> None:
    bench = CommandBench(SKILLS, run=Answers(Accepted(task="t-1", state=state)))
    answer = bench.begin("skill/now")
    assert answer.status == "completed"
    ((type_, text),) = notes(answer)
    assert type_ == "info"
    assert text.startswith("Now: this continues as a task.")
    assert "message" in text
    assert ("waiting for an answer" in text) is said
    assert field(answer, "task").values == ("t-1",)


def test_a_skill_that_is_gone_meanwhile() -> None:
    bench = CommandBench(SKILLS, run=Answers(errors.unknown_skill()))
    form = bench.begin("skill/add")
    for _ in range(2):
        assert condition(bench.reply(go_on(form, a="1"))) == "item-not-found"


@pytest.mark.parametrize(
    "error",
    [errors.busy(5), errors.conflict("No."), errors.deadline_expired(), errors.malformed("x")],
)
def test_a_refusal_is_a_note_and_no_error(error: StanzaError) -> None:
    answer = CommandBench(SKILLS, run=Answers(error)).begin("skill/now")
    assert (answer.status, notes(answer)) == ("completed", [("error", error.text)])


async def test_a_database_that_refuses_is_no_mistake_of_the_skill() -> None:
    async def refused() -> Result:
        raise StorageError("disk full at /secret")

    bench = CommandBench(SKILLS, run=Answers(refused()))
    form = bench.begin("skill/add")
    async with bench.bench.running():
        answer = result(Command, await bench.asked(go_on(form, a="1", b="2")))
    assert answer.status == "completed"
    ((kind, text),) = notes(answer)
    assert kind == "error"
    assert "Try again in 5 seconds" in text
    assert "secret" not in text


def test_what_is_run_is_what_an_execute_request_would_run() -> None:
    run = Answers(DONE)
    bench = CommandBench(SKILLS, run=run)
    form = bench.begin("skill/add")
    bench.ask(go_on(form, a="2"))
    (asked,) = run.asked
    assert asked == {
        "principal": JID.parse("alice@a.example"),
        "requester": JID.parse(ALICE),
        "target": JID.parse(AGENT),
        "skill": "add",
        "json_params": b'{"a":2}',
        "session": form.sessionid,
        "lang": None,
    }


@pytest.mark.parametrize(("of_command", "lang"), [("fr", "fr"), (None, "de")])
def test_the_language_is_that_in_which_the_session_began(of_command: str | None, lang: str) -> None:
    run = Answers(DONE)
    bench = CommandBench(SKILLS, run=run)
    stanza = iq("{}", type_="set", from_=ALICE, to=AGENT).replace("<iq ", "<iq xml:lang='de' ")
    begun = stanza.replace("{}", xml(Command(node="skill/add", lang=of_command)))
    form = result(Command, bench.bench.answer(begun))
    bench.ask(go_on(form, a="2"))
    assert run.asked[0]["lang"] == lang
    assert form.lang == "en"


# -- repetitions ---------------------------------------------------------------------------------


def test_the_same_again_is_answered_alike_and_runs_nothing() -> None:
    run = Answers(DONE)
    bench = CommandBench(SKILLS, run=run)
    form = bench.begin("skill/add")
    first = bench.ask(go_on(form, a="2"))
    assert bench.ask(go_on(form, a="2")) == first
    assert bench.ask(go_on(form, "execute", a="2")) == first
    assert len(run.asked) == 1


def test_another_form_for_a_finished_session_is_a_conflict() -> None:
    bench = CommandBench(SKILLS, run=Answers(DONE))
    form = bench.begin("skill/add")
    bench.ask(go_on(form, a="2"))
    assert condition(bench.reply(go_on(form, a="3"))) == "conflict"
    assert condition(bench.reply(go_on(form))) == "conflict"


def test_another_attempt_is_known_by_another_key() -> None:
    run = Answers(errors.invalid_param("a", "too odd"), DONE)
    bench = CommandBench(SKILLS, run=run)
    form = bench.begin("skill/add")
    again = bench.ask(go_on(form, a="1"))
    assert field(again, "a").desc == "Too odd. The first."
    bench.ask(go_on(again, a="2"))
    keys = [asked["session"] for asked in run.asked]
    assert keys == [form.sessionid, f"{form.sessionid}#2"]


async def test_a_repetition_waits_for_the_work_under_way() -> None:
    go = anyio.Event()

    async def work() -> Result:
        await go.wait()
        return DONE

    run = Answers(work())
    bench = CommandBench(SKILLS, run=run)
    form = bench.begin("skill/add")
    async with bench.bench.running():
        for _ in range(2):
            bench.bench.receive(iq(xml(go_on(form, a="2")), type_="set", from_=ALICE, to=AGENT))
        assert refusal(bench.reply(go_on(form, "cancel"))) == ("bad-request", ["bad-action"])
        assert refusal(bench.reply(go_on(form, "prev"))) == ("bad-request", ["bad-action"])
        assert condition(bench.reply(go_on(form, a="3"))) == "conflict"
        go.set()
        await bench.bench.settled()
    first, second = (result(Command, reply) for reply in bench.bench.replies[-2:])
    assert first == second
    assert first.status == "completed"
    assert len(run.asked) == 1


@pytest.mark.parametrize(
    "attributes", ["action=''", "status='executing'", "status='' action=''", "sessionid=''"]
)
def test_an_empty_action_and_a_status_in_a_request_are_ignored(attributes: str) -> None:
    bench = CommandBench(SKILLS)
    xml = f"<command xmlns='{NAMESPACE}' node='skill/add' {attributes}/>"
    form = result(Command, bench.reply(xml))
    assert form.status == "executing"


def test_an_action_that_does_not_exist_is_malformed() -> None:
    bench = CommandBench(SKILLS)
    xml = f"<command xmlns='{NAMESPACE}' node='skill/add' action='jump'/>"
    assert refusal(bench.reply(xml)) == ("bad-request", ["malformed-action"])


async def test_work_that_was_given_up_is_not_begun_again() -> None:
    run = Answers(anyio.sleep_forever())
    bench = CommandBench(SKILLS, run=run, request_timeout_s=0.2)
    form = bench.begin("skill/add")
    async with bench.bench.running():
        await bench.asked(go_on(form, a="2"))
        reply = bench.reply(go_on(form, a="2"))
    assert isinstance(error_of(reply).application[0], errors.OutcomeUnknown)
    assert len(run.asked) == 1


def test_a_run_that_breaks_is_not_begun_again() -> None:
    run = Answers(RuntimeError("a secret"))
    bench = CommandBench(SKILLS, run=run)
    form = bench.begin("skill/add")
    for _ in range(2):
        assert condition(bench.reply(go_on(form, a="2"))) == "internal-server-error"
    assert len(run.asked) == 1


# -- other actions -------------------------------------------------------------------------------


def test_cancel_ends_a_session() -> None:
    run = Answers()
    bench = CommandBench(SKILLS, run=run)
    form = bench.begin("skill/add")
    answer = bench.ask(go_on(form, "cancel"))
    assert (answer.status, answer.form, answer.sessionid) == ("canceled", None, form.sessionid)
    assert bench.ask(go_on(form, "cancel")) == answer
    assert refusal(bench.reply(go_on(form, a="2"))) == ("not-allowed", ["session-expired"])


@pytest.mark.parametrize("action", ["cancel", "prev", "next"])
def test_what_comes_after_the_end(action: str) -> None:
    bench = CommandBench(SKILLS)
    done = bench.begin("skill/now")
    assert refusal(bench.reply(go_on(done, action))) == ("not-allowed", ["session-expired"])


@pytest.mark.parametrize("action", ["prev", "next"])
def test_there_is_one_stage(action: str) -> None:
    bench = CommandBench(SKILLS)
    form = bench.begin("skill/add")
    refused = bench.reply(go_on(form, action, a="2"))
    assert refusal(refused) == ("bad-request", ["bad-action"])
    assert bench.ask(go_on(form, "cancel")).status == "canceled"


@pytest.mark.parametrize("action", ["cancel", "prev", "next", "complete"])
def test_a_command_begins_with_execute(action: Any) -> None:
    refused = CommandBench(SKILLS).reply(Command(node="skill/add", action=action))
    assert refusal(refused) == ("bad-request", ["bad-action"])


@pytest.mark.parametrize("form", [None, Form(type="form"), Form(type="result")])
def test_a_stage_without_a_form_filled_in(form: Form | None) -> None:
    bench = CommandBench(SKILLS)
    begun = bench.begin("skill/grumpy")
    assert refusal(bench.reply(go_on(begun, form=form))) == ("bad-request", ["bad-payload"])
    given = Form(type="cancel", fields=submitted(text="x").fields)
    assert bench.ask(go_on(begun, form=given)).status == "completed"


# -- commands of the service ---------------------------------------------------------------------


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What it takes."""

    name: str
    times: Annotated[int, msgspec.Meta(title="Times", ge=1)] = 1


class Row(msgspec.Struct, frozen=True):
    """One line of an answer."""

    name: str
    often_done: int | None
    uptime_s: int = 5


async def _greet(asking: Asking, params: Params) -> CommandResult:
    if params.name == "nobody":
        raise CommandError("There is nobody of that name.", "name")
    if params.name == "boss":
        raise CommandError("The boss is not to be greeted.")
    if params.name == "disk":
        raise StorageError("disk full at /secret")
    said = f"{asking.principal} at {asking.at} greets {params.name}"
    return CommandResult(said, [Row(params.name, number) for number in range(params.times)])


async def _reload(asking: Asking, params: NoParams) -> CommandResult:
    return CommandResult("Reloaded.", Row("all", None))


GREET = Outline(name="greet", title="Greet", about="greets", params=Params).done_by(_greet)
RELOAD = Outline(
    name="reload", title="Reload", about="reads again", params=NoParams, who="admin"
).done_by(_reload)


def commanding() -> CommandBench:
    return CommandBench(commands=(GREET, RELOAD), admins=["bob@b.example"])


async def test_a_command_of_the_service_is_one_too() -> None:
    bench = commanding()
    form = bench.begin("command/greet")
    assert form.form is not None
    assert form.form.form_type is None
    assert form.form.instructions == ("Greets.",)
    assert field(form, "times").label == "Times"
    async with bench.bench.running():
        answer = result(Command, await bench.asked(go_on(form, name="you", times="2")))
    assert notes(answer) == [("info", f"alice@a.example at {AGENT} greets you")]
    assert answer.form is None, "Gajim 1.7 shows nothing if there is a table"


async def test_an_answer_of_several_lines_is_in_a_field_which_clients_scroll() -> None:
    bench = commanding()
    async with bench.bench.running():
        form = bench.begin("command/greet")
        answer = result(Command, await bench.asked(go_on(form, name="you\nand you", times="1")))
    assert notes(answer) == [("info", "Greet: done.")]
    said = field(answer, "answer")
    assert (said.type, said.label) == ("text-multi", "Answer")
    assert said.values == (f"alice@a.example at {AGENT} greets you", "and you")


async def test_a_row_is_a_field_for_each_of_its_values() -> None:
    bench = commanding()
    async with bench.bench.running():
        answer = result(Command, await bench.asked(Command(node="command/reload"), BOB))
    assert notes(answer) == [("info", "Reloaded.")]
    assert answer.form is not None
    assert [(f.label, f.values) for f in answer.form.fields] == [
        ("Name", ("all",)),
        ("Often done", ("",)),
        ("Uptime in seconds", ("5",)),
    ]


async def test_its_errors_are_notes_or_the_form_again() -> None:
    bench = commanding()
    form = bench.begin("command/greet")
    async with bench.bench.running():
        again = result(Command, await bench.asked(go_on(form, name="nobody")))
        assert again.status == "executing"
        assert notes(again) == [("error", "There is nobody of that name.")]
        assert field(again, "name").desc == "There is nobody of that name."
        again = result(Command, await bench.asked(go_on(again, name="boss")))
        assert (again.status, notes(again)) == (
            "executing",
            [("error", "The boss is not to be greeted.")],
        )
        assert field(again, "name").values == ("boss",)
        form = bench.begin("command/greet")
        over = result(Command, await bench.asked(go_on(form, name="disk")))
    assert notes(over) == [("error", "The agent failed to serve this.")]


async def test_commands_for_admins_are_there_for_nobody_else() -> None:
    bench = commanding()
    assert condition(bench.reply(Command(node="command/reload"))) == "item-not-found"
    assert "command/reload" not in {item.node for item in items(bench).items}
    assert "command/reload" in {item.node for item in items(bench, from_=BOB).items}
    async with bench.bench.running():
        answer = result(Command, await bench.asked(Command(node="command/reload"), BOB))
    assert notes(answer) == [("info", "Reloaded.")]
    assert field(answer, "often_done").values == ("",)


async def test_every_command_that_everybody_has_can_be_run() -> None:
    bench = CommandBench(all_skills())
    nodes = [item.node for item in items(bench).items if (item.node or "").startswith("command/")]
    assert len(nodes) >= 4
    async with bench.bench.running():
        for node in nodes:
            answer = result(Command, await bench.asked(Command(node=node or "")))
            if answer.status == "executing":
                assert answer.form is not None
                form = Form(type="submit", fields=answer.form.fields)
                answer = result(Command, await bench.asked(go_on(answer, form=form)))
            assert answer.status == "completed", node
            assert [note.type for note in answer.notes] == ["info"], node


async def test_a_command_in_a_form_knows_the_client_that_sent_it() -> None:
    async def from_where(asking: Asking, params: Params) -> CommandResult:
        return CommandResult(f"from {asking.client}")

    outline = Outline(name="greet", title="Greet", about="greets", params=Params)
    bench = CommandBench(commands=(outline.done_by(from_where),))
    form = bench.begin("command/greet")
    async with bench.bench.running():
        answer = result(Command, await bench.asked(go_on(form, name="you", times="2")))
    assert notes(answer) == [("info", f"from {ALICE}")]
