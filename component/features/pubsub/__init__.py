"""PubSub (XEP-0060) at our addresses, each a PEP service (XEP-0163)."""
