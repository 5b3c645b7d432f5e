"""A loopback-only XMPP server for the demo and the fast tests."""
