"""Faces for Other Clients: Ad-Hoc Commands, Forms from Schemas."""

import msgspec

from conformance.checks.follow import ENDS, TASKS
from conformance.checks.modes import LONGEST_WAIT
from conformance.checks.skills import view
from conformance.model import check
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.commands import NAMESPACE, Command
from xep.data_forms import Field, Form
from xep.disco import ItemsQuery
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.skills import SkillsQuery
from xep.fluux_agent.task import Task
from xep.result_sets import ResultSet


async def _nodes(t: Talk) -> dict[str, str]:
    """Return the nodes of the commands, by node and by name."""
    found: dict[str, str] = {}
    after: str | None = None
    while True:
        page = None if after is None else ResultSet(after=after)
        answer = await t.iq("get", ItemsQuery(node=NAMESPACE, page=page))
        query = t.given(answer, ItemsQuery, "disco#items of the commands")
        for item in query.items:
            if item.node is not None:
                found[item.node] = item.node
                found.setdefault(item.name or item.node, item.node)
        last = query.page.last if query.page is not None else None
        if not query.items or last in (None, after):
            return found
        after = last


async def _begin(t: Talk, role: str) -> tuple[Received, Command]:
    name = t.skill(role).name
    nodes = await _nodes(t)
    titles = {one.name: [text.text for text in one.titles] for one in await view(t)}
    words = [name, *titles.get(name, ())]
    node = next((nodes[word] for word in words if word in nodes), None)
    t.need(node is not None, f"No command is called {' or '.join(words)}.")
    assert node is not None
    answer = await t.iq("set", Command(node=node, action="execute"))
    return answer, t.given(answer, Command, f"The command of {name}")


def _submit(t: Talk, role: str, command: Command, **values: str) -> Command:
    fields = [Field(var="FORM_TYPE", values=(EXECUTE,))]
    given = {**t.skill(role).fixed, **values}
    fields += [Field(var=name, values=(text,)) for name, text in given.items()]
    form = Form(type="submit", fields=tuple(fields))
    return Command(node=command.node, sessionid=command.sessionid, action="complete", form=form)


@check("adhoc.skills", "FAC-001", features=[NAMESPACE], roles=("echo", "hidden"))
async def offered(t: Talk) -> None:
    """Every skill of the view is a command, and no other skill is."""
    nodes = await _nodes(t)
    for skill in await view(t):
        words = [skill.name, *[one.text for one in skill.titles]]
        ok = any(word in nodes for word in words)
        t.hold("FAC-001", ok, f"a command for {skill.name}", ", ".join(nodes))
    hidden = t.skill("hidden").name
    t.hold("FAC-001", hidden not in nodes, f"none for {hidden}", ", ".join(nodes))


@check("adhoc.form", "FAC-002", "FAC-003", "FAC-008", "FAC-009", features=[NAMESPACE],
       roles=("types", "add"))  # fmt: skip
async def form(t: Talk) -> None:
    """A command begins with the form made from the schema."""
    answer, command = await _begin(t, "types")
    shown = command.form
    ok = shown is not None and command.status == "executing"
    if not t.hold("FAC-002", ok, "a form, and the status executing", answer):
        return
    assert shown is not None
    types = [one.values for one in shown.fields if one.var == "FORM_TYPE"]
    t.hold("FAC-003", types == [(EXECUTE,)], f"the FORM_TYPE {EXECUTE}", answer)
    described = await t.iq("get", SkillsQuery(skill=t.skill("types").name))
    skills = t.given(described, SkillsQuery, "The skill").skills
    schemas = [one.json for skill in skills for one in skill.schemas if one.direction == "input"]
    t.need(len(schemas) == 1, "The skill has no input schema.")
    schema = msgspec.json.decode(schemas[0])
    fields = [one for one in shown.fields if one.var not in (None, "FORM_TYPE")]
    wanted = list(schema.get("properties", {}))
    names = [one.var for one in fields]
    t.hold("FAC-008", names == wanted, f"fields in the order {wanted}", str(names))
    kinds = {t.skill("types").param("flag"): "boolean", t.skill("types").param("ratio"): None}
    kinds[t.skill("types").param("words")] = "text-multi"
    kinds[t.skill("types").param("colour")] = "list-single"
    for one in fields:
        kind = kinds.get(one.var or "", one.type) or "text-single"
        ok = (one.type or "text-single") == kind
        t.hold("FAC-008", ok, f"{one.var} is {kind}", answer)
        must = one.var in schema.get("required", ())
        t.hold("FAC-009", one.required == must, f"{one.var} required: {must}", answer)
        text = schema["properties"][one.var].get("description")
        t.hold("FAC-009", text is None or one.desc == text, f"{one.var}: {text}", answer)


@check("adhoc.invalid", "FAC-004", features=[NAMESPACE], roles=("add",))
async def invalid(t: Talk) -> None:
    """An invalid form is returned with the given values and the reason."""
    _, command = await _begin(t, "add")
    a, b = t.skill("add").param("a"), t.skill("add").param("b")
    answer = await t.iq("set", _submit(t, "add", command, **{a: "one", b: "2"}))
    back = t.decoded("FAC-004", answer, Command, "the form again")
    ok = back.status == "executing" and back.form is not None
    if not t.hold("FAC-004", ok, "the status executing, and the form", answer):
        return
    assert back.form is not None
    values = {one.var: one.values for one in back.form.fields}
    ok = values.get(a) == ("one",) and values.get(b) == ("2",)
    t.hold("FAC-004", ok, "the values that were given", answer)
    t.hold("FAC-004", any(one.text for one in back.notes), "a note with the reason", answer)


@check("adhoc.same", "FAC-005", "FAC-006", features=[NAMESPACE], roles=("count",))
async def same(t: Talk) -> None:
    """A command runs the skill, once for its session."""
    _, command = await _begin(t, "count")
    key = t.new_id()
    name = t.skill("count").param("key")
    one = await t.iq("set", _submit(t, "count", command, **{name: key}))
    done = t.decoded("FAC-005", one, Command, "the end of the command")
    t.hold("FAC-005", done.status == "completed", "the status completed", one)
    await t.iq("set", _submit(t, "count", command, **{name: key}))
    after = await t.execute("count", {"key": key})
    expected = "2: the form that was sent again did not run again"
    t.hold("FAC-006", t.text(after, "Counting") == "2", expected, after)


@check("adhoc.long", "FAC-007", features=[NAMESPACE, TASKS], roles=("sleep",))
async def long(t: Talk) -> None:
    """A command whose work becomes a task completes with a note, and the work continues."""
    limit = t.target.number("inline_seconds", 0)
    t.need(0 < limit <= LONGEST_WAIT, f"The inline limit is {limit} s: set it to 1 for this run.")
    _, command = await _begin(t, "sleep")
    name = t.skill("sleep").param("seconds")
    wait = limit + max(t.timeout, 5)
    submitted = _submit(t, "sleep", command, **{name: str(limit + 1)})
    answer = await t.iq("set", submitted, within=wait)
    done = t.decoded("FAC-007", answer, Command, "the end of the command")
    t.hold("FAC-007", done.status == "completed", "the status completed", answer)
    t.hold("FAC-007", any(one.text for one in done.notes), "a note that says so", answer)

    def ended(stanza: Received) -> bool:
        event = stanza.payload(Task) if stanza.head.kind == "message" else None
        ours = event is not None and event.skill == t.skill("sleep").name
        # Events of tasks that other checks started without a conversation have no body.
        return ours and event is not None and event.state in ENDS and bool(stanza.body)

    told = await t.quiet(ended, wait)
    t.hold("FAC-007", told is not None, "its end, in words", "silence")


CHECKS = (offered, form, invalid, same, long)
