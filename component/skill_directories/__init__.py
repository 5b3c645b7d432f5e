"""Skills that are directories with a manifest: read, approved and run.

`content` reads a directory, `approvals` stores what an admin has approved, and `runners` runs it.
Only approved content runs: a copy of it, which belongs to the service.
"""
