"""The feature checks what it needs, and takes over settings while the service runs."""

from pathlib import Path

import anyio
import pytest

from component.app.features import make_features, make_settings
from component.features.files import feature
from component.kernel.check import Check
from tests.component.features.files.sending import JULIET, send
from tests.kit import Script, anyio_backend, service

__all__ = ["anyio_backend"]

SMALLEST = {
    "server": {"component_domain": "agent.example.com", "component_secret": "secret"},
}
URL = "aesgcm://u.example/a.jpg#" + "ab" * 44


def test_doctor_says_what_is_missing_to_read_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    async def checks() -> list[Check]:
        return [one async for one in features["files"].availability()]

    features = make_features(make_settings(**SMALLEST, files={}))
    assert anyio.run(checks) == []
    monkeypatch.setattr(feature, "find_spec", lambda name: None if name == "pypdf" else name)
    (found,) = anyio.run(checks)
    assert (found.name, found.verdict) == ("files", "warning")
    assert found.text.startswith("pypdf must be installed to read the PDF and HTML files")


def test_there_is_no_feature_without_a_model_and_without_its_section() -> None:
    assert "files" not in make_features(make_settings(**SMALLEST))


@pytest.mark.anyio
async def test_the_settings_are_taken_over_by_a_reload(tmp_path: Path) -> None:
    quiet = {"agent": {"notice": ""}}
    async with service(tmp_path, quiet, model=Script()) as kit:
        juliet = kit.peer(JULIET)
        await send(juliet, [URL])
        assert "is encrypted for OMEMO" in await juliet.hear()
        assert "file_write" not in await juliet.ask("/skills")
        await kit.reload({**quiet, "files": {"receive": False}})
        await send(juliet, [URL])
        assert "my operator has turned off that I take files" in await juliet.hear()
        assert "(file_write)" in await juliet.ask("/skills file_write")
