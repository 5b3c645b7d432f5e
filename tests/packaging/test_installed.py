"""The Debian package is installed, started, upgraded, undone and removed, in a new Debian."""

import configparser
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.cli.embedded import Embedded, embedded_server
from tests.packaging.chroots import Chroot, check, new_debian
from tests.packaging.releases import BIN, NEWER, build, copy_sources, newer_sources, run
from tests.servers.talk import PING

pytestmark = [pytest.mark.servers, pytest.mark.thorough]

CONFIG = "/etc/xmpp-agent/agent.toml"
DATA = "/var/lib/xmpp-agent"
UNIT = "/usr/lib/systemd/system/xmpp-agent.service"


def debian_package(sources: Path) -> Path:
    build(sources, "wheel")
    run("bash", "packaging/deb.sh", BIN.parent, cwd=sources, PYTHONPATH=str(sources))
    return next((sources / "dist").glob("*.deb"))


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return debian_package(copy_sources(tmp_path_factory.mktemp("older")))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return debian_package(newer_sources(tmp_path_factory.mktemp("newer")))


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("debian") / "new.tar"
    new_debian(archive)
    return archive


@pytest.fixture
def chroot(debian: Path, tmp_path: Path) -> Iterator[Chroot]:
    # Another user runs programs in it, so the directories above it let others in.
    made = Chroot.unpacked(debian, tmp_path / "root")
    yield made
    shutil.rmtree(made.root)


@pytest.fixture(scope="module")
def server() -> Iterator[Embedded]:
    with embedded_server() as embedded:
        yield embedded


def configure(chroot: Chroot, server: Embedded) -> None:
    """Do what the package says after it was installed."""
    env = chroot.path("/etc/xmpp-agent/agent.env")
    env.write_text(f"AGENT_SECRET={server.secret}\n")
    where = ("--domain", server.component_domain, "--host", "127.0.0.1", "--port", str(server.port))
    shown = chroot.check("xmpp-agent", "init", "--force", *where, "--server", "prosody")
    assert server.secret in shown
    for each in (chroot.path(CONFIG), env):
        assert each.stat().st_gid == group_of(chroot)
        assert stat.S_IMODE(each.stat().st_mode) == 0o640


def group_of(chroot: Chroot) -> int:
    return int(chroot.check("getent", "group", "xmpp-agent").split(":")[2])


def unit(chroot: Chroot) -> tuple[str, ...]:
    """The command that systemd runs, as the user of the unit."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(chroot.path(UNIT))
    service = parser["Service"]
    user = ("setpriv", f"--reuid={service['User']}", f"--regid={service['Group']}")
    return (*user, "--init-groups", *service["ExecStart"].split())


def test_it_is_installed_started_upgraded_and_removed(
    chroot: Chroot, older: Path, newer: Path, server: Embedded
) -> None:
    said = chroot.install(older)
    assert "xmpp-agent init --force" in said
    assert chroot.path("/usr/share/man/man1/xmpp-agent-run.1.gz").exists()
    configuration = chroot.path(CONFIG)
    assert stat.S_IMODE(configuration.stat().st_mode) == 0o640
    assert configuration.stat().st_gid == group_of(chroot)
    assert stat.S_IMODE(chroot.path(DATA).stat().st_mode) == 0o700
    assert f'path = "{DATA}"' in configuration.read_text()

    configure(chroot, server)
    report = chroot.check("xmpp-agent", "doctor")
    assert "failed" not in report
    service = unit(chroot)
    with chroot.service(*service):
        assert chroot.check("xmpp-agent", "health", "--connected").startswith("The service runs")
        assert "no service" not in chroot.check("xmpp-agent", "status")
        with server.login() as juliet:
            assert juliet.iq(server.component_domain, PING).get("type") == "result"
    assert chroot.run("xmpp-agent", "health").returncode == 1
    chroot.check("xmpp-agent", "pause")

    # The newer release keeps the configuration, and upgrades the database.
    kept = configuration.read_text()
    chroot.install(newer)
    assert NEWER in chroot.check("xmpp-agent", "--version")
    assert configuration.read_text() == kept
    assert "succeeds" in chroot.check("xmpp-agent", "upgrade", "--rehearse")
    with chroot.service(*service):
        pass
    assert chroot.path(f"{DATA}/before-upgrade/agent.db").exists()

    # The older one comes back.
    chroot.install(older)
    refused = chroot.run(*service)
    assert refused.returncode == 1
    assert "written by a newer release" in refused.stderr
    assert "Put the backup" in chroot.check("xmpp-agent", "rollback")
    with chroot.service(*service):
        assert "Paused" in chroot.check("xmpp-agent", "status")

    # Removed, the configuration and the data stay; purged, nothing does.
    chroot.check("dpkg", "--remove", "xmpp-agent")
    assert not chroot.path("/usr/lib/xmpp-agent").exists()
    assert configuration.exists()
    assert chroot.path(f"{DATA}/agent.db").exists()
    chroot.check("dpkg", "--purge", "xmpp-agent")
    left = check(
        ["find", chroot.root, "-name", "*xmpp-agent*", "-not", "-path", "*/var/lib/dpkg/*"]
    )
    assert left == ""
    assert chroot.run("getent", "passwd", "xmpp-agent").returncode == 2
