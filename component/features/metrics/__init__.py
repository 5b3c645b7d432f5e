"""Metrics for Prometheus and health checks, served over HTTP."""
