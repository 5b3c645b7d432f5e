"""Relative paths in a configuration are relative to the directory of its file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from component.app.features import load, settings_model
from component.config import SettingsError
from component.config.kinds import located
from component.features.apis.settings import OPENAPI
from component.features.mcp.settings import SERVERS

TOML = """
[server]
component_domain = "agent.example.com"
component_secret = "secret"
tls = true
tls_ca = "tls/ca.pem"
[agent]
avatar = "./faces/one.png"
[[agents]]
name = "clerk"
avatar = "two.png"
[storage]
{path}
[memory]
path = "../memory"
[skills]
modules = ["report.py", "./more/report.py", "installed.module"]
directories = ["skills", "/srv/skills"]
[skills.proposals]
directory = "proposals"
[openapi.pets]
document = "pets.json"
server = "https://pets.example.com"
[mcp.notes]
command = ["./bin/notes", "./data"]
readable = ["notes"]
[mcp.time]
command = ["mcp-server-time"]
[llm]
provider = "local"
model = "models/small.gguf"
[[llm.fallback]]
provider = "openai"
model = "vendor/model"
api_key = "k"
"""


@pytest.mark.parametrize("is_relative", [False, True])
def test_each_path_of_a_file_is_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "etc" / "agent.toml"
    file.write_text(TOML.format(path='path = "./data"'))
    monkeypatch.chdir(tmp_path / "elsewhere")
    settings = load(Path("../etc/agent.toml") if is_relative else file, {})

    def at(*parts: str) -> Path:
        return file.parent.joinpath(*parts)

    found = {
        settings.server.tls_ca: at("tls/ca.pem"),
        settings.agent.avatar: at("faces/one.png"),
        settings.agents[0].avatar: at("two.png"),
        settings.storage.path: at("data"),
        settings.memory.path: at("../memory"),
        settings.proposals_path: at("proposals"),
        settings[OPENAPI]["pets"].document: at("pets.json"),
    }
    for path, wanted in found.items():
        assert path is not None
        assert path.resolve() == wanted.resolve()
    assert [path.resolve() for path in settings.skills.directories] == [
        at("skills"),
        Path("/srv/skills"),
    ]
    first, second, installed = settings.skills.modules
    assert (Path(first).resolve(), Path(second).resolve()) == (
        at("report.py"),
        at("more/report.py"),
    )
    assert installed == "installed.module"
    program, argument = settings[SERVERS]["notes"].command
    assert (Path(program).resolve(), argument) == (at("bin/notes"), "./data")
    assert [each.resolve() for each in settings[SERVERS]["notes"].readable] == [at("notes")]
    assert settings[SERVERS]["time"].command == ("mcp-server-time",)
    assert settings.llm is not None
    assert Path(settings.llm.model).resolve() == at("models/small.gguf")
    assert settings.llm.fallback[0].model == "vendor/model"


def test_the_data_directory_is_beside_the_file_unless_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = tmp_path / "agent.toml"
    file.write_text('[server]\ncomponent_domain = "a.example.com"\ncomponent_secret = "s"\n')
    assert load(file, {}).storage.path == tmp_path / "data"
    assert load(file, {"XMPP_AGENT_STORAGE__PATH": "d"}).storage.path == tmp_path / "d"
    assert load(file, {"XMPP_AGENT_STORAGE__PATH": "/d"}).storage.path == Path("/d")


def test_a_home_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(TOML.format(path='path = "~/data"'))
    monkeypatch.setenv("HOME", "/home/juliet")
    assert load(file, {}).storage.path == Path("/home/juliet/data")
    file.write_text(TOML.format(path='path = "~nobody-of-this-name/data"'))
    with pytest.raises(SettingsError, match=r"storage\.path begins with ~, but there is no home"):
        load(file, {})


def test_every_setting_that_is_a_path_is_located() -> None:
    found = list(paths(settings_model(), set()))
    assert len(found) >= 9
    assert [name for name, is_located in found if not is_located] == []


def paths(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[tuple[str, bool]]:
    """Yield the settings that are paths, and whether they are located."""
    seen.add(model)
    for name, field in model.model_fields.items():
        kinds = list(parts((field.annotation, *field.metadata)))
        if Path in kinds:
            functions = [getattr(kind, "func", None) for kind in kinds]
            yield f"{model.__name__}.{name}", located in functions
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
                yield from paths(kind, seen)


def parts(annotation: Any) -> Iterator[Any]:
    """Yield a type, and all that it is made of."""
    inner = annotation if isinstance(annotation, tuple) else get_args(annotation)
    yield annotation
    for each in inner:
        yield from parts(each)
    if hasattr(annotation, "__metadata__"):
        yield from annotation.__metadata__
