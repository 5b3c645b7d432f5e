"""Personas: characters that people choose for an agent, and the texts that describe an agent."""
