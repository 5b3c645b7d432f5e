"""Fixtures of the tests of proposals."""

from tests.component.sandbox.unreported import no_confinement_report

__all__ = ["no_confinement_report"]
