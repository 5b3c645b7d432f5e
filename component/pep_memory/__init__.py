"""Private memories on PubSub nodes that the person owns (specification, section Memory).

`store` is a `component.memory.store.MemoryStore` over the items of a node. The node is at the
agent's own PubSub service (`own_service`) or in the person's account (`account`).
"""
