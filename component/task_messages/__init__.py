"""Messages about tasks: events, questions in words, and how people answer in words."""
