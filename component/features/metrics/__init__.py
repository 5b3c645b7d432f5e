"""Metrics for Prometheus and health checks, served over HTTP."""

TURNED_ON_BY = ("metrics",)
"""The sections that turn it on; without one of them, its settings are not imported."""
