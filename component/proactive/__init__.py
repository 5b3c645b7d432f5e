"""Starts work without a request: by the clock, by events, and by requests from outside."""
