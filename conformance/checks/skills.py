"""Discovery: which skills exist."""

import msgspec

from conformance.model import Ability, check
from conformance.post import Where
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.disco import ItemsQuery
from xep.fluux_agent.skills import NAMESPACE, SkillDescription, SkillsQuery
from xep.result_sets import NAMESPACE as RSM
from xep.result_sets import ResultSet

PUBSUB = "http://jabber.org/protocol/pubsub"
_MANY_WORDS = 2_000
"""Unreasonably many, but no more than a server that limits rates passes on within seconds."""


async def view(t: Talk, sender: str | None = None) -> list[SkillDescription]:
    """Return every visible skill, from all pages."""
    found: list[SkillDescription] = []
    after: str | None = None
    while True:
        page = None if after is None else ResultSet(after=after)
        answer = await t.iq("get", SkillsQuery(page=page), sender=sender)
        query = t.given(answer, SkillsQuery, "The skills query")
        found += query.skills
        last = query.page.last if query.page is not None else None
        count = query.page.count if query.page is not None else None
        ended = count is not None and len(found) >= count  # a page may lack it (COM-027)
        if not query.skills or last is None or last == after or ended:
            return found
        after = last


async def _one(t: Talk, name: str, id_: str) -> tuple[SkillDescription | None, Received]:
    answer = await t.iq("get", SkillsQuery(skill=name))
    query = t.decoded(id_, answer, SkillsQuery, f"the skill {name}")
    skills = query.skills
    return (skills[0] if len(skills) == 1 and skills[0].name == name else None), answer


def _some(t: Talk) -> str:
    t.need(bool(t.target.offered), "The caller sees no skill at all.")
    mapped = sorted(s.name for s in t.target.skills.values() if s.name in t.target.offered)
    return mapped[0] if mapped else min(t.target.offered)


@check("skills.view", "SKL-001", "SKL-005")
async def listed(t: Talk) -> None:
    """The query of the first public draft gets the skills of the view, sorted by name, without
    schemas.
    """
    answer = await t.iq("get", f"<query xmlns='{NAMESPACE}'/>")
    query = t.decoded("SKL-001", answer, SkillsQuery, "the skills of the sender's view")
    names = [skill.name for skill in query.skills]
    t.hold("SKL-001", names == sorted(names), "names in the order of code points", str(names))
    elements = answer.tree.findall(f"{{{NAMESPACE}}}query/{{{NAMESPACE}}}skill")
    t.hold("SKL-001", len(elements) == len(names), "each <skill/> as its schema says", answer)
    schemas = answer.tree.findall(f".//{{{NAMESPACE}}}schema")
    t.hold("SKL-005", not schemas, "no schemas in a list", answer)
    asked = (
        f"<query xmlns='{NAMESPACE}' schemas='true'><set xmlns='{RSM}'><max>3</max></set></query>"
    )
    answer = await t.iq("get", asked)
    query = t.decoded("SKL-005", answer, SkillsQuery, "the skills with their schemas")
    ok = all(any(one.direction == "input" for one in skill.schemas) for skill in query.skills)
    t.hold("SKL-005", ok and bool(query.skills), "an input schema in each skill", answer)


@check("skills.executable", "SKL-001", roles=("hidden",))
async def executable(t: Talk) -> None:
    """A skill that is refused to the caller is not in the caller's list."""
    names = [one.name for one in await view(t)]
    hidden = t.skill("hidden").name
    t.hold("SKL-001", hidden not in names, f"no {hidden}, which nobody may use", str(names))


@check("skills.one", "SKL-004", "SKL-006")
async def one(t: Talk) -> None:
    """A skill requested by name includes its input schema, which is of type object."""
    for name in sorted(t.target.offered)[:12]:
        skill, answer = await _one(t, name, "SKL-004")
        if not t.hold("SKL-004", skill is not None, f"{name} alone", answer):
            continue
        assert skill is not None
        inputs = [one for one in skill.schemas if one.direction == "input"]
        if not t.hold("SKL-004", len(inputs) == 1, "the schema of its input", answer):
            continue
        schema = msgspec.json.decode(inputs[0].json)
        ok = isinstance(schema, dict) and schema.get("type") == "object"
        t.hold("SKL-006", ok, "an input schema of type object", answer)


@check("skills.schema", "SKL-004", roles=("add",))
async def schema(t: Talk) -> None:
    """The published schema is the one that requests are validated against."""
    name = t.skill("add").name
    skill, answer = await _one(t, name, "SKL-004")
    t.need(skill is not None, f"{name} was not described.")
    assert skill is not None
    shown = [msgspec.json.decode(o.json) for o in skill.schemas if o.direction == "input"]
    t.need(len(shown) == 1 and isinstance(shown[0], dict), f"{name} has no input schema.")
    properties = shown[0].get("properties", {})
    required = shown[0].get("required", [])
    for role_name in ("a", "b"):
        param = t.skill("add").param(role_name)
        expected = f"{param} as a required integer"
        ok = properties.get(param, {}).get("type") == "integer" and param in required
        t.hold("SKL-004", ok, expected, answer)
    described = {one.name: (one.type, one.required) for one in skill.params}
    expected = "a <param/> per property, of its type"
    ok = all(described.get(t.skill("add").param(p)) == ("integer", True) for p in ("a", "b"))
    t.hold("SKL-004", ok and set(described) == set(properties), expected, answer)


@check("skills.unknown", "SKL-007")
async def unknown(t: Talk) -> None:
    """A name that is not in the view is unknown."""
    answer = await t.iq("get", SkillsQuery(skill="no-such-skill"))
    t.holds_error("SKL-007", answer, "item-not-found", "unknown-skill")


@check("skills.hidden", "SKL-007", "SEC-008", roles=("hidden",))
async def hidden(t: Talk) -> None:
    """A skill that the sender must not see looks like one that does not exist, byte for byte."""
    name, invented = t.skill("hidden").name, "conformance.hidden0"[: len(t.skill("hidden").name)]
    invented = invented if invented != name else "no-such-skill"
    first = await t.iq("get", SkillsQuery(skill=name))
    second = await t.iq("get", SkillsQuery(skill=invented))
    t.holds_error("SKL-007", first, "item-not-found", "unknown-skill")
    same = _shape(first, name) == _shape(second, invented)
    t.hold("SKL-007", same, "the answer that an invented name gets", f"{first.xml}\n{second.xml}")
    for params, attributes in (
        ({"no-such-parameter": "x"}, {}),
        ({}, {"mode": "async"}),
        ({}, {"mode": "inline"}),
        ({}, {"deadline": "2001-01-01T00:00:00Z"}),
    ):
        real = await t.execute(f"={name}", params, having=attributes)
        none = await t.execute(f"={invented}", params, having=attributes)
        t.holds_error("SEC-008", real, "item-not-found", "unknown-skill")
        same = _shape(real, name) == _shape(none, invented)
        expected = "the answer that an invented name gets"
        t.hold("SEC-008", same, expected, f"{real.xml}\n{none.xml}")


def _shape(stanza: Received, name: str) -> str:
    return stanza.xml.replace(stanza.head.id or "", "ID").replace(name, "NAME")


@check("skills.search", "SKL-008", roles=("echo",))
async def search(t: Talk) -> None:
    """A search finds the skills that contain every word, ignoring case, and no others."""
    name = t.skill("echo").name
    everything = await view(t)
    described = {}
    for skill in everything:
        texts = [skill.name, *skill.tags]
        texts += [one.text for one in skill.titles]
        texts += [one.text for one in skill.descriptions]
        described[skill.name] = " ".join(texts).casefold()
    for words in (name, name.upper(), f"{name} {name[:3]}", name[-3:], "no-such-word-anywhere"):
        answer = await t.iq("get", SkillsQuery(search=words))
        query = t.decoded("SKL-008", answer, SkillsQuery, "the skills that fit the words")
        found = {skill.name for skill in query.skills}
        wanted = {
            one
            for one, text in described.items()
            if all(word.casefold() in text for word in words.split())
        }
        whole = query.page is None or (
            query.page.count is not None and query.page.count <= len(found)
        )
        ok = found == wanted if whole else found <= wanted
        expected = f"for {words!r}: {', '.join(sorted(wanted)) or 'nothing'}"
        t.hold("SKL-008", ok, expected, ", ".join(sorted(found)) or "nothing")


@check("skills.search-bound", "SKL-009")
async def search_bound(t: Talk) -> None:
    """A search with unreasonably many words may be refused as malformed."""
    answer = await t.iq("get", SkillsQuery(search=" ".join(["word"] * _MANY_WORDS)))
    if answer.is_error:
        ok = answer.agent_conditions in (["malformed"], ["too-big"])
        t.hold("SKL-009", ok, "<malformed/>, if it is refused", answer)
    else:
        t.hold("SKL-009", True, "an answer")


@check("skills.version", "SKL-010", roles=("echo",))
async def version(t: Talk) -> None:
    """The version is the same for every query."""
    versions = {}
    for what, query in (
        ("everything", SkillsQuery()),
        ("one skill", SkillsQuery(skill=t.skill("echo").name)),
        ("a search", SkillsQuery(search="no-such-word-anywhere")),
        ("a page", SkillsQuery(page=ResultSet(max=1))),
    ):
        answer = await t.iq("get", query)
        given = t.decoded("SKL-010", answer, SkillsQuery, "an answer with a version")
        versions[what] = given.version
    same = len(set(versions.values())) == 1 and None not in versions.values()
    t.hold("SKL-010", same, "the same version in each answer", str(versions))


@check("skills.unchanged", "SKL-011")
async def unchanged(t: Talk) -> None:
    """A query with the current version is answered with unchanged and nothing else."""
    first = t.given(await t.iq("get", SkillsQuery()), SkillsQuery, "The skills query")
    t.need(first.version is not None, "The answer has no version.")
    answer = await t.iq("get", SkillsQuery(version=first.version))
    query = t.decoded("SKL-011", answer, SkillsQuery, "unchanged='true'")
    ok = query.unchanged and not query.skills
    t.hold("SKL-011", ok, "unchanged='true' and no skills", answer)
    other = await t.iq("get", SkillsQuery(version="not-the-version"))
    query = t.decoded("SKL-011", other, SkillsQuery, "the skills, for another version")
    ok = not query.unchanged and bool(query.skills) == bool(t.target.offered)
    t.hold("SKL-011", ok, "the skills, when the version is another", other)


@check("skills.items", "SKL-013", "SKL-014")
async def items(t: Talk) -> None:
    """The skills are items of a disco node too, in the same order."""
    names = [one.name for one in await view(t)]
    found: list[tuple[str | None, str | None]] = []
    after: str | None = None
    while len(found) < len(names) or not found:
        page = None if after is None else ResultSet(after=after)
        answer = await t.iq("get", ItemsQuery(node=NAMESPACE, page=page))
        query = t.decoded("SKL-013", answer, ItemsQuery, "the items of the node of skills")
        found += [(item.node, item.name) for item in query.items]
        last = query.page.last if query.page is not None else None
        if not query.items or last in (None, after):
            break
        after = last
    nodes = [node or "" for node, _ in found]
    wanted = [f"{NAMESPACE}/{name}" for name in names]
    strange = [node for node in nodes if not node.startswith(f"{NAMESPACE}/")]
    t.hold("SKL-014", not strange, f"nodes that begin with {NAMESPACE}/", str(strange))
    bare = [node.rpartition("/")[2] for node in nodes]
    t.hold("SKL-013", bare == names, ", ".join(names), ", ".join(bare))
    t.hold("SKL-014", bool(strange) or nodes == wanted, ", ".join(wanted), ", ".join(nodes))


@check("skills.stranger", "SKL-010", needs=[Ability.STRANGER])
async def stranger(t: Talk) -> None:
    """Two principals with the same view get the same version."""
    own = await t.iq("get", SkillsQuery())
    other = await t.iq("get", SkillsQuery(), sender=t.stranger)
    mine = t.given(own, SkillsQuery, "The skills query")
    if other.is_error:
        t.hold("SKL-010", True, "the stranger sees nothing to compare")
        return
    theirs = t.given(other, SkillsQuery, "The stranger's skills query")
    differ = mine.skills != theirs.skills
    t.hold("SKL-010", differ or mine.version == theirs.version, "one version for one view", other)


@check("pubsub.skills-node", "SKL-015", "SKL-016", features=[PUBSUB], roles=("hidden",))
async def node(t: Talk) -> None:
    """Skills are items of a PubSub node, without schemas."""
    payload = f"<pubsub xmlns='{PUBSUB}'><items node='{NAMESPACE}'/></pubsub>"
    answer = await t.iq("get", payload)
    found = answer.tree.findall(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}items/{{{PUBSUB}}}item")
    names = sorted(one.name for one in await view(t))
    ids = sorted(item.get("id") or "" for item in found)
    t.hold("SKL-015", ids == names, "an item for each skill, whose id is its name", answer)
    t.hold("SKL-016", ids == names, "the items of the subscriber's own view", answer)
    schemas = answer.tree.findall(f".//{{{NAMESPACE}}}schema")
    t.hold("SKL-015", not schemas, "no schemas", answer)


def _notified(name: str, tag: str) -> Where:
    """Return a condition for notifications of the item, or of the retraction, of a skill."""

    def where(stanza: Received) -> bool:
        inside = f"{{{PUBSUB}#event}}event/{{{PUBSUB}#event}}items/{{{PUBSUB}#event}}{tag}"
        found = stanza.tree.findall(inside)
        return stanza.head.kind == "message" and name in [one.get("id") for one in found]

    return where


@check("pubsub.skills-change", "SKL-017", features=[PUBSUB], roles=("reveal",), alone=True)
async def change(t: Talk) -> None:
    """A skill that is added to the view is announced as an item, and one that leaves it is
    retracted.
    """
    bare, shy = t.who.caller.partition("/")[0], t.skill("shy").name
    payload = f"<subscribe node='{NAMESPACE}' jid='{bare}'/>"
    answer = await t.iq("set", f"<pubsub xmlns='{PUBSUB}'>{payload}</pubsub>")
    t.need(not answer.is_error, f"Subscribing did not work: {answer.xml[:300]}")
    for shown, tag, what in (("true", "item", "an item"), ("false", "retract", "a retraction")):
        answer = await t.execute("reveal", {"shown": shown})
        t.need(not answer.is_error, f"Revealing did not work: {answer.xml[:300]}")
        names = {one.name for one in await view(t)}
        t.need((shy in names) == (shown == "true"), f"{shy} did not come, or did not leave.")
        told = await t.quiet(_notified(shy, tag), t.timeout)
        t.hold("SKL-017", told is not None, f"{what} of {shy}", "none came")
        if told is not None and tag == "item":
            skills = told.tree.findall(f".//{{{NAMESPACE}}}skill")
            ok = [one.get("name") for one in skills] == [shy]
            t.hold("SKL-017", ok, "the <skill/> in the item", told)
    payload = f"<unsubscribe node='{NAMESPACE}' jid='{bare}'/>"
    await t.iq("set", f"<pubsub xmlns='{PUBSUB}'>{payload}</pubsub>")


CHECKS = (
    listed,
    executable,
    one,
    schema,
    unknown,
    hidden,
    search,
    search_bound,
    version,
    unchanged,
    items,
    stranger,
    node,
    change,
)
