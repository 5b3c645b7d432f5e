"""The OCI image runs as a container does: its user, its files, and a volume that outlives it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.component.cli.embedded import Embedded, embedded_server
from tests.packaging.chroots import Chroot, check
from tests.packaging.releases import BIN, build, copy_sources, newer_sources, run
from tests.servers.talk import PING

pytestmark = [pytest.mark.servers, pytest.mark.thorough]


def image(sources: Path) -> Path:
    """Build the image of these sources; return its layout."""
    build(sources, "wheel")
    for script in ("deb.sh", "image.sh"):
        run("bash", f"packaging/{script}", BIN.parent, cwd=sources, PYTHONPATH=str(sources))
    layout = sources / "layout"
    layout.mkdir()
    check(["tar", "-xf", next((sources / "dist").glob("*.oci.tar")), "-C", layout])
    return layout


def blob(layout: Path, descriptor: dict[str, Any]) -> Any:
    return json.loads((layout / "blobs/sha256" / descriptor["digest"].split(":")[1]).read_bytes())


class Container:
    """A container of an image, without a program that makes namespaces for networks and users."""

    def __init__(self, layout: Path, bundle: Path, volume: Path) -> None:
        (manifest,) = json.loads((layout / "index.json").read_bytes())["manifests"]
        self.config = blob(layout, blob(layout, manifest)["config"])["config"]
        tag = manifest["annotations"]["org.opencontainers.image.ref.name"]
        check(["umoci", "unpack", "--image", f"{layout}:{tag}", bundle])
        self.chroot = Chroot(bundle / "rootfs")
        self.volume = self.chroot.path("/var/lib/xmpp-agent")
        if volume.exists():
            shutil.rmtree(self.volume)
            shutil.copytree(volume, self.volume)
            check(["chown", "-R", self.config["User"], self.volume])

    def command(self, *arguments: str) -> tuple[str, ...]:
        user, group = self.config["User"].split(":")
        program = arguments or (*self.config["Entrypoint"], *self.config["Cmd"])
        return "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *program

    def environment(self, server: Embedded) -> dict[str, str]:
        own = dict(each.split("=", 1) for each in self.config["Env"])
        return own | {
            "AGENT_SECRET": server.secret,
            "XMPP_AGENT_SERVER__HOST": "127.0.0.1",
            "XMPP_AGENT_SERVER__PORT": str(server.port),
            "XMPP_AGENT_SERVER__COMPONENT_DOMAIN": server.component_domain,
            "XMPP_AGENT_AGENT__ALLOWED_DOMAINS": '["localhost"]',
        }


def test_it_is_started_checked_and_upgraded(tmp_path: Path) -> None:
    first = Container(image(copy_sources(tmp_path / "1")), tmp_path / "b1", tmp_path / "none")
    assert first.config["User"] == "900:900"
    assert first.config["Volumes"] == {"/var/lib/xmpp-agent": {}}
    assert not first.chroot.path("/etc/xmpp-agent/agent.env").exists()
    assert list(first.volume.iterdir()) == []
    check_health = first.command(*first.config["Healthcheck"]["Test"][1:])
    with embedded_server() as server:
        given = first.environment(server)
        with first.chroot.service(*first.command(), **given):
            assert "connected since" in first.chroot.check(*check_health, **given)
            with server.login() as juliet:
                assert juliet.iq(server.component_domain, PING).get("type") == "result"
        assert first.chroot.run(*check_health, **given).returncode == 1

        # A newer image gets the volume.
        newer = image(newer_sources(tmp_path / "2"))
        second = Container(newer, tmp_path / "b2", first.volume)
        with second.chroot.service(*second.command(), **given):
            assert "connected since" in second.chroot.check(*check_health, **given)
        assert (second.volume / "before-upgrade/agent.db").exists()

        # The older one refuses it until the upgrade is undone.
        shutil.rmtree(first.volume)
        shutil.copytree(second.volume, first.volume)
        check(["chown", "-R", first.config["User"], first.volume])
        refused: subprocess.CompletedProcess[str] = first.chroot.run(*first.command(), **given)
        assert "written by a newer release" in refused.stderr
        undo = first.command(*first.config["Entrypoint"], "rollback")
        assert "Put the backup" in first.chroot.check(*undo, **given)
        with first.chroot.service(*first.command(), **given):
            pass
