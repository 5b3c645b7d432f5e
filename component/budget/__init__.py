"""Budgets for language models, and their usage."""
