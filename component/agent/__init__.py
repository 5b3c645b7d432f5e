"""The agent loop: from a message to its answer, by way of a model and its tools. No XML here."""
