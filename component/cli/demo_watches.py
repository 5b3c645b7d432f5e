"""The scene of `xmpp-agent demo` about watches: an item is published, and the agent acts on it."""

from component.cli.demo_screen import came, sent, step
from demo_server.visitor import Visitor
from xep.atom import Entry
from xep.binding import encode, keep
from xep.data_forms import Form, field, form_type_field
from xep.pubsub import NODE_CONFIG, Configure, Create, Item, Publish, Pubsub
from xep.stanza import Incoming

NODE = "news"
"""The node that the demo's agent watches."""


async def a_watch(juliet: Visitor, nurse: Visitor, service: str) -> None:
    """Show a node of the agent's own PubSub service, an item, and the reaction of the watch."""
    step("Nurse", "creates a PubSub node, as an admin may; the agent watches it for Juliet")
    fields = (form_type_field(NODE_CONFIG), field("pubsub#access_model", "open"))
    form = Form(type="submit", fields=fields)
    create = Pubsub(create=Create(node=NODE), configure=Configure(form=form))
    await _set(nurse, service, create)
    step("Juliet", "asks what is watched")
    sent(await juliet.say(service, "/watch"))
    came(await juliet.hear(_is_chat))
    step("Nurse", "publishes an item, which starts work; the agent tells Juliet the result")
    item = Item(id="1", payloads=(keep(Entry(title="the tide")),))
    await _set(nurse, service, Pubsub(publish=Publish(node=NODE, items=(item,))))
    came(await juliet.hear(_is_chat))


async def _set(who: Visitor, to: str, payload: Pubsub) -> None:
    xml, answer = await who.iq("set", to, encode(payload))
    sent(xml)
    came(answer)


def _is_chat(stanza: Incoming) -> bool:
    return stanza.kind == "message" and stanza.type == "chat"
