"""The typed XMPP protocol, sans-IO: no sockets, no clocks, no settings."""
