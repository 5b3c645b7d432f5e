"""An XMPP stream as bytes in, complete stanzas out (RFC 6120 §4, §11)."""
