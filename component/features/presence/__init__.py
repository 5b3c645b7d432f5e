"""Presence: subscriptions of contacts, and the presence that the agents show to them."""
