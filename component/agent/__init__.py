"""The agent loop: answers messages with the help of a model and its tools. It never sees XML."""
