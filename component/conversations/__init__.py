"""Conversations of agents with people and rooms, in files: history, archives, learned facts."""
