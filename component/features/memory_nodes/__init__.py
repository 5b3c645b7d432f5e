"""Private memories on PubSub nodes that the person owns (specification, section Memory).

`store.py` is a `component.memory.store.MemoryStore` over the items of a node. The node is at the
agent's own PubSub service (`agent_nodes.py`) or in the person's account (`account_nodes.py`).
"""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether memories are kept on nodes."""
    return settings.memory.store != "files"
