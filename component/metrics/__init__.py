"""Figures for Prometheus, whether the service is well, and traces."""
