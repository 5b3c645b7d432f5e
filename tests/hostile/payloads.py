"""Payloads of every protocol that the component serves or may be sent: as they should be, and not.

`payload` draws one of a kind; `spoil` changes something in it: children and attributes are missing,
twice, renamed, nested, of another namespace, or hold what they should not.
"""

import json
from collections.abc import Callable
from typing import Final

from tests.hostile.grammar import WORDS, Grammar, Node, element

FLUUX: Final = "urn:fluux:agent:0"
EXECUTE: Final = f"{FLUUX}#execute"
TASK: Final = f"{FLUUX}#task"
CONFIRM: Final = f"{FLUUX}#confirm"
COMMANDS: Final = "http://jabber.org/protocol/commands"
INFO: Final = "http://jabber.org/protocol/disco#info"
ITEMS: Final = "http://jabber.org/protocol/disco#items"
RSM: Final = "http://jabber.org/protocol/rsm"
FORMS: Final = "jabber:x:data"

SKILLS: Final[dict[str, tuple[str, ...]]] = {
    "echo": ("text",),
    "time": ("zone",),
    "weather": ("city",),
    "wipe": ("disk",),
    "memory_store": ("key", "body", "tags"),
    "memory_search": ("query",),
    "memory_recall": ("key",),
    "memory_forget": ("key",),
    "conformance.echo": ("text",),
    "conformance.add": ("a", "b"),
    "conformance.erase": ("target",),
    "conformance.ask": ("question",),
    "conformance.say": ("question",),
    "conformance.sleep": ("seconds",),
    "conformance.big": ("bytes",),
    "conformance.count": ("key",),
    "conformance.fail": ("message",),
    "conformance.hidden": (),
    "only-romeo": (),
    "nosuch": ("text",),
}
"""Names of skills, and of their parameters."""

NAMES: Final = tuple(SKILLS)
PARAMETERS: Final = tuple({name: 0 for names in SKILLS.values() for name in names})

SETS: Final = frozenset(("execute", "command", "decision", "cancel", "answer"))
"""Names of payloads that go into an IQ of type set."""

NODES: Final = (
    *(f"skill/{name}" for name in SKILLS),
    *("command/status", "command/tasks", "command/help", "command/pause", "command/new", ""),
    *(COMMANDS, f"{FLUUX}#skills", f"{FLUUX}#skills/echo", "http://example.com#ver="),
)


def execute(grammar: Grammar) -> Node:
    """An execute request; mostly of a skill that is there."""
    skill = grammar.pick(NAMES)
    node = element("execute", {"xmlns": EXECUTE, "skill": skill})
    _maybe(grammar, node, "mode", ("auto", "inline", "async", "async", "later"), 0.4)
    _maybe(grammar, node, "request", ("r1", "r2", "no identifier", "r" * 300), 0.2)
    _maybe(grammar, node, "deadline", ("2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"), 0.1)
    _maybe(grammar, node, "thread", WORDS, 0.1)
    _maybe(grammar, node, "context", WORDS, 0.1)
    for name in SKILLS[skill]:
        value = grammar.pick(("1", "0.1", "UTC")) if grammar.chance(0.3) else grammar.text()
        node.children.append(element("param", {"name": name}, value))
    if grammar.chance(0.1):
        name = grammar.pick(PARAMETERS)
        node.children.append(element("param", {"name": name}, grammar.text()))
    if grammar.chance(0.1):
        node.children = []
    if grammar.chance(0.15):
        node.children.append(element("params", {"type": "application/json"}, json_text(grammar)))
    if grammar.chance(0.1):
        node.children.append(element("earlier", {"task": "@TASK@"}))
    if grammar.chance(0.1):
        node.children.append(delegation(grammar))
    return node


def json_text(grammar: Grammar) -> str:
    """JSON, as it should be and as it should not."""
    value: object = {grammar.pick(PARAMETERS): grammar.text() for _ in range(2)}
    kind = grammar.random.random()
    if kind < 0.1:
        depth = grammar.random.randint(10, 3000)
        return "[" * depth + "]" * (depth if grammar.chance(0.7) else depth - 1)
    if kind < 0.15:
        return json.dumps({"text": ["x"] * grammar.random.randint(100, 20_000)})
    if kind < 0.2:
        return grammar.pick(
            ('{"a":1e999}', '{"a":' + "9" * 5000 + "}", '"\\ud800"', '{"a":1,"a":2}')
        )
    return json.dumps(value, ensure_ascii=grammar.chance(0.5))


def delegation(grammar: Grammar) -> Node:
    """Where delegated work comes from."""
    given = {"origin": "alice@a.example", "max-hops": grammar.pick(WORDS), "trace": "00-x-01"}
    vias = [element("via", None, grammar.text()) for _ in range(grammar.random.randint(0, 5))]
    return element("delegation", {"xmlns": f"{FLUUX}#delegation", **given}, *vias)


def skills(grammar: Grammar) -> Node:
    """A query for skills."""
    node = element("query", {"xmlns": f"{FLUUX}#skills"})
    _maybe(grammar, node, "skill", NAMES, 0.4)
    _maybe(grammar, node, "search", WORDS, 0.3)
    _maybe(grammar, node, "version", WORDS, 0.2)
    return _paged(grammar, node)


def disco(grammar: Grammar) -> Node:
    """A query of service discovery."""
    node = element("query", {"xmlns": grammar.pick((INFO, ITEMS))})
    _maybe(grammar, node, "node", NODES)
    return _paged(grammar, node)


def task(grammar: Grammar) -> Node:
    """Whatever can be asked about tasks."""
    identifier = {"xmlns": TASK, "id": grammar.pick(("@TASK@", "@TASK@", "0" * 32, "x"))}
    return grammar.one_of(
        lambda: element("task", identifier),
        lambda: element("cancel", identifier),
        lambda: element("events", identifier | {"since": grammar.pick(("0", "1", "-1", "9" * 40))}),
        lambda: _paged(grammar, element("tasks", {"xmlns": TASK, "state": "running"})),
        lambda: element(
            "answer",
            {"xmlns": TASK, "task": identifier["id"], "input": "x", "revision": "1"},
            element("params", {"type": "application/json"}, json_text(grammar)),
        ),
    )


def decision(grammar: Grammar) -> Node:
    """An answer to a confirmation."""
    value = grammar.pick(("approve", "deny", "maybe"))
    node = element("decision", {"xmlns": CONFIRM, "id": "@CONFIRM@", "value": value})
    if grammar.chance(0.3):
        node.children.append(element("reason", None, grammar.text()))
    return node


def command(grammar: Grammar) -> Node:
    """A stage of an ad-hoc command, with a form or without."""
    node = element("command", {"xmlns": COMMANDS, "node": grammar.pick(NODES)})
    _maybe(grammar, node, "action", ("execute", "next", "prev", "complete", "cancel", "x"))
    _maybe(grammar, node, "sessionid", ("@SESSION@", "@SESSION@", "x"))
    if grammar.chance(0.6):
        node.children.append(form(grammar))
    return node


def form(grammar: Grammar) -> Node:
    """A data form."""
    node = element("x", {"xmlns": FORMS, "type": grammar.pick(("submit", "submit", "form", "x"))})
    for _ in range(grammar.random.randint(0, 5) if grammar.chance(0.99) else 800):
        given = element("field", {"var": grammar.pick((*PARAMETERS, "FORM_TYPE"))})
        _maybe(grammar, given, "type", ("text-multi", "boolean", "list-single", "hidden", "x"))
        for _ in range(grammar.random.randint(0, 3)):
            given.children.append(element("value", None, grammar.text()))
        node.children.append(given)
    return node


def small(grammar: Grammar) -> Node:
    """Ping, version, time, vCard, and what is asked of others."""
    name, namespace = grammar.pick(
        (
            ("ping", "urn:xmpp:ping"),
            ("query", "jabber:iq:version"),
            ("time", "urn:xmpp:time"),
            ("vCard", "vcard-temp"),
            ("vcard", "urn:ietf:params:xml:ns:vcard-4.0"),
            ("query", "jabber:iq:last"),
            ("query", "jabber:iq:register"),
            ("query", "jabber:iq:roster"),
            ("query", "urn:xmpp:mam:2"),
            ("pubsub", "http://jabber.org/protocol/pubsub"),
            ("open", "http://jabber.org/protocol/ibb"),
            ("jingle", "urn:xmpp:jingle:1"),
            ("delegate", "urn:xmpp:delegation:2"),
            ("memory", f"{FLUUX}#memory"),
        )
    )
    return element(name, {"xmlns": namespace})


_KINDS: Final[tuple[Callable[[Grammar], Node], ...]] = (
    *(execute, execute, execute, skills, disco, task, task, decision, command, command, small),
    delegation,
)


def payload(grammar: Grammar) -> Node:
    """A payload of any protocol: most of them as they should be, but for their texts."""
    if grammar.chance(0.1):
        return grammar.any_element()
    node = grammar.pick(_KINDS)(grammar)
    while grammar.chance(0.3):
        spoil(grammar, node)
    return node


def spoil(grammar: Grammar, top: Node) -> None:
    """Change something somewhere in an element, which stays well-formed."""
    node = grammar.pick(list(top.walk()))
    change = grammar.random.randrange(10)
    if change == 0 and node.children:
        node.children.remove(grammar.pick(node.children))
    elif change == 1 and node.children:
        node.children.append(grammar.pick(node.children))
    elif change == 2 and (plain := _plain(node)):
        del node.attributes[grammar.pick(plain)]
    elif change == 3 and (plain := _plain(node)):
        node.attributes[grammar.pick(plain)] = grammar.text()
    elif change == 4:
        node.children.append(grammar.any_element())
    elif change == 5:
        node.children.append(grammar.text())
    elif change == 6:
        node.attributes["xmlns"] = grammar.namespace()
    elif change == 7 and ":" not in node.name:
        grammar.decorate(node)
    elif change == 8:
        node.children = [Node(node.name.partition(":")[2] or node.name, {}, node.children)]
    elif change == 9:
        node.children = [grammar.text()]


def _plain(node: Node) -> list[str]:
    """Attributes that can go or change and leave the element well-formed."""
    return [name for name in node.attributes if not name.startswith("xmlns")]


def _maybe(
    grammar: Grammar, node: Node, name: str, values: tuple[str, ...], share: float = 0.5
) -> None:
    if grammar.chance(share):
        node.attributes[name] = grammar.pick(values)


def _paged(grammar: Grammar, node: Node) -> Node:
    if grammar.chance(0.3):
        numbers = ("0", "1", "50", "-1", "x", "9" * 30, "")
        page = element("set", {"xmlns": RSM}, element("max", None, grammar.pick(numbers)))
        if grammar.chance(0.5):
            name = grammar.pick(("after", "before", "index"))
            page.children.append(element(name, None, grammar.text()))
        node.children.append(page)
    return node
