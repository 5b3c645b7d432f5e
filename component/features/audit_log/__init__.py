"""The audit log, as admins read it."""
