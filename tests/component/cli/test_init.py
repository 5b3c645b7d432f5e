import re
import stat
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from component.app.features import load, settings_model, tables
from component.cli import init as init_module
from component.cli.frame import ExitCode
from component.cli.group import group
from component.cli.init import DEFAULT_PORTS, ComponentConnection, server_block
from component.cli.reference import agent_toml, page
from component.config import Settings
from component.config.llm import Tier
from tests.profiles import examples
from tests.servers import guides

DOMAIN = ("--domain", "agent.example.com")


@pytest.fixture(autouse=True)
def _no_secret_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_SECRET", raising=False)


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...]]:
    """Where the servers would be if they were installed: no machine of the tests counts."""
    instead = {name: (f"{tmp_path}-none", f"{tmp_path}-{name}") for name in DEFAULT_PORTS}
    monkeypatch.setattr(init_module, "_PLACES", instead)
    return instead


def run(*arguments: str | Path, **options: str) -> Result:
    """Run `init`; a directory stands for agent.toml in it."""
    words = [
        word
        for one in arguments
        for word in (("-o", str(one / "agent.toml")) if isinstance(one, Path) else (one,))
    ]
    result = CliRunner().invoke(group, ["init", *words], **options)  # type: ignore[arg-type]
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def secret_of(settings: Settings) -> str:
    return settings.server.component_secret.get_secret_value()


def test_what_init_writes_loads_as_it_stands(tmp_path: Path) -> None:
    result = run(tmp_path / "new", *DOMAIN, "--host", "xmpp.example.com", "--port", "5300")
    assert result.exit_code == ExitCode.OK, result.stderr
    told = re.findall(r"xmpp-agent (\w+) --config (\S+)", result.stderr)
    assert told == [(word, str(tmp_path / "new/agent.toml")) for word in ("doctor", "run")]
    settings = load(tmp_path / "new" / "agent.toml", {})
    assert settings.server.host == "xmpp.example.com"
    assert settings.server.port == 5300
    assert settings.server.component_domain == "agent.example.com"
    assert settings.allowed_domains == ("example.com",)
    written = (tmp_path / "new" / "agent.toml").read_text()
    assert '\nallowed_domains = ["example.com"]\n' in written
    assert '\ncomponent_secret = "${AGENT_SECRET}"\n' in written


def test_the_file_is_short_and_every_example_in_it_is_valid(tmp_path: Path) -> None:
    """Each key has a comment; a line without its mark, and all of them, make valid settings."""
    assert run(tmp_path, *DOMAIN).exit_code == ExitCode.OK
    path = tmp_path / "agent.toml"
    lines = path.read_text().splitlines()
    assert len(lines) <= 40
    for before, line in pairwise(lines):
        is_key = re.match(r"(# )?[a-z_]+ = ", line)
        assert not is_key or before.startswith(("#", "port = ", "host = ", "[")), line
    uncommented = [re.sub(r"^# (?=\[|[a-z_]+ = )", "", line) for line in lines]
    assert uncommented != lines
    path.write_text("\n".join(uncommented))
    settings = load(path, {})
    assert settings.llm is not None
    assert settings.agent.admins == settings.agent.allowed_jids


def test_next_steps_are_short_in_the_directory_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XMPP_AGENT_CONFIG", raising=False)
    result = run(*DOMAIN, "--server", "prosody")
    assert "xmpp-agent run\n" in result.stderr
    assert len(result.stderr.splitlines()) <= 10


def test_all_settings_are_written_on_request(tmp_path: Path) -> None:
    assert run(tmp_path, *DOMAIN, "--full").exit_code == ExitCode.OK
    text = (tmp_path / "agent.toml").read_text()
    settings = load(tmp_path / "agent.toml", {})
    assert settings.server.component_domain == "agent.example.com"
    assert settings.allowed_domains == ("example.com",)
    assert all(f"{key.name} = " in text for table in tables() for key in table.keys)


def test_the_environment_names_the_file_and_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the Debian package does."""
    monkeypatch.setenv("XMPP_AGENT_CONFIG", str(tmp_path / "etc" / "agent.toml"))
    monkeypatch.setenv("XMPP_AGENT_STORAGE__PATH", "/var/lib/xmpp-agent")
    result = run(*DOMAIN)
    assert result.exit_code == ExitCode.OK
    assert "xmpp-agent doctor\n" in result.stderr
    written = load(tmp_path / "etc" / "agent.toml", {})
    assert written.storage.path == Path("/var/lib/xmpp-agent")
    # A directory on the command line comes first.
    assert run(tmp_path / "other", *DOMAIN).exit_code == ExitCode.OK
    assert (tmp_path / "other" / "agent.toml").exists()


labels = st.from_regex(r"[a-zäöü0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@examples(5)
@given(st.lists(labels, min_size=2, max_size=4), labels, st.integers(1, 65535))
def test_any_domain_host_and_port_come_back(
    tmp_path_factory: pytest.TempPathFactory, domain: list[str], host: str, port: int
) -> None:
    path = tmp_path_factory.mktemp("init") / "agent.toml"
    name = ".".join(domain)
    result = run("--output", str(path), "--domain", name, "--host", host, "--port", str(port))
    assert result.exit_code == ExitCode.OK, result.stderr
    settings = load(path, {})
    assert settings.server.component_domain == name
    assert (settings.server.host, settings.server.port) == (host, port)
    assert settings.allowed_domains == (".".join(domain[1:]),)
    assert secret_of(settings) in result.stdout


def test_the_secret_is_in_a_private_file_and_in_the_blocks_only(tmp_path: Path) -> None:
    result = run(tmp_path, *DOMAIN)
    secret = secret_of(load(tmp_path / "agent.toml", {}))
    assert re.fullmatch(r"[A-Za-z0-9_-]{40,}", secret)
    assert stat.S_IMODE((tmp_path / "agent.env").stat().st_mode) == 0o600
    assert secret not in (tmp_path / "agent.toml").read_text()
    assert secret not in result.stderr
    assert result.stdout.count(secret) == len(DEFAULT_PORTS)


def test_two_runs_make_two_secrets(tmp_path: Path) -> None:
    run(tmp_path / "a", *DOMAIN)
    run(tmp_path / "b", *DOMAIN)
    assert secret_of(load(tmp_path / "a/agent.toml", {})) != secret_of(
        load(tmp_path / "b/agent.toml", {})
    )


def test_nothing_is_overwritten_without_force_and_the_secret_never(tmp_path: Path) -> None:
    run(tmp_path, *DOMAIN)
    before = secret_of(load(tmp_path / "agent.toml", {}))
    refused = run(tmp_path, "--domain", "other.example.com")
    assert refused.exit_code == ExitCode.FAILURE
    assert "--force" in refused.stderr
    assert load(tmp_path / "agent.toml", {}).server.component_domain == "agent.example.com"

    forced = run(tmp_path, "--domain", "other.example.com", "--force")
    settings = load(tmp_path / "agent.toml", {})
    assert settings.server.component_domain == "other.example.com"
    assert secret_of(settings) == before
    assert before in forced.stdout
    assert "agent.env" in forced.stderr


def test_a_secret_in_the_environment_is_the_one_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SECRET", 'from "outside"')
    result = run(tmp_path, *DOMAIN, "--server", "prosody")
    assert r'component_secret = "from \"outside\""' in result.stdout
    assert not (tmp_path / "agent.env").exists()
    monkeypatch.setenv("AGENT_SECRET", "two\nlines")
    assert run(tmp_path / "b", *DOMAIN).exit_code == ExitCode.FAILURE


def test_other_variables_in_the_env_file_stay(tmp_path: Path) -> None:
    (tmp_path / "agent.env").write_text("OTHER=1")
    run(tmp_path, *DOMAIN)
    assert (tmp_path / "agent.env").read_text().startswith("OTHER=1\nAGENT_SECRET=")
    assert stat.S_IMODE((tmp_path / "agent.env").stat().st_mode) == 0o600
    assert secret_of(load(tmp_path / "agent.toml", {}))


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((), ExitCode.USAGE, "--domain is missing"),
        (("--domain", "agent"), ExitCode.FAILURE, "has only one label"),
        (("--domain", "me@agent.x"), ExitCode.FAILURE, "component_domain must be a domain"),
        ((*DOMAIN, "-o", "x.env"), ExitCode.FAILURE, "must not end in .env"),
        ((*DOMAIN, "--server", "irc"), ExitCode.USAGE, "'irc' is not one of"),
        ((*DOMAIN, "-o", "file/agent.toml"), ExitCode.FAILURE, "file cannot be written"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    arguments: tuple[str, ...],
    code: ExitCode,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = run(*arguments)
    assert result.exit_code == code
    assert sentence in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_on_a_terminal_it_asks_for_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init_module, "interactive", lambda: True)
    result = run(tmp_path, input="agent.example.com\nejabberd\n\n\n")
    assert result.exit_code == ExitCode.OK, result.stderr
    settings = load(tmp_path / "agent.toml", {})
    assert (settings.server.host, settings.server.port) == ("localhost", 5275)
    assert result.stdout.startswith("# ejabberd")
    # stdout can go straight into the server's configuration.
    assert "Prosody" not in result.stdout


@pytest.mark.parametrize("server", DEFAULT_PORTS)
def test_each_server_has_its_block_and_its_port(tmp_path: Path, server: str) -> None:
    result = run(tmp_path, *DOMAIN, "--server", server)
    settings = load(tmp_path / "agent.toml", {})
    assert settings.server.port == DEFAULT_PORTS[server]
    connection = ComponentConnection(
        "agent.example.com", secret_of(settings), "localhost", settings.server.port
    )
    assert result.stdout == server_block(server, connection)


@pytest.mark.parametrize("server", DEFAULT_PORTS)
def test_the_server_that_is_installed_here_is_taken(
    server: str, tmp_path: Path, places: dict[str, tuple[str, ...]]
) -> None:
    Path(places[server][1]).mkdir()
    result = run(tmp_path / "a", *DOMAIN)
    assert (
        f"This is for {server}, which is installed here; --server names another one."
        in result.stderr
    )
    assert load(tmp_path / "a/agent.toml", {}).server.port == DEFAULT_PORTS[server]
    assert result.stdout == run(tmp_path / "a", *DOMAIN, "--server", server, "--force").stdout
    # Another one that is named, or a server on another machine, has nothing to do with it.
    (other,) = {"prosody", "ejabberd"} - {server} if server != "openfire" else {"prosody"}
    assert "installed here" not in run(tmp_path / "b", *DOMAIN, "--server", other).stderr
    assert load(tmp_path / "b/agent.toml", {}).server.port == DEFAULT_PORTS[other]
    assert "installed here" not in run(tmp_path / "c", *DOMAIN, "--host", "xmpp.example.com").stderr


@pytest.mark.parametrize("installed", [(), ("prosody", "ejabberd")])
def test_without_a_single_server_all_are_shown_with_the_port_of_the_file(
    installed: tuple[str, ...], tmp_path: Path, places: dict[str, tuple[str, ...]]
) -> None:
    for each in installed:
        Path(places[each][1]).mkdir()
    result = run(tmp_path / "a", *DOMAIN)
    text = (tmp_path / "a" / "agent.toml").read_text()
    assert "\nport = 5347\n" in text
    assert "Prosody's default is 5347, Openfire's 5275." in text
    assert re.findall(r"5347|5275", result.stdout) == ["5347"] * len(DEFAULT_PORTS)


def test_on_a_terminal_the_installed_server_is_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: dict[str, tuple[str, ...]]
) -> None:
    Path(places["ejabberd"][1]).mkdir()
    monkeypatch.setattr(init_module, "interactive", lambda: True)
    result = run(tmp_path, input="agent.example.com\n\n\n\n")
    assert result.exit_code == ExitCode.OK, result.stderr
    assert load(tmp_path / "agent.toml", {}).server.port == DEFAULT_PORTS["ejabberd"]
    assert result.stdout.startswith("# ejabberd")


@pytest.mark.parametrize("server", guides.PORTS)
def test_the_server_s_guide_and_the_command_have_the_same_setup(server: str) -> None:
    guide = guides.block(guides.DOCS / "how-to" / f"{server}.md", "component")
    port = DEFAULT_PORTS[server]
    near = ComponentConnection("agent.example.com", "change-me", "localhost", port)
    block = server_block(server, near).splitlines(keepends=True)
    comment = "--" if server == "prosody" else "#"
    assert "".join(line for line in block if not line.startswith(comment)) == guide
    written = guides.block(guides.DOCS / "how-to" / f"{server}.md", "agent.toml")
    assert tomllib.loads(written)["server"]["port"] == port


def test_the_file_of_prosody_is_named_in_guide_and_command() -> None:
    near = ComponentConnection("agent.example.com", "s", "localhost", 5347)
    path = "/etc/prosody/conf.d/agent.example.com.cfg.lua"
    assert path in server_block("prosody", near)
    assert path in (guides.DOCS / "how-to" / "prosody.md").read_text()


def test_a_server_on_another_machine_listens_for_it() -> None:
    far = ComponentConnection("agent.example.com", "s", "xmpp.example.com", 5300)
    prosody = server_block("prosody", far)
    assert "component_ports = { 5300 }" in prosody
    assert 'component_interfaces = { "*" }' in prosody
    assert "port: 5300" in server_block("ejabberd", far)
    assert 'ip: "::"' in server_block("ejabberd", far)


def test_every_default_in_the_commented_file_is_the_default() -> None:
    """Uncommenting everything that has a default changes nothing."""
    text = agent_toml({})
    lines = []
    there = True  # whether the section is: lists of them, and what may be missing, are not
    for line in text.splitlines():
        uncommented = line.removeprefix("# ")
        is_key = re.match(r"# [a-z_]+ = ", line)
        if uncommented.startswith("["):
            there = line.startswith("[")
        if line.startswith("[") or (there and is_key and "this is an example" not in line):
            lines.append(uncommented)
    given = tomllib.loads("\n".join(lines))
    given["server"] |= {"component_domain": "agent.localhost", "component_secret": "s"}
    server = {"component_domain": "agent.localhost", "component_secret": "s"}
    model = settings_model()
    assert model.model_validate(given) == model.model_validate({"server": server})


def test_every_section_can_be_had_by_taking_its_mark_away() -> None:
    headers = re.findall(r"^(?:# )?(\[.*\])$", agent_toml({}), re.MULTILINE)
    written = tomllib.loads("\n".join(headers))
    assert set(written["llm"]["tiers"]) <= set(get_args(Tier))
    assert "budget" in written["agents"][0]


def test_the_file_and_the_page_name_every_key() -> None:
    text, reference = agent_toml({}), page()
    for table in tables():
        assert table.header.partition("…")[0] in text or not table.name
        for key in table.keys:
            assert re.search(rf"^(# )?{key.name} = ", text, re.MULTILINE)
            assert f"| `{key.name}` |" in reference


def test_the_committed_page_is_the_generated_one() -> None:
    committed = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"
    assert committed.read_text(encoding="utf-8") == page(), (
        "run `python -m component.cli.reference > docs/reference/configuration.md`"
    )
