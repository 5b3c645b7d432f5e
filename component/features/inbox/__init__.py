"""The inbox: what waits for a person with an agent, as a view of what is stored elsewhere."""
