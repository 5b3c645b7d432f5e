"""XEP-0114 over anyio: connect, handshake, keepalive, reconnect, drain."""
