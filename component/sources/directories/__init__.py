"""Skills that are directories with a manifest: found, approved by an admin, run and reloaded.

`content` reads a directory, `approvals` stores what an admin has approved, `runners` runs it, and
`source` offers it. Only approved content runs: a copy of it, which belongs to the service.
"""
