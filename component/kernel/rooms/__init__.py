"""The rooms that agents are in (XEP-0045): one membership for each agent and room."""
