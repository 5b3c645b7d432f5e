"""The commands of people about their conversation with an agent."""

NEEDS_MODEL = True
