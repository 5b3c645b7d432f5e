"""What may be spent on models, and what was."""
