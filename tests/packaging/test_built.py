"""The packages that are built without Debian: wheel and sdist, manual and completions."""

import hashlib
import os
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from component.cli.group import group
from tests.packaging.releases import ROOT, build, copy_sources, run

PACKAGING = ROOT / "packaging"
TOP = {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
PACKAGES = {
    *("component", "conformance", "demo_server", "protocol_schemas", "xep"),
    *("xmpp_agent", "xmpp_agent_client"),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def built(sources: Path) -> list[Path]:
    return build(sources, "wheel", "sdist")


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("manual")
    run("python", PACKAGING / "manual.py", target, cwd=ROOT, PYTHONPATH=str(ROOT))
    return target


def digests(files: list[Path]) -> list[str]:
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def test_packages_have_the_same_bytes_wherever_and_whenever_they_are_built(
    built: list[Path], tmp_path: Path
) -> None:
    other = copy_sources(tmp_path / "a longer path" / "second")
    for file in other.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
        file.chmod(0o700 if file.is_dir() else 0o600)
    assert digests(build(other, "wheel", "sdist")) == digests(built)


def test_the_sdist_builds_the_same_wheel(built: list[Path], tmp_path: Path) -> None:
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert digests(build(unpacked, "wheel")) == digests(built[:1])


def test_the_sdist_has_what_is_built_and_nothing_else(built: list[Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.partition("/")[0] for name in names} == TOP | PACKAGES
    assert {Path(name).suffix for name in names if "/" in name} <= {
        *(".py", ".typed", ".toml", ".txt", ".xsd", ".xml", ".json", ".wit", ".c", ".rs", ".md"),
    }


def test_the_wheel_has_the_licence_and_every_file_of_its_packages(built: list[Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert {name for name in names if ".dist-info/" not in name} == set(listed)


def commands(command: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(command)
    for name in command.list_commands(context):
        yield (*path, name)
        below = command.get_command(context, name)
        if isinstance(below, click.Group):
            yield from commands(below, (*path, name))


def test_each_command_has_a_page_with_all_its_options(manual: Path) -> None:
    for path in commands(group):
        text = plain((manual / "man1" / f"xmpp-agent-{path[0]}.1").read_text())
        command: click.Command = group
        for name in path:
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), name)
            assert found is not None
            command = found
        assert f"xmpp-agent {' '.join(path)}" in text
        for parameter in command.params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert option in text or isinstance(parameter, click.Argument), (path, option)
        for word in (command.help or "").split():
            assert word in text or word == "\b", (path, word)


def plain(page: str) -> str:
    return page.replace(r"\-", "-").replace(r"\&", "").replace(r"\e", "\\")


def test_no_line_of_a_page_is_taken_for_a_request_of_roff(manual: Path) -> None:
    requests = re.compile(r"\.(TH|SH|SS|PP|TP|B|BR|nf|fi)\b")
    for page in (manual / "man1").iterdir():
        for line in page.read_text().splitlines():
            assert requests.match(line) or not line.startswith((".", "'")), (page.name, line)


def test_bash_accepts_its_completion_and_it_completes(manual: Path) -> None:
    for file in (manual / "bash").iterdir():
        subprocess.run(["bash", "-n", file], check=True)
    completed = run(
        "xmpp-agent",
        cwd=ROOT,
        PYTHONPATH=str(ROOT),
        _XMPP_AGENT_COMPLETE="bash_complete",
        COMP_WORDS="xmpp-agent roll",
        COMP_CWORD="1",
    )
    assert completed == "plain,rollback\n"


@pytest.mark.parametrize("script", ["xmpp-agent", "postinst", "prerm", "postrm"])
def test_scripts_are_valid_for_debians_shell(script: str) -> None:
    subprocess.run(["sh", "-n", PACKAGING / script], check=True)


def test_nfpm_makes_a_package_that_dpkg_reads(tmp_path: Path) -> None:
    """Its files are stand-ins here; `deb.sh` lays out the real ones."""
    (tmp_path / "files/usr/bin").mkdir(parents=True)
    (tmp_path / "files/usr/bin/xmpp-agent").write_text("#!/bin/sh\n")
    (tmp_path / "agent.toml").write_text("[server]\n")
    for script in ("postinst", "prerm", "postrm"):
        (tmp_path / script).write_bytes((PACKAGING / script).read_bytes())
    given = {"VERSION": "1.2.3", "ARCH": "amd64", "PYTHON_VERSION": "3.11", "PYTHON_NEXT": "3.12"}
    config = PACKAGING / "nfpm.yaml"
    run("nfpm", "package", "-f", config, "-p", "deb", "-t", "x.deb", cwd=tmp_path, **given)
    package = tmp_path / "x.deb"

    def dpkg(option: str, *after: str) -> str:
        command = ["dpkg-deb", option, str(package), *after]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    fields = dpkg("--field")
    assert "Version: 1.2.3\n" in fields
    assert "python3 (>= 3.11), python3 (<< 3.12)" in fields
    assert re.search(
        r"^-rw-r----- root/root .* \./etc/xmpp-agent/agent\.toml$", dpkg("-c"), re.MULTILINE
    )
    dpkg("--control", str(tmp_path / "control"))
    assert (tmp_path / "control/conffiles").read_text() == "/etc/xmpp-agent/agent.toml\n"
