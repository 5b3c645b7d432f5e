"""The files of people: those that they send to agents, and those that agents keep for them."""

TURNED_ON_BY = ("files", "llm")
"""The sections that turn it on; without one of them, its settings are not imported."""
