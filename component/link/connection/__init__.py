"""The stream over anyio: connect, handshake, keepalive, reconnect, drain (XEP-0114, RFC 6120)."""
