"""Plans: a goal as steps that run durably, in order and side by side."""
