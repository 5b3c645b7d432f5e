"""Notifications: messages to people about work that agents started by themselves."""
