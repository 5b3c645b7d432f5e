"""Skills that are HTTP requests which an admin has written into the settings."""
