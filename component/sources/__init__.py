"""Sources of skills: each adds, changes and removes skills while the service runs.

A source is a `component.skills.sources.SkillSource`. The callers of a skill do not know which
source it comes from.
"""
