"""What `xmpp-agent run` loads: start and memory suffer from each module that nothing uses."""

import subprocess
import sys
from pathlib import Path

import pytest

from component.imports import without

PROGRAM = """
import sys
from pathlib import Path
import anyio
from component import logs
from component.app.features import load
from component.app.process import make_service

async def main():
    async with anyio.create_task_group() as group:
        await group.start(service.run)
        print(*sys.modules)
        service.stop()

settings = load(Path(sys.argv[1]))
logs.configure(settings.log.level, settings.log.format)
service = make_service(settings)
anyio.run(main, backend=settings.backend)
"""

LIBRARIES = {
    "argparse",
    "asyncio",
    "click",
    "cronsim",
    "cryptography",
    "difflib",
    "dotenv",
    "email",
    "greenlet",
    "html",
    "http",
    "httpx2",
    "hypercorn",
    "jmespath",
    "joserfc",
    "jsonschema_rs",
    "markdown_it",
    "openai",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "pydantic_settings",
    "pygments",
    "rfc8785",
    "rich",
    "scramp",
    "wordllama",
    "xllamacpp",
}
"""Packages that only some settings or requests need."""

OWN = {
    "component.agent.conversations",
    "component.agent.engine",
    "component.features.agents_admin.commands",
    "component.link.connection.client",
    "component.metrics.otel",
    "component.models.building",
    "component.kernel.agents",
    "component.features.apis.feature",
    "component.features.installed_skills.feature",
    "component.features.mcp.feature",
    "component.features.proposals.feature",
    "component.features.metrics.feature",
    "component.features.http_listener.feature",
    "component.features.shared_files.feature",
    "component.features.webhooks.feature",
    "component.features.workers.feature",
    "component.skills.conformance_fixtures",
    "component.store.postgres",
    "component.features.webhooks.app",
    "conformance",
    "demo_server",
    "xep.client_stream",
}


def loaded(directory: Path, more: str = "") -> set[str]:
    """The modules of a service that has started all of its loops."""
    file = directory / "agent.toml"
    file.write_text(
        '[server]\nhost = "127.0.0.1"\nport = 9\ncomponent_domain = "agent.example.com"\n'
        'component_secret = "s"\n'
        f'[storage]\npath = "{directory / "data"}"\n[log]\nlevel = "error"\n{more}'
    )
    environment = {"PATH": "/usr/bin:/bin", "XMPP_AGENT_CONFIG": str(file)}
    program = [sys.executable, "-c", PROGRAM, str(file)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    return set(done.stdout.split())


def test_default_settings_load_only_what_they_need(tmp_path: Path) -> None:
    modules = loaded(tmp_path)
    assert "component.app.subsystems" in modules
    assert not OWN & modules
    assert not LIBRARIES & {name.partition(".")[0] for name in modules}


def test_every_name_here_is_one_of_a_module() -> None:
    """A module that was renamed would never be found among those that are loaded."""
    for name in OWN:
        path = Path(__file__).parents[3].joinpath(*name.split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), name


@pytest.mark.thorough
def test_fixtures_are_loaded_where_they_are_enabled(tmp_path: Path) -> None:
    modules = loaded(tmp_path, "[conformance]\nenabled = true\n")
    assert "component.skills.conformance_fixtures" in modules


def test_a_package_is_hidden_only_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("hidden_probe.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError), without("hidden_probe"):
        __import__("hidden_probe")
    found = __import__("hidden_probe")
    with without("hidden_probe"):  # it is imported already, and stays
        assert __import__("hidden_probe") is found
    monkeypatch.delitem(sys.modules, "hidden_probe")
