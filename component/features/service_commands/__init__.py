"""Commands about the service itself: help, status, pause and others."""
