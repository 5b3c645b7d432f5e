"""Watches: events on XMPP that start work."""
