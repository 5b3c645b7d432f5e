"""Commands about tasks: one's own, and for admins everybody's."""
