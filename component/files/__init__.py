"""Files of results, and where they are."""
