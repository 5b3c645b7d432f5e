"""Skills that people and models propose: checked, tested in the sandbox, and left to an admin."""
