"""Durable work: tasks, their questions and their records of repetition."""
