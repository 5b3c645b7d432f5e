"""Skills of other machines.

`serving.py` offers them and `calls.py` calls them, through the queue of `client.py`. The package
`program` is the process that runs them. Both use `queue.py` and `messages.py`.
"""

TURNED_ON_BY = ("workers", "worker")
"""The sections that turn it on; without one of them, its settings are not imported."""
