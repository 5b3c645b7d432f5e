"""Skills that admins approve: those of directories, and those that somebody else describes.

`directories` offers approved skills of directories. A model reads descriptions with every prompt,
so their authors can try to instruct it: `descriptions` offers the skills of MCP servers, APIs and
workers with the descriptions that are approved.
"""
