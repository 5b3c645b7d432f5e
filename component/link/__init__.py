"""The stream to the XMPP server: the connection, the router of stanzas, and messages."""
