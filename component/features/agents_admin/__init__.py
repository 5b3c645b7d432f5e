"""The commands of admins about agents: states, spending, and instructions to them."""

NEEDS_MODEL = True
