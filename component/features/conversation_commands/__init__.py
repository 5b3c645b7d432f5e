"""The commands of people about their conversation with an agent."""
