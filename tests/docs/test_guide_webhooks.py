"""The guide to webhooks: its configuration is loaded, and its sender sends to what it declares."""

import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from component.app.features import load
from component.config import Settings
from component.features.webhooks.feature import webhooks_of
from component.store import Storage
from tests.component.features.webhooks.world import github_headers, listening
from tests.servers.guides import DOCS, block

GUIDE = DOCS / "how-to" / "webhooks.md"
SECRETS = {
    "GITHUB_HOOK_SECRET": "0123456789abcdef0123456789abcdef",
    "DEPLOY_HOOK_SECRET": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
}
SERVER = """
[server]
component_domain = "agent.example.com"
component_secret = "change-me"
"""
RELEASE = (
    b'{"action": "published", "repository": {"full_name": "o/r"}, "release": {"tag_name": "v1"}}'
)


def settings(directory: Path) -> Settings:
    file = directory / "agent.toml"
    file.write_text("\n".join((SERVER, block(GUIDE, "github"), block(GUIDE, "generic"))))
    return load(file, SECRETS)


@pytest.mark.anyio
async def test_the_examples_start_work(tmp_path: Path, storage: Storage) -> None:
    async with listening(storage, *webhooks_of(settings(tmp_path))) as world:
        headers = github_headers(RELEASE, "release", secret=SECRETS["GITHUB_HOOK_SECRET"].encode())
        answer = await world.sender.request("POST", "/hooks/releases", headers, RELEASE)
        assert answer.status == 202, answer.body
        script = block(GUIDE, "sender").replace("8470", str(world.sender.port))
        done = await anyio.run_process([sys.executable, "-c", script], env=os.environ | SECRETS)
        assert re.match(rb'202 \{"status":"accepted","id":"msg_', done.stdout)
        first, second = world.starter.started
        assert bytes(first[1].params) == b'{"text":"o/r v1"}'
        assert first[1].template == "New release: $text"
        assert bytes(second[1].params) == b'{"text":"shop"}'
        assert [str(jid) for jid in second[1].tell] == ["juliet@example.com", "romeo@example.com"]


def test_its_statuses_are_those_of_the_code() -> None:
    table = GUIDE.read_text().split("## What is answered")[1].split("\n\n")[1]
    told = set(map(int, re.findall(r"\b[245]\d\d\b", table)))
    assert told == {200, 202, 400, 401, 404, 405, 408, 413, 415, 429, 503}


def test_its_commands_make_usable_secrets() -> None:
    from component.config.kinds import standard_key

    command = re.findall(r"whsec_\$\(openssl rand -base64 \d+\)", GUIDE.read_text())[0]
    made = subprocess.run(["/bin/sh", "-c", f'echo "{command}"'], capture_output=True, check=True)
    assert standard_key(made.stdout.decode().strip()) is not None
