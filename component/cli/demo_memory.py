"""The scene of `xmpp-agent demo` about memories: their owner edits one and deletes it."""

from typing import Final

from component.cli.demo_scenes import execute, iq, say
from component.cli.demo_screen import step
from demo_server.visitor import Visitor
from xep.binding import keep
from xep.fluux_agent.memory import NAMESPACE, Content, Memory
from xep.pubsub import Item, Items, Publish, Pubsub, Retract

_KEY: Final = "favourite_tea"


async def a_memory(juliet: Visitor, agent: str, address: str) -> None:
    """Show that a memory is an item of a node that the person owns; `address` is that of the
    person.
    """
    node = f"{NAMESPACE}/{address}"
    step("Juliet", "has the agent remember something")
    text = "Juliet likes green tea."
    await iq(juliet, "set", agent, execute("memory_store", key=_KEY, body=text))
    step("Juliet", "finds it on a PubSub node that she owns, with any client for XEP-0060")
    await iq(juliet, "get", agent, Pubsub(items=Items(node=node)))
    step("Juliet", "corrects it")
    memory = Memory(key=_KEY, version=2, contents=(Content(text="Juliet likes coffee."),))
    item = Item(id=_KEY, payloads=(keep(memory),))
    await iq(juliet, "set", agent, Pubsub(publish=Publish(node=node, items=(item,))))
    step("Juliet", "asks in the chat: the agent uses her text at once")
    await say(juliet, agent, "/memory")
    step("Juliet", "deletes it")
    gone = Retract(node=node, items=(Item(id=_KEY),))
    await iq(juliet, "set", agent, Pubsub(retract=gone))
    step("Juliet", "asks again: the agent knows nothing of it any more")
    await say(juliet, agent, "/memory")
