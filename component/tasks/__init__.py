"""Durable tasks, the questions that they ask, and the replay records of requests."""
