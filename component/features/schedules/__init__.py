"""Schedules: work that starts at certain times."""
