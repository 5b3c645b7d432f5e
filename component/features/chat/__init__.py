"""The messages of people: commands, and what they say to agents."""
