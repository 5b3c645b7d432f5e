"""Random PubSub requests, and what two services answer to them, made comparable."""

from typing import Literal
from xml.etree import ElementTree as ET

import msgspec
from hypothesis import strategies as st

from xep.pubsub import NAMESPACE as PUBSUB
from xep.pubsub_errors import NAMESPACE as ERRORS
from xep.pubsub_owner import NAMESPACE as OWNER

DATA = "jabber:x:data"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
Who = Literal["owner", "stranger"]


class Asked(msgspec.Struct, frozen=True):
    """One request: who sends it, of which type, which verb it is, and its payload.

    The payload has `{node}` where the name of a node begins, and `{jid}` for the sender.
    """

    who: Who
    type: Literal["get", "set"]
    verb: str
    payload: str


def _form(form_type: str, values: dict[str, str]) -> str:
    fields = "".join(
        f"<field var='pubsub#{name}'><value>{value}</value></field>"
        for name, value in values.items()
    )
    hidden = f"<field var='FORM_TYPE' type='hidden'><value>{PUBSUB}#{form_type}</value></field>"
    return f"<x xmlns='{DATA}' type='submit'>{hidden}{fields}</x>"


_nodes = st.sampled_from(["{node}a", "{node}a", "{node}b"])
_ids = st.sampled_from(["1", "2", "3"])
_texts = st.sampled_from(["x", "y"])
_configs = st.fixed_dictionaries(
    {},
    optional={
        "access_model": st.sampled_from(["open", "presence", "whitelist"]),
        "max_items": st.sampled_from(["1", "2", "5"]),
        "notify_retract": st.sampled_from(["0", "1"]),
        "publish_model": st.sampled_from(["publishers", "open"]),
    },
)


def _pubsub(inside: str, namespace: str = PUBSUB) -> str:
    return f"<pubsub xmlns='{namespace}'>{inside}</pubsub>"


def _item(id_: str, text: str) -> str:
    return f"<item id='{id_}'><entry xmlns='urn:test:entry'>{text}</entry></item>"


def _create(node: str, config: dict[str, str]) -> str:
    form = f"<configure>{_form('node_config', config)}</configure>" if config else ""
    return _pubsub(f"<create node='{node}'/>{form}")


def _publish(node: str, id_: str, text: str, options: dict[str, str] | None) -> str:
    form = ""
    if options:
        form = f"<publish-options>{_form('publish-options', options)}</publish-options>"
    return _pubsub(f"<publish node='{node}'>{_item(id_, text)}</publish>{form}")


def _items(node: str, ids: list[str], most: int | None) -> str:
    attribute = "" if most is None else f" max_items='{most}'"
    named = "".join(f"<item id='{each}'/>" for each in ids)
    return _pubsub(f"<items node='{node}'{attribute}>{named}</items>")


def _configure(node: str, config: dict[str, str]) -> str:
    return _pubsub(f"<configure node='{node}'>{_form('node_config', config)}</configure>", OWNER)


def _affiliation(node: str, affiliation: str) -> str:
    inside = f"<affiliation jid='{{stranger}}' affiliation='{affiliation}'/>"
    return _pubsub(f"<affiliations node='{node}'>{inside}</affiliations>", OWNER)


_PAYLOADS: dict[tuple[Literal["get", "set"], str], st.SearchStrategy[str]] = {
    ("set", "create"): st.builds(_create, _nodes, _configs),
    ("set", "publish"): st.builds(
        _publish,
        _nodes,
        _ids,
        _texts,
        st.none() | st.fixed_dictionaries({"access_model": st.sampled_from(["open", "presence"])}),
    ),
    ("set", "retract"): st.builds(
        lambda node, id_: _pubsub(f"<retract node='{node}'><item id='{id_}'/></retract>"),
        _nodes,
        _ids,
    ),
    ("get", "items"): st.builds(
        _items, _nodes, st.lists(_ids, max_size=2, unique=True), st.none() | st.just(1)
    ),
    ("set", "subscribe"): _nodes.map(
        lambda node: _pubsub(f"<subscribe node='{node}' jid='{{jid}}'/>")
    ),
    ("set", "subscribe another"): _nodes.map(
        lambda node: _pubsub(f"<subscribe node='{node}' jid='somebody@example.com'/>")
    ),
    ("set", "unsubscribe"): _nodes.map(
        lambda node: _pubsub(f"<unsubscribe node='{node}' jid='{{jid}}'/>")
    ),
    ("get", "subscriptions"): _nodes.map(lambda node: _pubsub(f"<subscriptions node='{node}'/>")),
    ("get", "affiliations"): _nodes.map(lambda node: _pubsub(f"<affiliations node='{node}'/>")),
    ("get", "configuration"): _nodes.map(
        lambda node: _pubsub(f"<configure node='{node}'/>", OWNER)
    ),
    ("set", "configure"): st.builds(_configure, _nodes, _configs),
    ("get", "affiliations with"): _nodes.map(
        lambda node: _pubsub(f"<affiliations node='{node}'/>", OWNER)
    ),
    ("set", "affiliation"): st.builds(
        _affiliation, _nodes, st.sampled_from(["none", "member", "publisher", "outcast"])
    ),
    ("get", "subscriptions to"): _nodes.map(
        lambda node: _pubsub(f"<subscriptions node='{node}'/>", OWNER)
    ),
    ("set", "purge"): _nodes.map(lambda node: _pubsub(f"<purge node='{node}'/>", OWNER)),
    ("set", "delete"): _nodes.map(lambda node: _pubsub(f"<delete node='{node}'/>", OWNER)),
}
_OWNERS = frozenset(("create", "publish", "configure", "affiliation", "delete", "purge"))
"""Verbs that change something only for an owner: strangers ask for them less often."""


@st.composite
def _one(draw: st.DrawFn) -> Asked:
    type_, verb = draw(st.sampled_from(sorted(_PAYLOADS)))
    whom: tuple[Who, ...] = (
        ("owner", "owner", "stranger")
        if verb in _OWNERS
        else (
            "owner",
            "stranger",
        )
    )
    return Asked(draw(st.sampled_from(whom)), type_, verb, draw(_PAYLOADS[type_, verb]))


_created = _configs.map(lambda config: Asked("owner", "set", "create", _create("{node}a", config)))
requests = st.builds(
    lambda first, others: [*first, *others],
    st.lists(_created, max_size=1),
    st.lists(_one(), min_size=4, max_size=12),
)
"""Requests in their order; most lists begin with a node."""


def outcome(verb: str, reply: ET.Element, node: str, own: str) -> tuple[str, ...]:
    """What a reply says, without what services are free to choose: ids of subscriptions, order,
    and echoes of the request.
    """
    if reply.get("type") == "error":
        names = {child.tag for child in reply.iter() if child.tag.startswith("{")}
        conditions = [
            tag.partition("}")[2]
            for tag in sorted(names)
            if tag.startswith((f"{{{STANZAS}}}", f"{{{ERRORS}}}")) and not tag.endswith("}text")
        ]
        return ("error", *conditions)
    found: list[str] = []
    if verb == "unsubscribe":  # §6.2.2: a result MAY include the updated subscription
        return ("result",)
    for each in reply.iter():
        namespace, _, name = each.tag.partition("}")
        if namespace[1:] not in (PUBSUB, OWNER) or name not in _TOLD:
            continue
        attributes = [
            f"{key}={value.replace(node, '').replace(own, 'own')}"
            for key, value in sorted(each.attrib.items())
            if key in ("affiliation", "id", "subscription") or (key == "jid" and name != "item")
        ]
        content = "".join("".join(child.itertext()) for child in each) if name == "item" else ""
        found.append(" ".join((name, *attributes, content)).strip())
    return ("result", *sorted(found))


_TOLD = frozenset(("item", "subscription", "affiliation"))
