"""The settings with the sections of all features."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from component.app.features import settings_model
from component.settings import describe
from component.settings import load as load_file
from component.settings.model import Settings


def load(path: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a file; see `component.settings.load`. Raises SettingsError."""
    return load_file(path, settings_model(), environ)


def make_settings(**sections: Any) -> Settings:
    """Return settings of given sections. Raises pydantic.ValidationError."""
    return settings_model()(**sections)


def tables() -> Iterator[describe.Table]:
    """Yield every section in the order of the file; keys above all sections come first."""
    return describe.tables(settings_model())
