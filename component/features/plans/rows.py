"""The tables of plans, which `component.plans` reads and writes."""

from component.plans.rows import TABLES

__all__ = ["TABLES"]
