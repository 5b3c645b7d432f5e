"""The command by which people choose and define the persona of an agent."""

NEEDS_MODEL = True
