"""The answers of people to questions, in words and by selected actions."""
