"""Reads the settings that environment variables override."""

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from component.settings.model import ENV_DELIMITER, ENV_PREFIX, Settings


class _Environment(EnvSettingsSource):
    """Overrides from a mapping; what is no JSON stays text, for the error sentences to name."""

    def __init__(self, environ: Mapping[str, str], model: type[Settings]) -> None:
        super().__init__(
            model,  # type: ignore[arg-type]  # only its fields are read
            env_prefix=ENV_PREFIX,
            env_nested_delimiter=ENV_DELIMITER,
        )
        self.env_vars = {name.lower(): value for name, value in environ.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def overrides(environ: Mapping[str, str], model: type[Settings]) -> dict[str, Any]:
    """The settings of `environ`, nested as those of a file. Their values are not validated."""
    return _Environment(environ, model)()
