"""Counters and traces."""
