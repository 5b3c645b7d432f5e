"""Typed messages: each is parsed once, before any decision."""
