"""Starts and stops the service: the list of features, their loader, and the lifecycle."""
