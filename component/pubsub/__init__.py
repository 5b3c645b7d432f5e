"""The PubSub service of our addresses (XEP-0060, XEP-0163): nodes, items, subscriptions.

`service.py` is what other packages use. Each verb is one transaction: what it answers is on disk.
"""
