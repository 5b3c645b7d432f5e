"""Skills of other machines.

`source.py` offers them and `calls.py` calls them, through the queue of `client.py`. The process
that runs them is in `component.worker`; `queue.py` and `messages.py` are what both have in common.
"""
