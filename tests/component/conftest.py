"""A text is read as agent.toml, or refused with sentences."""

from pathlib import Path
from typing import Any

import pytest

from component.app.features import load
from component.config import Settings, SettingsError
from tests.component.smallest_settings import ENVIRON


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Load a text as agent.toml."""

    def read(text: str, **environ: str) -> Settings:
        path = tmp_path / "agent.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, ENVIRON | environ)

    return read


@pytest.fixture
def problems(read: Any, tmp_path: Path) -> Any:
    """Return the sentences that a text is refused with, without the directory."""

    def problems(text: str, **environ: str) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            read(text, **environ)
        assert caught.value.__context__ is None
        assert [str(p) for p in caught.value.problems] == str(caught.value).split("\n")
        return [str(p).replace(f"{tmp_path}/", "") for p in caught.value.problems]

    return problems
