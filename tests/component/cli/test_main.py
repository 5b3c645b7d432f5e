import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from component.cli.frame import (
    ConfigFault,
    ExitCode,
    Fault,
    Lazy,
    LazyGroup,
    config_option,
    load_settings,
)
from component.cli.group import COMMANDS, group


def test_help_shows_examples_and_every_exit_code() -> None:
    result = CliRunner().invoke(group, ["--help"])
    assert result.exit_code == ExitCode.OK
    assert "xmpp-agent init --domain agent.example.com" in result.output
    for code in ExitCode:
        assert re.search(
            rf"^ +{code.value} +{re.escape(code.meaning)}$", result.output, re.MULTILINE
        )


def test_version_names_the_program() -> None:
    result = CliRunner().invoke(group, ["--version"])
    assert re.fullmatch(r"xmpp-agent, version \d+\.\d+\.\d+\S*\n", result.output)


def test_an_error_has_its_priority_in_the_journal_of_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        found = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        monkeypatch.setattr(sys, "stderr", stream)
        Fault("One thing is wrong.", "Another one, too.").show()
        stream.seek(0)
        assert stream.read() == "<3>error: One thing is wrong.\n<3>error: Another one, too.\n"


def test_a_wrong_command_line_is_a_usage_error() -> None:
    for arguments in (["nosuch"], ["--nosuch"], ["init", "--port", "0"]):
        assert CliRunner().invoke(group, arguments).exit_code == ExitCode.USAGE


def test_commands_that_exist_are_listed_in_order_and_are_what_they_say() -> None:
    listed = group.list_commands(click.Context(group))
    assert listed == [name for name, entry in COMMANDS.items() if entry.exists]
    assert "init" in listed
    for name in listed:
        assert COMMANDS[name].command().name == name


def test_a_command_without_a_module_is_not_listed() -> None:
    lazy = LazyGroup("x", lazy={"no": Lazy("component.cli.nosuchmodule:no", "Not there.")})
    result = CliRunner().invoke(lazy, ["--help"])
    assert "Not there" not in result.output
    assert CliRunner().invoke(lazy, ["no"]).exit_code == ExitCode.USAGE


def test_listing_imports_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_probe_a.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "lazy_probe_b.py").write_text(
        "import click\n@click.command()\ndef b():\n    click.echo('ran b')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    lazy = LazyGroup(
        "x", lazy={"a": Lazy("lazy_probe_a:a", "About a."), "b": Lazy("lazy_probe_b:b", "About b.")}
    )
    assert "About a." in CliRunner().invoke(lazy, ["--help"]).output
    assert CliRunner().invoke(lazy, ["b"]).output == "ran b\n"


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys\nfrom component.cli.group import group\n"
        "try:\n    group(['--help'])\nexcept SystemExit: pass\n"
        "print(*{m.partition('.')[0] for m in sys.modules}, file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stderr.split()
    assert not {"pydantic", "rich", "trio", "anyio", "structlog", "msgspec"} & set(loaded)


@click.command()
@config_option
def show(config: Path) -> None:
    click.echo(load_settings(config).server.component_domain)


def test_config_is_the_option_then_the_variable_then_agent_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("agent", "option", "variable"):
        Path(f"{name}.toml").write_text(
            f'[server]\ncomponent_domain = "{name}.x"\ncomponent_secret = "s"\n'
        )
    variable = {"XMPP_AGENT_CONFIG": "variable.toml"}
    runner = CliRunner()
    assert runner.invoke(show, []).output == "agent.x\n"
    assert runner.invoke(show, [], env=variable).output == "variable.x\n"
    assert runner.invoke(show, ["-c", "option.toml"], env=variable).output == "option.x\n"


def test_a_wrong_configuration_ends_with_its_sentences_on_stderr_and_78(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.toml").write_text('[server]\nprot = 1\ncomponent_domain = "agent.x"\n')
    result = CliRunner().invoke(show, [])
    assert result.exit_code == ExitCode.CONFIG
    assert result.stdout == ""
    missing, unknown = result.stderr.splitlines()
    assert missing.startswith("error: agent.toml, line 1: server.component_secret is missing: add")
    assert unknown == (
        "error: agent.toml, line 2: server.prot is not a setting; did you mean server.port?"
    )


@pytest.mark.parametrize(("fault", "code"), [(Fault, 1), (ConfigFault, 78)])
def test_errors_are_red_on_a_terminal_and_plain_under_no_color(
    fault: type[Fault], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def fail() -> None:
        raise fault("it broke", "mend it")

    lazy = LazyGroup("x", lazy={})
    lazy.get_command = lambda *_: fail  # type: ignore[method-assign]
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = "error: it broke\nerror: mend it\n"
    assert CliRunner().invoke(lazy, ["fail"]).stderr == plain
    coloured = CliRunner().invoke(lazy, ["fail"], color=True)
    assert coloured.stderr != plain
    assert click.unstyle(coloured.stderr) == plain
    assert coloured.exit_code == code
    monkeypatch.setenv("NO_COLOR", "1")
    assert CliRunner().invoke(lazy, ["fail"], color=True).stderr == plain


@pytest.mark.parametrize(
    ("words", "variable", "expected"),
    [
        (["run"], "", "agent.toml False"),
        (["run"], "other.toml", "other.toml False"),
        (["run", "--config", "a.toml"], "other.toml", "a.toml False"),
        (["run", "-c", "a.toml"], "", "a.toml False"),
        (["run", "--config=a.toml"], "", "a.toml True"),
        (["run", "-ca.toml"], "", "a.toml True"),
    ],
)
def test_run_means_the_same_with_and_without_click(
    words: list[str], variable: str, expected: str
) -> None:
    code = (
        "import sys\n"
        "import component.app.process as process\n"
        "process.run_service = lambda config: not print(config, 'click' in sys.modules)\n"
        "from component.cli.main import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "XMPP_AGENT_CONFIG": variable},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == expected


@pytest.mark.parametrize("words", [["run"], ["run", "--config=agent.toml"]])
@pytest.mark.parametrize("in_config", [True, False])
def test_what_keeps_the_service_from_running_is_told(words: list[str], in_config: bool) -> None:
    code = (
        "import component.app.process as process\n"
        "def run(config):\n"
        f"    raise process.StartError('One.', 'Two.', in_config={in_config})\n"
        "process.run_service = run\n"
        "from component.cli.main import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == "error: One.\nerror: Two.\n"
    assert done.returncode == (ExitCode.CONFIG if in_config else ExitCode.FAILURE)
