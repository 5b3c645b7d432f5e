"""Fixtures of the tests of MCP servers."""

from tests.component.sandbox.unreported import no_confinement_report

__all__ = ["no_confinement_report"]
