"""Fixtures of the tests of installed skills."""

from tests.component.sandbox.unreported import no_confinement_report

__all__ = ["no_confinement_report"]
