"""The kit that judges any agent over real XMPP. Imports xep, never component."""
